"""Charts of lines on two logarithmic axes, turned into marks: lines with their names at the right
end, a grid, and horizontal levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onward.lab.report.marks import HEIGHT, WIDTH, Dot, Mark, Stroke, Words, text_width

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
    colour: str | None = None
    """A fixed colour, for a subject that appears in several charts; None: the next free colour."""


@dataclass(frozen=True)
class Chart:
    title: str
    across: str
    """The name of the horizontal axis."""
    curves: tuple[Curve, ...]
    formatted: Callable[[float], str]
    """Formats a number of the vertical axis with its unit."""
    levels: tuple[tuple[str, float], ...] = ()
    """Horizontal lines: name and value."""
    step: int = 4
    """The ratio of neighbouring ticks of the vertical axis."""
    dots: bool = False
    """A dot at every point, for values that were measured there."""


def marks(chart: Chart) -> Iterator[Mark]:
    """Everything to draw, in a frame of WIDTH x HEIGHT."""
    yield Words(LEFT, TOP - 18, chart.title, title=True)
    yield from _grid(chart)
    yield from _levels(chart)
    yield from _curves(chart)


class _Scale:
    """Maps numbers to places on one axis, by their logarithm."""

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
    powers = _powers(chart)
    # A wide range of numbers leaves some ticks out.
    stride = max(1, math.ceil(LABEL_GAP * (len(powers) - 1) / (bottom - TOP)))
    for number in powers[::stride]:
        yield Stroke(((LEFT, y(number)), (right, y(number))), GRID)
        yield Words(LEFT - 8, y(number) + 4, chart.formatted(number), anchor="end")
    shown = -math.inf
    for number in sorted({number for curve in chart.curves for number, _ in curve.points}):
        if x(number) - shown < TICK_GAP:
            continue
        shown = x(number)
        yield Stroke(((shown, TOP), (shown, bottom)), GRID)
        yield Words(shown, bottom + 16, f"{number:,}", anchor="middle")
    yield Words((LEFT + right) / 2, bottom + 36, chart.across, anchor="middle")


def _levels(chart: Chart) -> Iterator[Mark]:
    """Horizontal lines with their names above; names of neighbouring lines stand side by side."""
    _, y = _scales(chart)
    named: list[Words] = []
    for name, number in chart.levels:
        yield Stroke(((LEFT, y(number)), (WIDTH - RIGHT, y(number))), LEVEL, dashed=True)
        text, at = f"{name} {chart.formatted(number)}", y(number) - 4
        beside = [words.box[2] + 12 for words in named if abs(words.y - at) < LABEL_GAP]
        named.append(Words(max([LEFT + 6.0, *beside]), at, text, LEVEL))
    yield from named


def _curves(chart: Chart) -> Iterator[Mark]:
    """Lines, each with its name at the right end.

    Equal lines of one colour are drawn once, with all their names. A line that is equal to an
    earlier one of another colour is dashed, so that both colours are visible.
    """
    x, y = _scales(chart)
    names: dict[tuple[tuple[tuple[float, float], ...], str | None], list[str]] = {}
    for curve in chart.curves:
        names.setdefault((curve.points, curve.colour), []).append(curve.name)
    ordered = sorted(names, key=lambda line: line[0][-1][1], reverse=True)
    places = spread(
        [y(points[-1][1]) for points, _ in ordered], LABEL_GAP, TOP - 4, HEIGHT - BOTTOM
    )
    seen: set[tuple[tuple[float, float], ...]] = set()
    for index, ((points, fixed), place) in enumerate(zip(ordered, places, strict=True)):
        colour = fixed or COLOURS[index % len(COLOURS)]
        drawn = tuple((x(right), y(up)) for right, up in points)
        yield Stroke(drawn, colour, 1.8, dashed=points in seen)
        seen.add(points)
        if chart.dots:
            for right, down in drawn:
                yield Dot(right, down, colour)
        end = WIDTH - RIGHT
        yield Stroke(((end, y(points[-1][1])), (end + 8, place)), colour)
        name = _fitted(", ".join(names[points, fixed]), RIGHT - 13)
        yield Words(end + 11, place + 4, name, colour)


def _fitted(text: str, width: float) -> str:
    """The text, or its beginning and an ellipsis where it is wider."""
    while text_width(text) > width:
        text = text.removesuffix("…")[:-1] + "…"
    return text


def spread(
    places: Sequence[float], gap: float, least: float = -math.inf, most: float = math.inf
) -> list[float]:
    """Ascending places, moved apart until neighbours are at least ``gap`` apart.

    The result stays within the bounds if it fits there. A group of places that touch keeps its
    middle.
    """
    groups: list[tuple[float, int]] = []  # the middle of a group and its number of places
    for place in places:
        middle, count = place, 1
        while groups and groups[-1][0] + (groups[-1][1] + count) * gap / 2 > middle:
            before, more = groups.pop()
            middle = (before * more + middle * count) / (more + count)
            count += more
        groups.append((middle, count))
    found = [
        middle + (index - (count - 1) / 2) * gap
        for middle, count in groups
        for index in range(count)
    ]
    last = len(found) - 1
    found = [min(place, most - (last - index) * gap) for index, place in enumerate(found)]
    return [max(place, least + index * gap) for index, place in enumerate(found)]
