"""A report as text: aligned columns, markdown, CSV or JSON. Knows nothing of measuring."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields

from onward.bench.measuring import Line, Report

HEADER = (
    *("what", "batch", "tokens", "tokens/s", "min", "max", "MB/token", "GB/s", "of read"),
    *("GFLOP/s", "of peak", "logits"),
)
_WORDS = 1  # columns at the left that are words and not numbers


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
    rule = ["---" if index < _WORDS else "---:" for index in range(len(HEADER))]
    rows = [HEADER, rule, *map(_cells, report.lines)]
    table = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*_setting(report), "", *table, "", *_meaning(report), ""])


def comma_separated(report: Report) -> str:
    """One row a line, each with its setting: rows of several runs can be put together."""
    setting = {key: value for key, value in asdict(report).items() if key != "lines"}
    names = [*setting, *(field.name for field in fields(Line))]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for line in report.lines:
        writer.writerow({**setting, **asdict(line)})
    return out.getvalue()


def as_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=2) + "\n"


WRITERS: dict[str, Callable[[Report], str]] = {
    "text": text,
    "md": markdown,
    "csv": comma_separated,
    "json": as_json,
}


def _cells(line: Line) -> Sequence[str]:
    return (
        line.what,
        str(line.batch),
        str(line.tokens),
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


def figures(number: float) -> str:
    """Three of them at least."""
    decimals = 0 if number >= 1000 else 1 if number >= 100 else 2 if number >= 10 else 3
    return f"{number:.{decimals}f}"


def _setting(report: Report) -> list[str]:
    where = report.isa if report.device == "cpu" else report.device
    lines = [
        f"{report.model}, {report.dtype}, {where}, {_counted(report.threads, 'thread')}, "
        f"{_counted(report.repetitions, 'repetition')}; {report.parameters / 1e6:,.0f} million "
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
        f"prefill: prompts of so many tokens, {report.prefill_chunk_tokens} tokens a step.",
        f"decode: {depth}, "
        f"{_counted(report.decode_tokens, 'token')} a repetition, which follow one another.",
        "MB/token: the weights once a step, and the part of the cache that is seen.",
        "logits: SHA-256 of the last logits of all sequences (of decode after the first "
        "repetition), first 8 digits.",
    ]


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
