"""A comparison of decode with and without the cache as text, markdown, CSV or JSON.

Knows nothing of measuring.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import asdict, fields

from onward.lab.bench.recompute import Comparison, Line
from onward.lab.bench.tables import figures
from onward.lab.kv.tables import Rows, aligned, piped

MS = 1e3


def text(comparison: Comparison) -> str:
    """For a person: aligned columns."""
    return _laid_out(comparison, aligned)


def markdown(comparison: Comparison) -> str:
    """The same with tables of markdown."""
    return _laid_out(comparison, piped)


def comma_separated(comparison: Comparison) -> str:
    """The times, one row a length, each with its setting."""
    setting = {
        key: value for key, value in asdict(comparison).items() if key not in ("lines", "counts")
    }
    out = io.StringIO()
    names = [*setting, *(field.name for field in fields(Line))]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    for line in comparison.lines:
        writer.writerow({**setting, **asdict(line)})
    return out.getvalue()


def as_json(comparison: Comparison) -> str:
    return json.dumps(asdict(comparison), indent=2) + "\n"


WRITERS: dict[str, Callable[[Comparison], str]] = {
    "table": text,
    "md": markdown,
    "csv": comma_separated,
    "json": as_json,
}


def _laid_out(comparison: Comparison, lay: Callable[[Rows], list[str]]) -> str:
    parts = [
        f"{comparison.model}, {comparison.dtype}, keys and values in {comparison.kv_dtype}, "
        f"{comparison.isa}, threads: {comparison.threads}, rounds: {comparison.repetitions}",
        "",
    ]
    if comparison.lines:
        times = [["length", "ms with", "ms without", "ratio", "min", "max"]]
        times += [
            [
                f"{line.tokens:,}",
                figures(MS * line.with_cache_s),
                figures(MS * line.without_cache_s),
                *(figures(ratio) for ratio in (line.ratio, line.ratio_min, line.ratio_max)),
            ]
            for line in comparison.lines
        ]
        parts += [*lay(times), ""]
    if comparison.counts:
        counts = [["tokens written", "K/V with", "K/V without", "ratio"]]
        counts += [
            [
                f"{count.tokens:,}",
                f"{count.with_cache:,}",
                f"{count.without_cache:,}",
                figures(count.without_cache / count.with_cache),
            ]
            for count in comparison.counts
        ]
        parts += [*lay(counts), ""]
    return "\n".join([*parts, *_MEANING, ""])


_MEANING = (
    "ms: time to one token after this number of tokens; without the cache they are all computed",
    "again. K/V: tokens whose keys and values the engine computed, by its own counter, while n",
    "tokens were written after a prompt of one: n with the cache, n (n + 1) / 2 without.",
)
