"""The figures of ``benchmarks/kv_numerics.py``: ratios, bounds, tables, the chart, the texts.

Nothing is measured or downloaded.
"""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import kv_texts
from kv_chart import chart
from kv_tables import Row, promises, tables


def row(kv_dtype: str, kl: float, text: str = "a", setting: str = "default") -> Row:
    return Row(text, kv_dtype, setting, 128, True, 4.25, 10, kl, 0.1, 0.2, 0.3, 0.99, 12.0)


def test_ratios_compare_the_same_text_and_setting() -> None:
    rows = [
        row("turbo4", 0.25),
        row("q4_0", 2.0, "b"),
        row("q4_0", 4.0, setting="exposed"),
        row("q4_0", 1.0),
    ]
    assert rows[0].ratio(rows) == 0.25
    assert rows[0].ratio(rows[:-1]) is None


@pytest.mark.parametrize(
    "kv_dtype, kl, kept",
    [
        ("turbo8v4", 0.1, True),
        ("turbo8v4", 0.11, False),
        ("turbo4", 0.4, True),
        ("turbo4", 0.41, False),
        ("turbo3", 2.5, True),
        ("turbo3", 2.6, False),
        ("int8", 0.00049, True),
        ("int8", 0.0005, False),
    ],
)
def test_results_are_checked_against_the_promised_bounds(
    kv_dtype: str, kl: float, kept: bool
) -> None:
    found = promises([row("q4_0", 1.0), row(kv_dtype, kl)], "default")
    assert [each.kept for each in found] == [kept]


def test_other_settings_have_no_promised_bounds() -> None:
    rows = [row("q4_0", 1.0, setting="exposed"), row("int8", 1.0, setting="exposed")]
    assert promises(rows, "default") == []


def test_tables_have_a_row_for_each_kv_dtype_and_a_column_for_each_text() -> None:
    rows = [row("q4_0", 1.0), row("q4_0", 2.0, "b"), row("turbo4", 0.5, "b")]
    lines = tables(rows, markdown=True).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert ["kv_dtype", "bits a value", "a", "b"] in cells
    assert ["q4_0", "4.25", "1 (1.00)", "2 (1.00)"] in cells
    assert ["turbo4", "4.25", "", "0.5 (0.25)"] in cells


def test_the_picture_is_xml_with_a_circle_for_each_row() -> None:
    rows = [row("q4_0", 1.0), row("turbo4", 0.5), row("turbo4/f32", 0.4), row("q4_0", 1.0, "b")]
    found = ElementTree.fromstring(chart(rows, "default"))
    assert len(found.findall("{http://www.w3.org/2000/svg}circle")) == 3


def test_strings_of_an_r_database(tmp_path: Path) -> None:
    """The database has two objects. The second one has the paragraphs."""

    def packed(strings: list[str]) -> bytes:
        raw = b"X\n" + b"\x00\x00\x00\x10" + struct.pack(">i", len(strings))
        for each in strings:
            raw += b"\x00\x04\x00\x09" + struct.pack(">i", len(each)) + each.encode()
        return struct.pack(">I", len(raw)) + zlib.compress(raw)

    path = tmp_path / "texts"
    path.write_bytes(packed(["EMMA", "no"]) + packed(["PERSUASION", "", "one ", "two", "", "3"]))
    assert kv_texts._persuasion(path) == "PERSUASION\n\none two\n\n3"


def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    (tmp_path / "austen.txt").write_text("something else", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"is another text, SHA-256 .* expected f2ae31f4"):
        kv_texts.find(tmp_path)


def test_without_apt_the_error_gives_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match=r"kv_texts\.py FOLDER, and copy its \.txt files"):
        kv_texts.find(tmp_path)
