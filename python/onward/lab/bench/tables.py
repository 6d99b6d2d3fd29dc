"""The report of ``onward bench`` as a table, CSV and JSON.

Figures that llama-bench prints too have the names of llama-bench: in the tables model, size,
params, backend, threads, test and t/s (mean and standard deviation), in CSV and JSON the names of
its own files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields

from onward.lab.bench.measuring import Line, Report
from onward.lab.report.numbers import counted, figures
from onward.lab.report.tables import Section, as_json, comma_separated, markdown, text

HEADER = (
    *("test", "batch", "t/s", "median", "min", "max", "MB/token", "GB/s", "of read"),
    *("GFLOP/s", "of peak", "logits"),
)
SETTING = ("model", "size", "params", "backend", "threads")
"""The first columns in markdown, which can hold rows of several runs."""
_WORDS = ("model", "backend", "test")


def sections(report: Report) -> list[Section]:
    """The setting, the table, and the meaning of its columns."""
    return [
        Section(notes=_setting(report)),
        Section(rows=[HEADER, *map(_cells, report.lines)], left=_WORDS),
        Section(notes=_meaning(report)),
    ]


def sections_with_setting(report: Report) -> list[Section]:
    """The report in markdown, with the setting in each row."""
    before, table, after = sections(report)
    setting = (
        report.model,
        _size(report.weight_bytes),
        _count(report.parameters),
        report.backend,
        str(report.threads),
    )
    head, *rows = table.rows
    wide = [(*SETTING, *head), *((*setting, *row) for row in rows)]
    return [before, Section(rows=wide, left=_WORDS), after]


def records(report: Report) -> list[dict[str, object]]:
    """A row for each line, with the setting, so that one table can hold several runs."""
    setting = {key: value for key, value in asdict(report).items() if key != "lines"}
    return [{**setting, **_record(report, line)} for line in report.lines]


def content(report: Report) -> dict[str, object]:
    """The report as plain data."""
    return {**asdict(report), "lines": [_record(report, line) for line in report.lines]}


def _cells(line: Line) -> Sequence[str]:
    return (
        line.test,
        str(line.batch),
        f"{figures(line.tokens_per_s_mean)} ± {figures(line.tokens_per_s_deviation)}",
        figures(line.tokens_per_s),
        figures(line.tokens_per_s_min),
        figures(line.tokens_per_s_max),
        figures(line.bytes_per_token / 1e6),
        figures(line.gigabytes_per_s),
        f"{line.read_share:.0%}",
        figures(line.gigaflops),
        f"{line.arithmetic_share:.0%}",
        line.logits_hash,
    )


_LLAMA_BENCH = (
    *("model_size", "model_n_params", "backends", "n_threads", "n_prompt", "n_gen", "n_depth"),
    *("avg_ts", "stddev_ts"),
)


def _record(report: Report, line: Line) -> dict[str, object]:
    """A line, with additional fields under the names of llama-bench's own files."""
    prefill = line.what == "prefill"
    values = (
        *(report.weight_bytes, report.parameters, report.backend, report.threads),
        line.tokens if prefill else 0,
        0 if prefill else report.decode_tokens,
        0 if prefill else line.tokens,
        *(line.tokens_per_s_mean, line.tokens_per_s_deviation),
    )
    return {**asdict(line), **dict(zip(_LLAMA_BENCH, values, strict=True))}


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.2f} MiB"


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e9 else f"{parameters / 1e6:.2f} M"


def _setting(report: Report) -> list[str]:
    where = report.isa if report.device == "cpu" else report.device
    lines = [
        f"{report.model}, {report.dtype}, {where}, {counted(report.threads, 'thread')}, "
        f"{counted(report.repetitions, 'repetition')}; {report.parameters / 1e6:,.0f} million "
        f"parameters, {report.weight_bytes / 1e9:.3f} GB of weights; keys and values in "
        f"{report.kv_dtype}"
    ]
    if report.lines:
        read = [line.probed_gigabytes_per_s for line in report.lines]
        peak = [line.probed_gigaflops for line in report.lines]
        moves = "reads" if report.device == "cpu" else "copies"
        lines.append(
            f"this machine, probed beside each line: {moves} {min(read):.1f} to {max(read):.1f} "
            f"GB/s, multiplies {min(peak):.0f} to {max(peak):.0f} GFLOP/s in {report.arithmetic}"
        )
    return lines


def _meaning(report: Report) -> list[str]:
    depth = "with N tokens in the cache"
    if not report.cache:
        depth = "without the cache, N tokens are computed again before each token"
    return [
        f"ppN: prefill of prompts of N tokens, {report.prefill_chunk_tokens} tokens per step.",
        f"tgN: decode, {counted(report.decode_tokens, 'token')} per repetition, one after another; "
        f"@ dN: {depth}.",
        "t/s: mean ± standard deviation of the repetitions; then median, least and most.",
        "MB/token: the weights once per step, and the part of the cache that attention reads.",
        "logits: SHA-256 of the last logits of all sequences (of decode after the first "
        "repetition), first 8 digits.",
    ]


_NAMES = (
    *(field.name for field in fields(Report) if field.name != "lines"),
    *(field.name for field in fields(Line)),
    *_LLAMA_BENCH,
)
WRITERS: dict[str, Callable[[Report], str]] = {
    "table": lambda report: text(sections(report)),
    "md": lambda report: markdown(sections_with_setting(report)),
    "csv": lambda report: comma_separated(_NAMES, records(report)),
    "json": lambda report: as_json(content(report)),
}
