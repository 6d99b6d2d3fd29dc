"""The groups of instruction sets in the kernel tests equal the tables of csrc/cpu/select.cpp."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builders.instruction_sets import ISAS, SAME_SOURCE

SELECT = Path(__file__).parents[2] / "csrc" / "cpu" / "select.cpp"
CANDIDATE = re.compile(r'\{"(\w+)",[^,]+,\s*([\w:]+)\(\),\s*([\w:]+)\(\),\s*([\w:]+)\(\)\}')
PARTS = ("floats", "bf16", "bytes")


def tables() -> list[dict[str, str]]:
    """The rows of the table in select.cpp: the name, and the function that gives each part."""
    found = [
        dict(zip(("name", *PARTS), row, strict=True))
        for row in CANDIDATE.findall(SELECT.read_text(encoding="utf-8"))
    ]
    assert found[0]["name"] == "generic", "the oracle is the first row"
    return found


@pytest.mark.parametrize("part", PARTS)
def test_groups_of_one_source_equal_the_tables_of_the_core(part: str) -> None:
    """Instruction sets form a group if they take a part from the same function."""
    groups: dict[str, list[str]] = {}
    for row in tables()[1:]:
        groups.setdefault(row[part], []).append(row["name"])
    assert sorted(map(tuple, groups.values())) == sorted(SAME_SOURCE[part])


def test_every_available_instruction_set_has_a_row() -> None:
    names = [row["name"] for row in tables()]
    assert [name for name in names if name in ISAS] == ISAS
