"""The chart of ``onward kv --plot``: the bytes of sequences, and the file in the documents.

test_plotting.py tests the drawing of lines and the writing of files.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onward.cli import main
from onward.lab.kv.curves import chart
from onward.lab.kv.models import read_subject
from onward.lab.kv.report import calculate
from onward.lab.report import Chart, marks, svg
from onward.lab.report.charts import RIGHT
from onward.lab.report.marks import HEIGHT, WIDTH, Stroke, Words

SVG = "{http://www.w3.org/2000/svg}"
GIB = 2**30


def plotted(name: str = "llama-3.1-8b", **options: object) -> Chart:
    subject = read_subject(name, "auto")
    return chart(subject, calculate(subject, memory=24 * GIB, **options))  # type: ignore[arg-type]


def test_curves_are_the_bytes_of_sequences() -> None:
    found = plotted()
    curves = {curve.name: dict(curve.points) for curve in found.curves}
    assert [*curves] == [
        *("f32", "f16", "bf16", "int8", "turbo8v4", "q4_0", "turbo4", "turbo3", "turbo2")
    ]
    assert curves["f16"][4096] == 512 * 2**20
    assert curves["int8"][131072] == 16 * 1024 * (10 * 128 + 8182 * 65)
    assert [*curves["f16"]] == [1024 << doubling for doubling in range(8)]
    assert found.levels[0] == ("memory", 24 * GIB)
    assert found.levels[1][0] == "beside the weights"


def test_a_single_length_has_an_axis() -> None:
    (curve,) = plotted(contexts=[4096], kv_dtypes=["f16"]).curves
    assert [tokens for tokens, _ in curve.points] == [256, 512, 1024, 2048, 4096]


def test_equal_lines_are_drawn_once_with_both_names() -> None:
    found = plotted(kv_dtypes=["f16", "bf16", "turbo4"])
    assert [mark.text for mark in marks(found) if isinstance(mark, Words)][-2:] == [
        "f16, bf16",
        "turbo4",
    ]


def test_marks_are_inside_the_frame_and_names_do_not_overlap() -> None:
    places = []
    for mark in marks(plotted()):
        points = mark.points if isinstance(mark, Stroke) else ((mark.x, mark.y),)
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
        if isinstance(mark, Words) and mark.x > WIDTH - RIGHT + 10:
            places.append(mark.y)
    assert len(places) == 8
    assert all(below - above >= 13.99 for above, below in pairwise(places))


def test_svg_is_xml_with_the_names_in_it() -> None:
    root = ElementTree.fromstring(svg(plotted()))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert texts[0] == "llama-3.1-8b: KV cache of one sequence"
    assert {"f32", "f16, bf16", "turbo2", "131,072", "1 GiB"} <= set(texts)
    assert len(list(root.iter(f"{SVG}polyline"))) > 8


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cache.svg"
    assert main(["kv", "llama-3.1-8b", "--memory", "24GiB", "--plot", str(path)]) == 0
    assert capsys.readouterr().out.startswith("llama-3.1-8b: 32 layers")
    assert path.read_text() == svg(plotted())


def test_the_picture_in_the_document_is_up_to_date() -> None:
    path = Path(__file__).parents[2] / "docs" / "plots" / "kv-llama-3.1-8b.svg"
    assert path.read_text(encoding="utf-8") == svg(plotted())


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nowhere" / "cache.svg"
    assert main(["kv", "llama-3.1-8b", "--plot", str(path)]) == 1
    assert "cannot write: No such file or directory" in capsys.readouterr().err
