"""The picture of ``onward kv --plot``: marks at the right places, and what cannot be written."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onward.cli import main
from onward.kv.curves import picture
from onward.kv.models import read_subject
from onward.kv.plot import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Curve,
    Picture,
    Stroke,
    Words,
    marks,
    spread,
    svg,
    write,
)
from onward.kv.report import calculate

SVG = "{http://www.w3.org/2000/svg}"
GIB = 2**30


def plotted(name: str = "llama-3.1-8b", **options: object) -> Picture:
    subject = read_subject(name, "auto")
    return picture(subject, calculate(subject, memory=24 * GIB, **options))  # type: ignore[arg-type]


def test_curves_are_the_bytes_of_sequences() -> None:
    found = plotted()
    curves = {curve.name: dict(curve.points) for curve in found.curves}
    assert [*curves] == [
        *("f32", "f16", "bf16", "int8", "turbo8v4", "q4_0", "turbo4", "turbo3", "turbo2")
    ]
    assert curves["f16"][4096] == 512 * 2**20
    assert curves["int8"][131072] == 16 * 1024 * (10 * 128 + 8182 * 68)
    assert [*curves["f16"]] == [1024 << doubling for doubling in range(8)]
    assert found.levels[0] == ("memory", 24 * GIB)
    assert found.levels[1][0] == "beside the weights"


def test_one_length_has_an_axis_too() -> None:
    (curve,) = plotted(contexts=[4096], kv_dtypes=["f16"]).curves
    assert [tokens for tokens, _ in curve.points] == [256, 512, 1024, 2048, 4096]


def test_both_axes_are_logarithmic() -> None:
    found = Picture("t", (Curve("a", ((1, 4), (4, 16), (16, 64))),), (("memory", 16),))
    drawn = list(marks(found))
    (line,) = (mark for mark in drawn if isinstance(mark, Stroke) and len(mark.points) == 3)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    middle = ((LEFT + right) / 2, (TOP + bottom) / 2)
    assert line.points == ((LEFT, bottom), pytest.approx(middle), pytest.approx((right, TOP)))
    (level,) = (mark for mark in drawn if isinstance(mark, Stroke) and mark.dashed)
    assert [y for _, y in level.points] == pytest.approx([middle[1]] * 2)
    texts = [mark.text for mark in drawn if isinstance(mark, Words)]
    assert texts == ["t", "4 B", "16 B", "64 B", *("1", "4", "16"), *texts[7:]]
    assert texts[7:] == ["tokens of one sequence", "memory 16 B", "a"]


def test_equal_lines_are_one_with_both_names() -> None:
    found = plotted(kv_dtypes=["f16", "bf16", "turbo4"])
    assert [mark.text for mark in marks(found) if isinstance(mark, Words)][-2:] == [
        "f16, bf16",
        "turbo4",
    ]


def test_everything_is_inside_the_frame_and_no_name_on_another() -> None:
    places = []
    for mark in marks(plotted()):
        points = mark.points if isinstance(mark, Stroke) else ((mark.x, mark.y),)
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
        if isinstance(mark, Words) and mark.x > WIDTH - RIGHT + 10:
            places.append(mark.y)
    assert len(places) == 8
    assert all(below - above >= 13.99 for above, below in pairwise(places))


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


def test_svg_is_xml_with_the_names_in_it() -> None:
    root = ElementTree.fromstring(svg(Picture("a <b> & c", plotted().curves, ())))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts[0] == "a <b> & c"
    assert {"f32", "f16, bf16", "turbo2", "131,072", "1 GiB"} <= set(texts)
    assert len(list(root.iter(f"{SVG}polyline"))) > 8


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cache.svg"
    assert main(["kv", "llama-3.1-8b", "--memory", "24GiB", "--plot", str(path)]) == 0
    assert capsys.readouterr().out.startswith("llama-3.1-8b: 32 layers")
    assert path.read_text() == svg(plotted())


def test_the_document_s_picture_is_the_one_that_is_drawn() -> None:
    path = Path(__file__).parent.parent / "docs" / "plots" / "kv-llama-3.1-8b.svg"
    assert path.read_text(encoding="utf-8") == svg(plotted())


def test_png_needs_matplotlib(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    path = tmp_path / "cache.png"
    assert main(["kv", "llama-3.1-8b", "--plot", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and not path.exists()
    assert "pip install matplotlib; a file ending in .svg needs nothing more" in err


def test_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "cache.png"
    write(plotted(), str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nowhere" / "cache.svg"
    assert main(["kv", "llama-3.1-8b", "--plot", str(path)]) == 1
    assert "cannot write: No such file or directory" in capsys.readouterr().err
