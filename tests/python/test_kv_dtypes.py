"""The values of ``kv_dtype``: the codecs that they mean, and wrong values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onward import _core
from onward.errors import ArgumentTypeError, InvalidArgument
from onward.lab.compare import noise
from onward.options.kv_dtypes import CODES, FLOATS, KV_DTYPES, KvDtypes, parse_kv_dtype


@pytest.mark.parametrize(
    ("value", "exact", "expected"),
    [
        ("auto", "bf16", KvDtypes("bf16", "bf16", "bf16")),
        ("f32", "f16", KvDtypes("f32", "f32", "f32")),
        ("int8", "f32", KvDtypes("int8", "int8", "f32")),
        ("turbo8v4", "f16", KvDtypes("int8", "turbo4", "f16")),
        ("turbo3", "bf16", KvDtypes("turbo3", "turbo3", "bf16")),
        ("int8/turbo4", "f16", KvDtypes("int8", "turbo4", "f16")),
        ("f16/turbo4", "bf16", KvDtypes("f16", "turbo4", "f16")),
        ("q4_0/f32", "bf16", KvDtypes("q4_0", "f32", "f32")),
        ("auto/turbo2", "bf16", KvDtypes("bf16", "turbo2", "bf16")),
        ("auto/f16", "f32", KvDtypes("f16", "f16", "f16")),
        ("f16/f16", "f32", KvDtypes("f16", "f16", "f16")),
        (("int8", "turbo4"), "f16", KvDtypes("int8", "turbo4", "f16")),
        (("f32", "auto"), "f16", KvDtypes("f32", "f32", "f32")),
    ],
)
def test_kv_dtypes_resolve_to_codecs(value: Any, exact: str, expected: KvDtypes) -> None:
    assert parse_kv_dtype(value, exact) == expected


def test_names_and_codes() -> None:
    assert set(KV_DTYPES) == {"auto", *FLOATS, *CODES, "turbo8v4"}
    for name in KV_DTYPES[1:]:
        found = parse_kv_dtype(name, "f16")
        assert found.name == name
        assert found.coded == (name not in FLOATS)
    assert parse_kv_dtype("auto", "bf16").name == "bf16"
    assert parse_kv_dtype("int8/turbo4", "bf16").name == "turbo8v4"
    assert parse_kv_dtype("turbo4/int8", "bf16").name == "turbo4/int8"
    assert parse_kv_dtype("auto/turbo4", "bf16").name == "bf16/turbo4"
    assert parse_kv_dtype("f16/turbo4", "f16").coded
    # A name resolves to the same codecs, even if the model's own dtype is another.
    for keys in KV_DTYPES[1:]:
        for values in CODES:
            if keys != "turbo8v4":
                found = parse_kv_dtype((keys, values), "f16")
                assert parse_kv_dtype(found.name, found.exact) == found


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        ("f8", "kv_dtype: is 'f8', expected one of auto, f32, f16, bf16, int8, turbo8v4, q4_0, "),
        ("INT8", "kv_dtype: is 'INT8', expected one of"),
        ("", "kv_dtype: is '', expected one of"),
        ("f16/f32", "kv_dtype: names f16 for keys and f32 for values, expected one float dtype"),
        (("bf16", "f16"), "kv_dtype: names bf16 for keys and f16 for values"),
        ("int8/", "kv_dtype: is '' in 'int8/', expected one of auto, f32, f16, bf16, int8, q4_0"),
        ("int8/turbo5", "kv_dtype: is 'turbo5' in 'int8/turbo5', expected one of"),
        ("turbo8v4/int8", "kv_dtype: is 'turbo8v4' in 'turbo8v4/int8', expected one of"),
        ("int8/int8/int8", "kv_dtype: is 'int8/int8/int8', 3 names, expected one, or two"),
        (("int8",), r"kv_dtype: is ('int8',), 1 names, expected one, or two"),
    ],
)
def test_wrong_combinations_are_refused(value: Any, reported: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_kv_dtype(value, "f16")
    assert str(caught.value).startswith(reported)


@pytest.mark.parametrize("value", [None, 8, True, ["int8", "int8"], ("int8", 4), b"int8"])
def test_unknown_names_are_refused(value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"^kv_dtype: is .*, expected "):
        parse_kv_dtype(value, "f16")


def test_the_dtype_of_exact_blocks_is_a_float() -> None:
    with pytest.raises(InvalidArgument, match="exact: is 'int8', expected one of f32, f16, bf16"):
        parse_kv_dtype("int8", "int8")


class TestEveryCodecIsListed:
    """The core's table is the only list; documents and figures name each of its codecs."""

    ROOT = Path(__file__).parents[2]

    def test_the_names_are_sorted_by_size(self) -> None:
        codes = ("int8", "turbo8v4", "q4_0", "turbo4", "turbo3", "turbo2")
        assert ("auto", "f32", "f16", "bf16", *codes) == KV_DTYPES

    @pytest.mark.parametrize("name", KV_DTYPES)
    def test_documents_name_it(self, name: str) -> None:
        for document in ("docs/cache.md", "docs/command-line.md"):
            assert name in (self.ROOT / document).read_text(), document

    @pytest.mark.parametrize("name", CODES)
    def test_the_c_header_and_the_table_of_sizes_name_it(self, name: str) -> None:
        for file in ("csrc/include/onward/onward_c.h", "docs/kv.md"):
            assert name in (self.ROOT / file).read_text(), file

    def test_compare_has_its_expected_noise(self) -> None:
        assert set(noise.CACHE) == set(KV_DTYPES) - {"auto"}

    def test_the_core_refuses_other_names(self) -> None:
        for name in ("turbo5", "exact ", ""):
            with pytest.raises(InvalidArgument, match="expected exact, int8, q4_0, turbo4, turbo3"):
                _core.kv_vector_bytes(name, 64, True)
