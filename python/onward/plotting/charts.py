"""Numbers on two logarithmic axes: lines, their names at the right end, and what lies across.

Turns a chart into marks. Knows neither what the numbers are nor how marks become a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onward.plotting.marks import HEIGHT, WIDTH, Dot, Mark, Stroke, Words

LEFT, RIGHT, TOP, BOTTOM = 80, 130, 44, 52  # margins
LABEL_GAP, TICK_GAP = 14, 60
GRID, LEVEL = "#dddddd", "#b03a2e"
COLOURS = (
    *("#1b4f72", "#2f6f4f", "#7d6608", "#6c3483", "#a04000", "#117a65", "#5d6d7e", "#884ea0"),
    *("#1f618d", "#4d5656"),
)


@dataclass(frozen=True)
class Curve:
    name: str
    points: tuple[tuple[float, float], ...]
    """Both numbers above 0, the first ones ascending."""


@dataclass(frozen=True)
class Chart:
    title: str
    across: str
    """What the numbers to the right are."""
    curves: tuple[Curve, ...]
    told: Callable[[float], str]
    """A number upwards with its unit."""
    levels: tuple[tuple[str, float], ...] = ()
    """Horizontal lines: what they are, and where."""
    step: int = 4
    """Of the ticks upwards: each is so many times the one below it."""
    dots: bool = False
    """At every point: for what was measured there, and is not known between."""


def marks(chart: Chart) -> Iterator[Mark]:
    """All that is drawn, in a frame of WIDTH x HEIGHT."""
    yield Words(LEFT, TOP - 18, chart.title, title=True)
    yield from _grid(chart)
    yield from _levels(chart)
    yield from _curves(chart)


class _Scale:
    """Numbers to places on one axis, by their logarithm."""

    def __init__(self, numbers: Sequence[float], begin: float, end: float) -> None:
        self._low, high = math.log2(min(numbers)), math.log2(max(numbers))
        self._begin = begin
        self._per_doubling = (end - begin) / max(high - self._low, 1)

    def __call__(self, number: float) -> float:
        return self._begin + (math.log2(number) - self._low) * self._per_doubling


def _scales(chart: Chart) -> tuple[_Scale, _Scale]:
    across = [x for curve in chart.curves for x, _ in curve.points]
    return (
        _Scale(across, LEFT, WIDTH - RIGHT),
        _Scale(_powers(chart), HEIGHT - BOTTOM, TOP),
    )


def _powers(chart: Chart) -> list[float]:
    """Powers of the step that reach around all numbers."""
    numbers = [y for curve in chart.curves for _, y in curve.points]
    numbers += [number for _, number in chart.levels]
    doublings = math.log2(chart.step)
    low = math.floor(math.log2(min(numbers)) / doublings)
    high = math.ceil(math.log2(max(numbers)) / doublings)
    return [float(chart.step) ** power for power in range(low, max(high, low + 1) + 1)]


def _grid(chart: Chart) -> Iterator[Mark]:
    x, y = _scales(chart)
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for number in _powers(chart):
        yield Stroke(((LEFT, y(number)), (right, y(number))), GRID)
        yield Words(LEFT - 8, y(number) + 4, chart.told(number), anchor="end")
    shown = -math.inf
    for number in sorted({number for curve in chart.curves for number, _ in curve.points}):
        if x(number) - shown < TICK_GAP:
            continue
        shown = x(number)
        yield Stroke(((shown, TOP), (shown, bottom)), GRID)
        yield Words(shown, bottom + 16, f"{number:,}", anchor="middle")
    yield Words((LEFT + right) / 2, bottom + 36, chart.across, anchor="middle")


def _levels(chart: Chart) -> Iterator[Mark]:
    _, y = _scales(chart)
    for name, number in chart.levels:
        yield Stroke(((LEFT, y(number)), (WIDTH - RIGHT, y(number))), LEVEL, dashed=True)
        yield Words(LEFT + 6, y(number) - 4, f"{name} {chart.told(number)}", LEVEL)


def _curves(chart: Chart) -> Iterator[Mark]:
    """Lines, and at the right end of each its name; equal lines are one, with all their names."""
    x, y = _scales(chart)
    names: dict[tuple[tuple[float, float], ...], list[str]] = {}
    for curve in chart.curves:
        names.setdefault(curve.points, []).append(curve.name)
    ordered = sorted(names, key=lambda points: points[-1][1], reverse=True)
    places = spread([y(points[-1][1]) for points in ordered], LABEL_GAP)
    for index, (points, place) in enumerate(zip(ordered, places, strict=True)):
        colour = COLOURS[index % len(COLOURS)]
        drawn = tuple((x(right), y(up)) for right, up in points)
        yield Stroke(drawn, colour, 1.8)
        if chart.dots:
            for right, down in drawn:
                yield Dot(right, down, colour)
        end = WIDTH - RIGHT
        yield Stroke(((end, y(points[-1][1])), (end + 8, place)), colour)
        yield Words(end + 11, place + 4, ", ".join(names[points]), colour)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Ascending places moved apart until neighbours have that gap; those that touch keep their
    middle."""
    groups: list[tuple[float, int]] = []  # the middle and the number of those that touch
    for place in places:
        middle, count = place, 1
        while groups and groups[-1][0] + (groups[-1][1] + count) * gap / 2 > middle:
            before, more = groups.pop()
            middle = (before * more + middle * count) / (more + count)
            count += more
        groups.append((middle, count))
    return [
        middle + (index - (count - 1) / 2) * gap
        for middle, count in groups
        for index in range(count)
    ]
