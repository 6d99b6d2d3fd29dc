"""The tables of options: each fact is written once, and all derived files and structs agree."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from builders.c_interface import STRUCTS, struct
from builders.core_engine import submit
from builders.distributions import table_engine
from onward import _core
from onward.options.generation import CORE_OPTIONS
from onward.options.table import BY_NAME, OPTIONS

ROOT = Path(__file__).parents[2]
TABLES = _core.generation_options()
ROWS = {row["name"]: row for rows in TABLES.values() for row in rows}
# Members of the C structs that are not numbers of a table.
BESIDE_THE_NUMBERS = {
    *("size", "order", "seed", "stream", "logit_bias", "num_logit_bias", "suppress_tokens"),
    *("num_suppress_tokens", "allowed_token_ids", "num_allowed_token_ids", "early_stopping"),
}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_derived_files_are_up_to_date() -> None:
    for path, text in script("generation_options").written().items():
        assert path.read_text(encoding="utf-8") == text, "run: python scripts/generation_options.py"


def test_names_are_unique() -> None:
    assert len(ROWS) == sum(map(len, TABLES.values()))
    assert len(BY_NAME) == len(OPTIONS)


def test_python_has_every_row_of_the_core() -> None:
    assert {name: [o.name for o in rows] for name, rows in CORE_OPTIONS.items()} == {
        name: [row["name"] for row in rows] for name, rows in TABLES.items()
    }
    assert ROWS.keys() <= BY_NAME.keys()


@pytest.mark.parametrize(
    ("kind", "tables"), [("sampling", ("draw", "scores")), ("beams", ("beams",))]
)
def test_every_number_of_a_c_struct_has_a_row_and_its_default(
    kind: str, tables: tuple[str, ...]
) -> None:
    rows = {row["name"]: row for table in tables for row in TABLES[table]}
    made = struct(kind)
    members = {name for name, _ in STRUCTS[f"onward_{kind}"]._fields_} - BESIDE_THE_NUMBERS
    numbers = {n for n, row in rows.items() if row["kind"] in ("number", "integer")}
    # min_new_tokens is a member of onward_request.
    assert members == numbers - {"min_new_tokens"}
    for name in members:
        assert getattr(made, name) == rows[name]["default"], name


def outside(row: dict[str, Any]) -> list[float]:
    wrong = []
    if row["low"] > -(2**63):
        wrong.append(row["low"] if row["above_low"] else row["low"] - 1)
    if row["high"] < 2**31 - 1:
        wrong.append(row["high"] + 1)
    if row["choices"]:
        wrong.append((row["low"] + row["high"]) / 2)
    return wrong


@pytest.mark.parametrize(
    "row", [r for r in ROWS.values() if r["kind"] in ("number", "integer")], ids=lambda r: r["name"]
)
def test_the_engine_refuses_numbers_outside_the_range_of_the_row(row: dict[str, Any]) -> None:
    engine = table_engine([-1.0, -1.0])
    for value in outside(row):
        number = int(value) if row["kind"] == "integer" else value
        options = {row["name"]: number}
        if row in TABLES["beams"]:
            beams = _core.BeamOptions()
            setattr(beams, row["name"], number)
            options = {"beams": beams}
        with pytest.raises(ValueError, match=rf"^{row['name']}: found .*, expected "):
            submit(engine, [0], **options)
