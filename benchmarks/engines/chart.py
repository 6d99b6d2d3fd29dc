"""Draws results as an SVG bar chart: one panel for each model and measure, one bar for each engine.

A bar is tokens per second; the thin line on it goes from the slowest to the fastest round. The
number next to the bar of another engine is the speed of onward divided by the speed of that engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from engines.figures import Line

NAMES, BARS, NOTES = 170, 300, 170  # widths
PANEL = NAMES + BARS + NOTES
ROW, GAP, TITLE = 18, 8, 34  # heights
OURS, THEIRS, WHISKER, TEXT = "#2f6f4f", "#a9b4bd", "#333333", "#222222"
COLUMNS = 2


def chart(lines: Sequence[Line]) -> str:
    """The whole chart; panels are ordered from left to right, then down."""
    panels: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        panels.setdefault((line.model, line.measure), []).append(line)
    drawn: list[str] = []
    top, height = 0, 0
    for index, ((model, measure), inside) in enumerate(panels.items()):
        column = index % COLUMNS
        if column == 0:
            top, height = top + height, 0
        drawn += _panel(column * PANEL, top, f"{model}, {measure}, tokens/s", inside)
        height = max(height, _height(inside))
    width = PANEL * min(COLUMNS, max(1, len(panels)))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top + height}" '
            f'width="{width}" height="{top + height}" font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _height(lines: Sequence[Line]) -> int:
    precisions = {line.precision for line in lines}
    return TITLE + ROW * len(lines) + GAP * (len(precisions) + 1)


def _panel(left: int, top: int, title: str, lines: Sequence[Line]) -> Iterator[str]:
    yield _text(left + 10, top + 22, title, 'font-weight="bold" font-size="13"')
    scale = BARS / max(line.tokens_per_s.max for line in lines)
    y, precision = top + TITLE, lines[0].precision
    for line in lines:
        if line.precision != precision:
            y, precision = y + GAP, line.precision
        rate = line.tokens_per_s
        x, middle = left + NAMES, y + ROW / 2
        yield _text(x - 6, middle + 4, line.engine, 'text-anchor="end"')
        yield (
            f'<rect x="{x}" y="{y + 2}" width="{rate.median * scale:.1f}" height="{ROW - 4}" '
            f'fill="{OURS if line.is_onward else THEIRS}"/>'
        )
        yield (
            f'<line x1="{x + rate.min * scale:.1f}" x2="{x + rate.max * scale:.1f}" '
            f'y1="{middle}" y2="{middle}" stroke="{WHISKER}"/>'
        )
        note = f"{rate.median:,.0f}"
        if line.ratio is not None:
            note += f"   {line.ratio.median:.2f} ({line.ratio.min:.2f} to {line.ratio.max:.2f})"
        yield _text(x + rate.max * scale + 6, middle + 4, note, 'xml:space="preserve"')
        y += ROW


def _text(x: float, y: float, words: str, more: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{TEXT}" {more}>{escape(words)}</text>'
