"""Writes charts as files: SVG by this module, PNG by matplotlib if it is installed.

The background is white and opaque in both, so that charts are legible on light and dark pages.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, BinaryIO
from xml.sax.saxutils import escape

from onward.errors import Error, InvalidArgument, MissingExtra
from onward.files.whole_files import whole_file
from onward.lab.report.charts import COLOURS, GRID, LEVEL, Chart, marks
from onward.lab.report.marks import FONT, HEIGHT, TEXT, TITLE_FONT, WIDTH, Dot, Mark, Stroke
from onward.machine.extras import pip_install
from onward.message_text import label

SUFFIXES = (".svg", ".png")
DPI = 100
DARK_GROUND = "#181818"
_DARK_CURVES = (
    *("#6cb2eb", "#7fc29b", "#d9c25c", "#c39bd3", "#f0a35e", "#5fd0b8", "#a9b7c6", "#d2a8e0"),
    *("#8cc4f0", "#b5bdbd"),
)
# Colour of a chart -> its colour on a dark page.
DARK = {
    **{TEXT: "#e6e6e6", GRID: "#3d3d3d", LEVEL: "#ef8a7d"},
    **dict(zip(COLOURS, _DARK_CURVES, strict=True)),
}


def check_path(path: str) -> None:
    """Check the name of a chart's file.

    Raises InvalidArgument for a suffix outside SUFFIXES, and MissingExtra for a PNG without
    matplotlib.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidArgument(f"plot: is {label(path)}, expected a name ending in .svg or .png")
    if suffix == ".png":
        _matplotlib()


def write(chart: Chart, path: str) -> None:
    """Write the chart as a file. The suffix of the name chooses the format."""
    check_path(path)
    try:
        with whole_file(Path(path)) as part:
            if Path(path).suffix.lower() == ".png":
                _write_png(chart, part.file)
            else:
                part.file.write(svg(chart).encode())
    except OSError as failure:
        raise Error(f"{label(path)}: cannot write: {failure.strerror or failure}") from failure


def dark_style() -> str:
    """CSS rules that make inline charts dark on a dark page.

    They select by the colours that ``svg`` writes. A chart in its own file is not affected.
    """
    rules = [f'svg [fill="white"] {{ fill: {DARK_GROUND} }}']
    for light, dark in DARK.items():
        rules.append(f'svg [stroke="{light}"] {{ stroke: {dark} }}')
        rules.append(f'svg [fill="{light}"] {{ fill: {dark} }}')
    return "\n  ".join(rules)


def svg(chart: Chart) -> str:
    """The chart as SVG."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="{FONT}">',
            '<rect width="100%" height="100%" fill="white"/>',
            *map(_svg_mark, marks(chart)),
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
    if isinstance(mark, Dot):
        return (
            f'<circle cx="{mark.x:.1f}" cy="{mark.y:.1f}" r="{mark.radius}" fill="{mark.colour}"/>'
        )
    look = f' font-weight="bold" font-size="{TITLE_FONT}"' if mark.title else ""
    return (
        f'<text x="{mark.x:.1f}" y="{mark.y:.1f}" fill="{mark.colour}" '
        f'text-anchor="{mark.anchor}"{look}>{escape(mark.text)}</text>'
    )


def _matplotlib() -> Any:
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError as failure:
        raise MissingExtra(
            f"plot: a PNG is drawn by matplotlib, which is not installed: "
            f"{pip_install('matplotlib')}; a file ending in .svg needs nothing more"
        ) from failure


def _write_png(chart: Chart, file: BinaryIO) -> None:
    figure = _matplotlib().Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    axes.axis("off")
    points = 72 / DPI  # of a pixel
    for mark in marks(chart):
        if isinstance(mark, Stroke):
            xs, ys = zip(*mark.points, strict=True)
            style = "--" if mark.dashed else "-"
            axes.plot(xs, ys, style, color=mark.colour, linewidth=mark.width * points)
        elif isinstance(mark, Dot):
            size = 2 * mark.radius * points
            axes.plot([mark.x], [mark.y], "o", color=mark.colour, markersize=size)
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
    # A matplotlibrc may set another background. This one is always white.
    figure.savefig(file, format="png", facecolor="white")
