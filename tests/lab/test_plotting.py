"""Charts: the positions of marks in the frame, as SVG and as PNG, and refusals."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onward.errors import Error, InvalidArgument, MissingExtra
from onward.lab.counts.amounts import amount
from onward.lab.report import Chart, Curve, check_path, marks, svg, write
from onward.lab.report.charts import BOTTOM, LEFT, RIGHT, TOP, spread
from onward.lab.report.marks import HEIGHT, WIDTH, Dot, Stroke, Words

SVG = "{http://www.w3.org/2000/svg}"
LINE = Curve("a", ((1, 4), (4, 16), (16, 64)))
CHART = Chart("t", "tokens", (LINE,), lambda number: f"{number:g} B", (("memory", 16),))


def words(chart: Chart) -> list[str]:
    return [mark.text for mark in marks(chart) if isinstance(mark, Words)]


def test_both_axes_are_logarithmic() -> None:
    drawn = list(marks(CHART))
    (line,) = (mark for mark in drawn if isinstance(mark, Stroke) and len(mark.points) == 3)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    middle = ((LEFT + right) / 2, (TOP + bottom) / 2)
    assert line.points == ((LEFT, bottom), pytest.approx(middle), pytest.approx((right, TOP)))
    (level,) = (mark for mark in drawn if isinstance(mark, Stroke) and mark.dashed)
    assert [y for _, y in level.points] == pytest.approx([middle[1]] * 2)
    assert words(CHART) == [
        *("t", "4 B", "16 B", "64 B", "1", "4", "16"),
        *("tokens", "memory 16 B", "a"),
    ]


def test_ticks_are_powers_of_the_step_around_all_numbers() -> None:
    chart = replace(CHART, step=2, levels=(), curves=(Curve("a", ((1, 0.3), (2, 3.0))),))
    assert words(chart)[1:6] == ["0.25 B", "0.5 B", "1 B", "2 B", "4 B"]
    ends = [mark.points for mark in marks(chart) if isinstance(mark, Stroke)]
    assert ends[0][0][1] == HEIGHT - BOTTOM  # the lowest tick is at the bottom
    assert ends[4][0][1] == pytest.approx(TOP)


def test_dots_are_where_the_line_bends() -> None:
    assert not [mark for mark in marks(CHART) if isinstance(mark, Dot)]
    drawn = list(marks(replace(CHART, dots=True)))
    (line,) = (mark for mark in drawn if isinstance(mark, Stroke) and len(mark.points) == 3)
    dots = [mark for mark in drawn if isinstance(mark, Dot)]
    assert tuple((dot.x, dot.y) for dot in dots) == line.points
    assert {dot.colour for dot in dots} == {line.colour}
    circles = list(ElementTree.fromstring(svg(replace(CHART, dots=True))).iter(f"{SVG}circle"))
    assert [float(circle.get("cx", "")) for circle in circles] == pytest.approx(
        [x for x, _ in line.points], abs=0.05
    )


def test_one_point_is_a_dot_in_the_frame() -> None:
    chart = replace(CHART, dots=True, curves=(Curve("a", ((7, 4),)),), levels=())
    (dot,) = (mark for mark in marks(chart) if isinstance(mark, Dot))
    assert (dot.x, dot.y) == (LEFT, HEIGHT - BOTTOM)


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], []),
        ([3.0, 50.0], [3.0, 50.0]),
        ([10.0, 12.0], [6.0, 16.0]),
        ([10.0, 12.0, 17.0], [3.0, 13.0, 23.0]),
        ([0.0, 0.0, 100.0], [-5.0, 5.0, 100.0]),
    ],
)
def test_names_are_spread(places: list[float], expected: list[float]) -> None:
    assert spread(places, 10) == pytest.approx(expected)


def test_svg_is_xml_on_an_opaque_ground() -> None:
    """A page may be dark: the letters are dark as well."""
    root = ElementTree.fromstring(svg(replace(CHART, title="a <b> & c")))
    assert next(text.text for text in root.iter(f"{SVG}text")) == "a <b> & c"
    (ground,) = root.iter(f"{SVG}rect")
    assert root[0] is ground
    assert [ground.get(name) for name in ("width", "height", "fill")] == ["100%", "100%", "white"]


@pytest.mark.parametrize("name", ["a.pdf", "svg", "a.svg.gz", ""])
def test_other_kinds_of_files_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^plot: is .*, expected a name ending in \.svg or"):
        check_path(name)


def test_png_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    path = tmp_path / "chart.png"
    reported = "pip install matplotlib; a file ending in .svg needs nothing more"
    with pytest.raises(MissingExtra, match=reported):
        check_path(str(path))
    with pytest.raises(MissingExtra, match=reported):
        write(CHART, str(path))
    assert not path.exists()
    write(CHART, str(tmp_path / "chart.svg"))
    assert (tmp_path / "chart.svg").read_text(encoding="utf-8") == svg(CHART)


@pytest.mark.parametrize("name", ["chart.png", "CHART.PNG"])
def test_png(tmp_path: Path, name: str) -> None:
    """White at the corner, and the line's colour at its middle."""
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("matplotlib.image")
    path = tmp_path / name
    write(replace(CHART, levels=(), dots=True), str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
    pixels = image.imread(path)
    assert pixels.shape[:2] == (HEIGHT, WIDTH)
    assert [*pixels[1, 1]] == [1, 1, 1, 1]
    x, y = (LEFT + WIDTH - RIGHT) // 2, (TOP + HEIGHT - BOTTOM) // 2
    colour = [int("#1b4f72"[1 + 2 * i : 3 + 2 * i], 16) / 255 for i in range(3)]
    assert [*pixels[y, x, :3]] == pytest.approx(colour, abs=0.02)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    for suffix in (".svg", *((".png",) if _matplotlib() else ())):
        with pytest.raises(Error, match="cannot write: No such file or directory"):
            write(CHART, str(tmp_path / "nowhere" / f"chart{suffix}"))


def _matplotlib() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def overlapping(chart: Chart) -> list[str]:
    """Pairs of texts whose boxes overlap, and texts that leave the frame."""
    drawn = [mark for mark in marks(chart) if isinstance(mark, Words)]
    found = []
    for index, mark in enumerate(drawn):
        left, top, right, bottom = mark.box
        if left < 0 or top < 0 or right > WIDTH or bottom > HEIGHT:
            found.append(f"{mark.text!r} leaves the frame")
        for other in drawn[:index]:
            x0, y0, x1, y1 = other.box
            if left < x1 and x0 < right and top < y1 and y0 < bottom:
                found.append(f"{other.text!r} and {mark.text!r}")
    return found


def test_the_check_finds_texts_that_overlap() -> None:
    names = tuple(Curve(f"{index}", ((1, 4), (4, 16 + index))) for index in range(60))
    assert overlapping(replace(CHART, curves=names))  # more names than the frame has lines


@pytest.mark.parametrize("low", [1, 300, 2**20])
@pytest.mark.parametrize("reach", [1.01, 3, 1e3, 1e9])
@pytest.mark.parametrize("step", [2, 4, 10])
@pytest.mark.parametrize("curves", [1, 2, 9])
def test_no_text_overlaps_another(low: float, reach: float, step: int, curves: int) -> None:
    """Curves that end close together at the top, in the middle or at the bottom, and levels close
    to each other. For a small model in a large memory, all names lie in one corner."""
    for end in (low, low * math.sqrt(reach), low * reach):
        lines = tuple(
            Curve(f"curve {index}", ((1, low), (131072, end * (1 + index / 1000))))
            for index in range(curves)
        )
        levels = (("memory", low * reach), ("beside the weights", low * reach * 0.99))
        chart = Chart("title", "tokens", lines, lambda n: amount(round(n)), levels, step)
        assert overlapping(chart) == []


def test_a_long_name_is_cut_to_the_margin() -> None:
    chart = replace(CHART, curves=(Curve("python=/opt/other/bin/python,cpu:bf16", LINE.points),))
    assert words(chart)[-1].startswith("python=/opt") and words(chart)[-1].endswith("…")
    assert overlapping(chart) == []


def test_a_fixed_colour_stays_with_its_curve() -> None:
    """The colour does not depend on the order of the ends. Equal lines of two colours stay two, the
    second dashed over the first."""
    a, b = Curve("a", ((1, 4), (4, 64)), "#111111"), Curve("b", ((1, 4), (4, 16)), "#222222")
    for pair in ((a, b), (replace(a, points=b.points), replace(b, points=a.points))):
        drawn = list(marks(replace(CHART, curves=pair, levels=())))
        found = {mark.text: mark.colour for mark in drawn if isinstance(mark, Words)}
        assert (found["a"], found["b"]) == ("#111111", "#222222")
    same = list(marks(replace(CHART, curves=(a, replace(b, points=a.points)), levels=())))
    lines = [mark for mark in same if isinstance(mark, Stroke) and mark.width == 1.8]
    assert [(line.colour, line.dashed) for line in lines] == [
        ("#111111", False),
        ("#222222", True),
    ]
