"""Draws mean KL by bits per value as SVG, with one line for each text, from kv_numerics.py.

The line goes through single codecs. The reference codec has a hollow circle and is not on the line.
Pairs of codecs are left out, because they would cover other points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from kv_tables import YARDSTICK, Row

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 80, 90, 50, 50  # margins
COLOURS = ("#1b4f72", "#a04000", "#2f6f4f")
TEXT, GRID = "#222222", "#dddddd"
MOST_BITS = 9


def chart(rows: Sequence[Row], setting: str) -> str:
    """The whole chart of one setting."""
    shown = [
        row
        for row in rows
        if row.setting == setting and row.bits <= MOST_BITS and "/" not in row.kv_dtype
    ]
    if not shown:
        raise SystemExit(f"plot: nothing was measured with {setting}, expected some rows")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            *_marks(shown),
            "</svg>\n",
        ]
    )


class _Frame:
    """The axes: bits to the right, the logarithm of the KL upwards, between two powers of ten."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.low = math.floor(math.log10(min(row.kl_mean for row in rows)))
        self.high = math.ceil(math.log10(max(row.kl_mean for row in rows)))
        self.first = math.floor(min(row.bits for row in rows))

    def x(self, bits: float) -> float:
        share = (bits - self.first) / max(MOST_BITS - self.first, 1)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, kl: float) -> float:
        share = (math.log10(kl) - self.low) / max(self.high - self.low, 1)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _marks(rows: Sequence[Row]) -> Iterator[str]:
    frame = _Frame(rows)
    bold = 'font-weight="bold" font-size="13"'
    yield _words(LEFT, 24, "mean KL divergence from exact keys and values, nats a token", bold)
    yield from _grid(frame)
    for kv_dtype in dict.fromkeys(row.kv_dtype for row in rows):
        of_it = [row for row in rows if row.kv_dtype == kv_dtype]
        top = min(frame.y(row.kl_mean) for row in of_it)
        yield _words(frame.x(of_it[0].bits) + 8, top - 6, kv_dtype, 'font-weight="bold"')
    for index, text in enumerate(dict.fromkeys(row.text for row in rows)):
        colour = COLOURS[index % len(COLOURS)]
        yield from _line(frame, [row for row in rows if row.text == text], colour)
        y = TOP + 16 + 16 * index
        yield _words(WIDTH - RIGHT - 70, y, text, f'fill="{colour}" font-weight="bold"', None)


def _grid(frame: _Frame) -> Iterator[str]:
    for power in range(frame.low, frame.high + 1):
        y = frame.y(10.0**power)
        yield _stroke(((LEFT, y), (WIDTH - RIGHT, y)), GRID, 1)
        yield _words(LEFT - 8, y + 4, f"{10.0**power:g}", 'text-anchor="end"')
    for bits in range(frame.first, MOST_BITS + 1):
        x = frame.x(bits)
        yield _stroke(((x, TOP), (x, HEIGHT - BOTTOM)), GRID, 1)
        yield _words(x, HEIGHT - BOTTOM + 16, str(bits), 'text-anchor="middle"')
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield _words(middle, HEIGHT - 14, "bits a value, scales included", 'text-anchor="middle"')


def _line(frame: _Frame, rows: Sequence[Row], colour: str) -> Iterator[str]:
    ours = sorted((row for row in rows if row.kv_dtype != YARDSTICK), key=lambda row: row.bits)
    yield _stroke([(frame.x(row.bits), frame.y(row.kl_mean)) for row in ours], colour, 1.8)
    for row in rows:
        fill = "white" if row.kv_dtype == YARDSTICK else colour
        yield (
            f'<circle cx="{frame.x(row.bits):.1f}" cy="{frame.y(row.kl_mean):.1f}" r="3.5" '
            f'fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
        )


def _stroke(points: Sequence[tuple[float, float]], colour: str, width: float) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _words(x: float, y: float, words: str, more: str = "", fill: str | None = TEXT) -> str:
    colour = "" if fill is None else f' fill="{fill}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{colour} {more}>{escape(words)}</text>'
