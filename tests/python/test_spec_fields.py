"""The fields of DecoderSpec: the core's table and Python's class agree, and faults are named."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

import pytest

from onward import _core
from onward.errors import InvalidArgument
from onward.spec import (
    DecoderSpec,
    ExpertsSpec,
    NormSpec,
    RopeSpec,
    from_fields,
    one_layer,
    to_fields,
)

SPEC = DecoderSpec(
    architecture="llama",
    vocab_size=300,
    hidden_size=96,
    intermediate_size=136,
    num_layers=3,
    num_heads=6,
    num_kv_heads=2,
    head_dim=4,
    norm_eps=1e-5,
    max_context=512,
    rope=RopeSpec((1.0, 0.01), attention_factor=1.5),
    qkv_bias=True,
    windows=(0, 16, 32),
)
TYPES = {str: "str", bool: "bool", int: "int", float: "float"}


def rows_of(kind: type, prefix: str = "") -> list[tuple[str, str, bool, object]]:
    """The table of a dataclass, in the core's form."""
    rows: list[tuple[str, str, bool, object]] = []
    types = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        type_, name = types[field.name], prefix + field.name
        required = field.default is dataclasses.MISSING
        default = None if required else field.default
        if dataclasses.is_dataclass(type_):
            rows += [(name, "struct", required, None), *rows_of(type_, name + ".")]
        elif typing.get_origin(type_) is tuple:
            item, rest = typing.get_args(type_)
            assert rest is ...
            default = None if required else list(field.default)
            rows.append((name, f"list[{TYPES.get(item, 'struct')}]", required, default))
        else:
            rows.append((name, TYPES[type_], required, default))
    return rows


def changed(**changes: Any) -> dict[str, Any]:
    fields = to_fields(SPEC)
    for name, value in changes.items():
        *path, last = name.split("__")
        target = fields[path[0]] if path else fields
        if value is ...:
            del target[last]
        else:
            target[last] = value
    return fields


class TestTable:
    def test_the_class_has_the_core_s_names_types_and_defaults(self) -> None:
        assert rows_of(DecoderSpec) == _core.spec_table()

    def test_an_absent_field_has_its_default(self) -> None:
        required = {name for name, _, needed, _ in _core.spec_table() if needed}
        least = {name: value for name, value in to_fields(SPEC).items() if name in required}
        least["rope"] = {"inv_freq": SPEC.rope.inv_freq}
        _core.DecoderSpec(least)
        spec = from_fields(least)
        assert spec.windows == ()
        assert spec.rope == RopeSpec((1.0, 0.01))

    def test_fields_come_back_from_json(self) -> None:
        spec = dataclasses.replace(
            SPEC,
            other_ropes=(RopeSpec((1.0, 0.5)), RopeSpec((0.5, 0.25), theta=5.0)),
            layer_ropes=(0, 1, 2),
            norms=NormSpec("layer", bias=True),
            experts=ExpertsSpec(count=4, chosen=2, intermediate_size=8),
        )
        for each in (SPEC, spec):
            _core.DecoderSpec(to_fields(each))
            assert from_fields(json.loads(json.dumps(to_fields(each)))) == each

    def test_fields_at_their_default_are_not_written(self) -> None:
        assert "norms" not in to_fields(SPEC)


class TestFaults:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"num_layers": ...}, "spec: num_layers is missing"),
            ({"rope__inv_freq": ...}, "spec: rope.inv_freq is missing"),
            ({"depth": 3}, "spec: depth is not a field"),
            ({"rope__depth": 3}, "spec: rope.depth is not a field"),
            ({"num_layers": "3"}, "spec: num_layers is '3', expected another type"),
            ({"rope": 7}, "spec: rope is 7, expected another type"),
            ({"num_layers": 0}, "spec: num_layers is 0, expected 1 to 4096"),
            ({"num_layers": 1 << 40}, "spec: num_layers is 1099511627776, expected 1 to 4096"),
            ({"num_kv_heads": 0}, "spec: num_kv_heads is 0, expected 1 to"),
            ({"num_kv_heads": 4}, "spec: num_heads is 6, expected a multiple of num_kv_heads"),
            ({"num_kv_heads": 12}, "spec: num_heads is 6, expected a multiple of num_kv_heads"),
            ({"head_dim": 3}, "spec: head_dim is 3, expected an even number"),
            ({"head_dim": 6}, "spec: rope.inv_freq length is 2, expected 3"),
            ({"norm_eps": -1.0}, "spec: norm_eps is -1.0.*, expected at least 0"),
            ({"norm_eps": float("nan")}, "spec: norm_eps is nan, expected a finite number"),
            ({"rope__inv_freq": [1.0, 1e300]}, "spec: rope.inv_freq is inf, expected a finite"),
            ({"rope__dynamic_factor": 0.5}, "spec: rope.dynamic_factor is 0.5.*, expected 0, or"),
            ({"other_ropes": [{"inv_freq": [1.0]}]}, r"other_ropes\[0\].inv_freq length is 1, exp"),
            ({"other_ropes": [{}]}, "spec: other_ropes.inv_freq is missing"),
            (
                {"norms": {"kind": "batch"}},
                "spec: norms.kind is 'batch', expected one of rms, layer",
            ),
            (
                {"residual": "none"},
                "spec: residual is 'none', expected one of sequential, parallel",
            ),
            ({"windows": [1]}, "spec: windows length is 1, expected 3"),
            ({"windows": [1, 2, -1]}, "spec: windows is -1, expected 0 to"),
        ],
    )
    def test_the_field_is_named(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidArgument, match=message):
            _core.DecoderSpec(changed(**changes))


class TestOneLayer:
    def test_lists_keep_the_value_of_the_layer(self) -> None:
        layer = one_layer(SPEC, 1, tied_head=True)
        assert (layer.num_layers, layer.windows, layer.tied_head) == (1, (16,), True)
        assert (layer.rope, layer.qkv_bias) == (SPEC.rope, True)

    def test_an_empty_list_stays_empty(self) -> None:
        assert one_layer(dataclasses.replace(SPEC, windows=()), 2).windows == ()
