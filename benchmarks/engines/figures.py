"""Computes the lines of a table from readings: medians with their spread, and ratios within a
round.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from engines.rounds import Reading
from engines.tables import aligned, markdown

HEADER = ("model", "measure", "weights", "engine", "tokens/s", "onward / engine", "same", "others")


@dataclass(frozen=True)
class Spread:
    """Statistics of a figure over the rounds."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Line:
    """The results of one engine for one measure."""

    model: str
    measure: str
    precision: str
    engine: str
    is_onward: bool
    tokens_per_s: Spread
    ratio: Spread | None
    """The speed of onward in the same round divided by this speed; None for onward, or if onward
    failed."""
    same_tokens: int | None
    """The number of leading tokens, over all rounds, that equal onward's; None if none were
    compared."""
    tokens: int
    others_share: float
    """The share of the cores that other processes took, the median."""


def summarise(model: str, readings: Iterable[Reading]) -> list[Line]:
    """One line for each measure, precision and engine, in the order of their first reading. onward,
    which runs in every group, comes first."""
    groups: dict[tuple[str, str], dict[str, list[Reading]]] = {}
    for reading in readings:
        engines = groups.setdefault((reading.measure, reading.entry.precision), {})
        engines.setdefault(reading.entry.name, []).append(reading)
    lines = []
    for (measure, precision), engines in groups.items():
        own = {
            (reading.heat, reading.round): reading
            for past in engines.values()
            for reading in past
            if reading.entry.is_onward
        }
        for name, past in engines.items():
            is_onward = past[0].entry.is_onward
            pairs = [] if is_onward else _pairs(own, past)
            ratios = [ours.tokens_per_s / other.tokens_per_s for ours, other in pairs]
            texts = [(ours.tokens, other.tokens) for ours, other in pairs if other.tokens]
            lines.append(
                Line(
                    model=model,
                    measure=measure,
                    precision=precision,
                    engine=name,
                    is_onward=is_onward,
                    tokens_per_s=Spread.of([reading.tokens_per_s for reading in past]),
                    ratio=Spread.of(ratios) if ratios else None,
                    same_tokens=sum(_leading(*pair) for pair in texts) if texts else None,
                    tokens=sum(len(ours) for ours, _ in texts),
                    others_share=statistics.median(reading.others_share for reading in past),
                )
            )
    return lines


def table(lines: Sequence[Line], style: str) -> str:
    """``style``: "text" or "md"."""
    rows = [HEADER, *map(_cells, lines)]
    return markdown(rows) if style == "md" else aligned(rows)


def as_json(setting: dict[str, Any], lines: Sequence[Line]) -> str:
    return json.dumps({**setting, "lines": [asdict(line) for line in lines]}, indent=2)


def _pairs(
    own: dict[tuple[int, int], Reading], past: Sequence[Reading]
) -> list[tuple[Reading, Reading]]:
    """The reading of onward in the same round, and the other reading."""
    return [
        (own[reading.heat, reading.round], reading)
        for reading in past
        if (reading.heat, reading.round) in own
    ]


def _leading(tokens: Sequence[int], others: Sequence[int]) -> int:
    """The number of equal tokens before the first difference."""
    same = 0
    for token, other in zip(tokens, others, strict=False):
        if token != other:
            break
        same += 1
    return same


def _cells(line: Line) -> tuple[str, ...]:
    ratio = line.ratio
    return (
        line.model,
        line.measure,
        line.precision,
        line.engine,
        _rate(line.tokens_per_s),
        "" if ratio is None else f"{ratio.median:.2f} ({ratio.min:.2f} to {ratio.max:.2f})",
        "" if line.same_tokens is None else f"{line.same_tokens}/{line.tokens}",
        f"{line.others_share:.0%}",
    )


def _rate(rate: Spread) -> str:
    digits = 0 if rate.median >= 100 else 1
    return f"{rate.median:.{digits}f} ({rate.min:.{digits}f} to {rate.max:.{digits}f})"
