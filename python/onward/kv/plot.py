"""Bytes of one sequence against its length as a picture: both axes logarithmic, a line a kv_dtype.

SVG is written here; PNG, the same marks, is left to matplotlib where that is installed. Knows
nothing of how the bytes are counted.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from xml.sax.saxutils import escape

from onward.errors import Error, InvalidArgument, MissingExtra
from onward.kv.amounts import amount
from onward.message_text import label

SUFFIXES = (".svg", ".png")
WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 80, 130, 44, 52  # margins
LABEL_GAP, TICK_GAP = 14, 60
FONT, TITLE_FONT = 11, 13
DPI = 100
TEXT, GRID, MEMORY = "#222222", "#dddddd", "#b03a2e"
COLOURS = (
    *("#1b4f72", "#2f6f4f", "#7d6608", "#6c3483", "#a04000", "#117a65", "#5d6d7e", "#884ea0"),
    *("#1f618d", "#4d5656"),
)


@dataclass(frozen=True)
class Curve:
    name: str
    points: tuple[tuple[int, int], ...]
    """Tokens and bytes, both above 0, tokens ascending."""


@dataclass(frozen=True)
class Picture:
    title: str
    curves: tuple[Curve, ...]
    levels: tuple[tuple[str, int], ...]
    """Horizontal lines: what they are, and their bytes."""


def check_path(path: str) -> None:
    """InvalidArgument for another kind of file than SUFFIXES, MissingExtra for a PNG that nothing
    here can write."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidArgument(f"plot: is {label(path)}, expected a name ending in .svg or .png")
    if suffix == ".png":
        _matplotlib()


def write(picture: Picture, path: str) -> None:
    """The picture as a file; what kind is told by its name."""
    check_path(path)
    try:
        if Path(path).suffix.lower() == ".png":
            _write_png(picture, path)
        else:
            Path(path).write_text(svg(picture), encoding="utf-8")
    except OSError as failure:
        raise Error(f"{label(path)}: cannot write: {failure.strerror or failure}") from failure


@dataclass(frozen=True)
class Stroke:
    """A line through points; x to the right and y down, as everything that is drawn."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Words:
    x: float
    y: float
    """Of the line that the letters stand on."""
    text: str
    colour: str = TEXT
    anchor: Literal["start", "middle", "end"] = "start"
    title: bool = False


Mark: TypeAlias = Stroke | Words


def marks(picture: Picture) -> Iterator[Mark]:
    """All that is drawn, in a frame of WIDTH x HEIGHT."""
    yield Words(LEFT, TOP - 18, picture.title, title=True)
    yield from _grid(picture)
    yield from _levels(picture)
    yield from _curves(picture)


def svg(picture: Picture) -> str:
    """The picture as SVG."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="{FONT}">',
            '<rect width="100%" height="100%" fill="white"/>',
            *map(_svg_mark, marks(picture)),
            "</svg>\n",
        ]
    )


def _svg_mark(mark: Mark) -> str:
    if isinstance(mark, Stroke):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in mark.points)
        dashes = ' stroke-dasharray="6 4"' if mark.dashed else ""
        return (
            f'<polyline points="{points}" fill="none" stroke="{mark.colour}" '
            f'stroke-width="{mark.width}"{dashes}/>'
        )
    look = f' font-weight="bold" font-size="{TITLE_FONT}"' if mark.title else ""
    return (
        f'<text x="{mark.x:.1f}" y="{mark.y:.1f}" fill="{mark.colour}" '
        f'text-anchor="{mark.anchor}"{look}>{escape(mark.text)}</text>'
    )


class _Scale:
    """Numbers to places on one axis, by their logarithm."""

    def __init__(self, numbers: Sequence[int], begin: float, end: float) -> None:
        self._low, high = math.log2(min(numbers)), math.log2(max(numbers))
        self._begin = begin
        self._per_doubling = (end - begin) / max(high - self._low, 1)

    def __call__(self, number: int) -> float:
        return self._begin + (math.log2(number) - self._low) * self._per_doubling


def _scales(picture: Picture) -> tuple[_Scale, _Scale]:
    tokens = [x for curve in picture.curves for x, _ in curve.points]
    return (
        _Scale(tokens, LEFT, WIDTH - RIGHT),
        _Scale(_powers(picture), HEIGHT - BOTTOM, TOP),
    )


def _powers(picture: Picture) -> list[int]:
    """Powers of 4 that reach around all bytes."""
    sizes = [y for curve in picture.curves for _, y in curve.points]
    sizes += [size for _, size in picture.levels]
    low, high = math.floor(math.log(min(sizes), 4)), math.ceil(math.log(max(sizes), 4))
    return [4**power for power in range(low, max(high, low + 1) + 1)]


def _grid(picture: Picture) -> Iterator[Mark]:
    x, y = _scales(picture)
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for size in _powers(picture):
        yield Stroke(((LEFT, y(size)), (right, y(size))), GRID)
        yield Words(LEFT - 8, y(size) + 4, amount(size), anchor="end")
    shown = -math.inf
    for tokens in sorted({tokens for curve in picture.curves for tokens, _ in curve.points}):
        if x(tokens) - shown < TICK_GAP:
            continue
        shown = x(tokens)
        yield Stroke(((shown, TOP), (shown, bottom)), GRID)
        yield Words(shown, bottom + 16, f"{tokens:,}", anchor="middle")
    yield Words((LEFT + right) / 2, bottom + 36, "tokens of one sequence", anchor="middle")


def _levels(picture: Picture) -> Iterator[Mark]:
    _, y = _scales(picture)
    for name, size in picture.levels:
        yield Stroke(((LEFT, y(size)), (WIDTH - RIGHT, y(size))), MEMORY, dashed=True)
        yield Words(LEFT + 6, y(size) - 4, f"{name} {amount(size)}", MEMORY)


def _curves(picture: Picture) -> Iterator[Mark]:
    """Lines, and at the right end of each its name; equal lines are one, with all their names."""
    x, y = _scales(picture)
    names: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for curve in picture.curves:
        names.setdefault(curve.points, []).append(curve.name)
    ordered = sorted(names, key=lambda points: points[-1][1], reverse=True)
    places = spread([y(points[-1][1]) for points in ordered], LABEL_GAP)
    for index, (points, place) in enumerate(zip(ordered, places, strict=True)):
        colour = COLOURS[index % len(COLOURS)]
        yield Stroke(tuple((x(tokens), y(size)) for tokens, size in points), colour, 1.8)
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


def _matplotlib() -> Any:
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError as failure:
        raise MissingExtra(
            "plot: a PNG is drawn by matplotlib, which is not installed: pip install matplotlib; "
            "a file ending in .svg needs nothing more"
        ) from failure


def _write_png(picture: Picture, path: str) -> None:
    figure = _matplotlib().Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    axes.axis("off")
    points = 72 / DPI  # of a pixel
    for mark in marks(picture):
        if isinstance(mark, Stroke):
            xs, ys = zip(*mark.points, strict=True)
            style = "--" if mark.dashed else "-"
            axes.plot(xs, ys, style, color=mark.colour, linewidth=mark.width * points)
        else:
            axes.text(
                mark.x,
                mark.y,
                mark.text,
                color=mark.colour,
                ha={"start": "left", "middle": "center", "end": "right"}[mark.anchor],
                fontsize=(TITLE_FONT if mark.title else FONT) * points,
                fontweight="bold" if mark.title else "normal",
            )
    figure.savefig(path)
