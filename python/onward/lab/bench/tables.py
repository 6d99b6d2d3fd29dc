"""A report as text: aligned columns, markdown, CSV or JSON. Knows nothing of measuring.

What llama-bench prints as well has its names: in the tables model, size, params, backend, threads,
test and t/s (mean and standard deviation), in CSV and JSON those of its own files.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields

from onward.lab.bench.measuring import Line, Report

HEADER = (
    *("test", "batch", "t/s", "median", "min", "max", "MB/token", "GB/s", "of read"),
    *("GFLOP/s", "of peak", "logits"),
)
SETTING = ("model", "size", "params", "backend", "threads")
"""In front of them in markdown, where rows of several runs are put together."""
_WORDS = 1  # columns at the left that are words and not numbers
_LEFT = ("model", "backend", "test")


def text(report: Report) -> str:
    """For a person: the setting, aligned columns, and what they mean."""
    rows = [HEADER, *map(_cells, report.lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if index < _WORDS else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*_setting(report), "", *lines, "", *_meaning(report), ""])


def markdown(report: Report) -> str:
    """The same as a markdown table."""
    head = (*SETTING, *HEADER)
    rule = ["---:" if name not in _LEFT else "---" for name in head]
    setting = (
        report.model,
        _size(report.weight_bytes),
        _count(report.parameters),
        report.backend,
        str(report.threads),
    )
    rows = [head, rule, *((*setting, *_cells(line)) for line in report.lines)]
    table = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*_setting(report), "", *table, "", *_meaning(report), ""])


def comma_separated(report: Report) -> str:
    """One row a line, each with its setting: rows of several runs can be put together."""
    setting = {key: value for key, value in asdict(report).items() if key != "lines"}
    names = [*setting, *(field.name for field in fields(Line)), *_LLAMA_BENCH]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for line in report.lines:
        writer.writerow({**setting, **asdict(line), **_llama_bench(report, line)})
    return out.getvalue()


def as_json(report: Report) -> str:
    content = asdict(report)
    content["lines"] = [{**asdict(line), **_llama_bench(report, line)} for line in report.lines]
    return json.dumps(content, indent=2) + "\n"


WRITERS: dict[str, Callable[[Report], str]] = {
    "table": text,
    "md": markdown,
    "csv": comma_separated,
    "json": as_json,
}


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


def _llama_bench(report: Report, line: Line) -> dict[str, object]:
    """A row under the names of llama-bench's own files."""
    prefill = line.what == "prefill"
    values = (
        *(report.weight_bytes, report.parameters, report.backend, report.threads),
        line.tokens if prefill else 0,
        0 if prefill else report.decode_tokens,
        0 if prefill else line.tokens,
        *(line.tokens_per_s_mean, line.tokens_per_s_deviation),
    )
    return dict(zip(_LLAMA_BENCH, values, strict=True))


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.2f} MiB"


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e9 else f"{parameters / 1e6:.2f} M"


def figures(number: float) -> str:
    """Three of them at least."""
    decimals = 0 if number >= 1000 else 1 if number >= 100 else 2 if number >= 10 else 3
    return f"{number:.{decimals}f}"


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
    depth = "with so many tokens in the cache"
    if not report.cache:
        depth = "without the cache: so many tokens are computed anew before each token"
    return [
        f"pp: prefill, prompts of so many tokens, {report.prefill_chunk_tokens} tokens a step.",
        f"tg: decode; @ d: {depth}, "
        f"{counted(report.decode_tokens, 'token')} a repetition, which follow one another.",
        "t/s: mean ± standard deviation of the repetitions; then median, least and most.",
        "MB/token: the weights once a step, and the part of the cache that is seen.",
        "logits: SHA-256 of the last logits of all sequences (of decode after the first "
        "repetition), first 8 digits.",
    ]


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
