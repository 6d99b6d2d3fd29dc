"""The report of ``onward bench --cache both``: decode with and without the cache."""

from __future__ import annotations

from dataclasses import asdict, fields

from onward.lab.bench.recompute import Comparison, Line
from onward.lab.report.numbers import figures
from onward.lab.report.tables import Section, writers

MS = 1e3


def sections(comparison: Comparison) -> list[Section]:
    """The setting, the times, the counts, and their meaning."""
    setting = (
        f"{comparison.model}, {comparison.dtype}, keys and values in {comparison.kv_dtype}, "
        f"{comparison.isa}, threads: {comparison.threads}, rounds: {comparison.repetitions}"
    )
    parts = [Section(notes=[setting])]
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
        parts.append(Section(rows=times))
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
        parts.append(Section(rows=counts))
    return [*parts, Section(notes=_MEANING)]


def records(comparison: Comparison) -> list[dict[str, object]]:
    """The times: a row for each length, with the setting."""
    return [{**_setting(comparison), **asdict(line)} for line in comparison.lines]


def _setting(comparison: Comparison) -> dict[str, object]:
    return {key: value for key, value in asdict(comparison).items() if key in _SETTING}


_MEANING = (
    "ms: time to one token after this number of tokens; without the cache they are all computed",
    "again. K/V: tokens whose keys and values the engine computed, by its own counter, for n",
    "generated tokens after a prompt of one: n with the cache, n (n + 1) / 2 without.",
)
_SETTING = [field.name for field in fields(Comparison) if field.name not in ("lines", "counts")]
WRITERS = writers(sections, [*_SETTING, *(field.name for field in fields(Line))], records, asdict)
