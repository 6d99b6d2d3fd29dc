"""Packs that are damaged, truncated or hostile: a PackError that names the fault, without other
effects."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onward
from builders.core_engine import new_engine
from builders.packs import (
    Parts,
    checksum,
    framed,
    open_pack,
    pack,
    packed_bytes,
    parts_of,
    put_together,
    write_talking,
)
from builders.resources import needs_proc, peak_growth
from onward.errors import IoError, PackError

Change = Callable[[Parts], object]
BIG = 1 << 62


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    model = write_talking(folder / "model", num_layers=1, hidden_size=32, intermediate_size=32)
    (model / "chat_template.jinja").write_text("{# " + "long enough " * 1500 + "#}")
    pack(model, folder / "tiny.onward", dtype="int4")
    return folder / "tiny.onward"


@pytest.fixture
def damaged(good: Path, tmp_path: Path) -> Callable[..., Path]:
    def make(change: Change, **options: Any) -> Path:
        parts = parts_of(good)
        change(parts)
        (tmp_path / "m.onward").write_bytes(put_together(parts, **options))
        return tmp_path / "m.onward"

    return make


def set_entry(name: str, **values: Any) -> Change:
    return lambda parts: parts.header[name].update(values)


def set_spec(**values: Any) -> Change:
    return lambda parts: parts.tell("spec", lambda spec: spec.update(values))


def set_rope(**values: Any) -> Change:
    return lambda parts: parts.tell("spec", lambda spec: spec["rope"].update(values))


def set_text(key: str, text: object) -> Change:
    return lambda parts: parts.metadata.update({key: text})


def set_dtype(name: str, dtype: object) -> Change:
    return lambda parts: parts.tell(
        "dtypes", lambda reported: reported["matrices"].update({name: dtype})
    )


def set_vocabulary(**values: Any) -> Change:
    return lambda parts: parts.tell("vocabulary", lambda reported: reported.update(values))


def swap_places(parts: Parts) -> None:
    a, b = parts.header["embed"], parts.header["layers.0.qkv"]
    a["data_offsets"], b["data_offsets"] = b["data_offsets"], a["data_offsets"]


def overlap(parts: Parts) -> None:
    first, second = (parts.header[name] for name in ("embed", "layers.0.qkv"))
    begin = first["data_offsets"][0]
    size = second["data_offsets"][1] - second["data_offsets"][0]
    second["data_offsets"] = [begin, begin + size]


def grow(parts: Parts) -> None:
    parts.data += b"\0" * 64


def shrink(parts: Parts) -> None:
    del parts.data[-64:]


def drop(name: str) -> Change:
    def change(parts: Parts) -> None:
        """The tensor's bytes become padding."""
        parts.header["padding.x"] = parts.header.pop(name)

    return change


def as_numbers(parts: Parts) -> None:
    entry = parts.header["embed"]
    entry["dtype"], entry["shape"] = "F32", [entry["shape"][0] // 4]


def twice(parts: Parts) -> None:
    parts.metadata["chat_template"] = "{}"


def bad_text(parts: Parts) -> None:
    begin, end = parts.header["text.chat_template"]["data_offsets"]
    parts.data[begin] = 0xFF
    text = bytes(parts.data[begin:end])
    parts.tell("checksums", lambda sums: sums.update({"text.chat_template": checksum(text)}))


REFUSED: list[tuple[str, Change, str]] = [
    ("no metadata", lambda p: p.header.pop("__metadata__"), "has no metadata, expected a pack"),
    ("metadata a list", lambda p: p.header.update(__metadata__=[]), "is array, expected an object"),
    ("metadata a number", set_text("spec", 7), "metadata 'spec': is 7, expected a string"),
    ("no format", lambda p: p.metadata.pop("format"), r"is no pack \(format ''\)"),
    ("format", set_text("format", "x\n" * 99), r"is no pack \(format 'x\?x\?"),
    ("no version", lambda p: p.metadata.pop("pack"), "is a pack of version '', expected '1'"),
    ("version", set_text("pack", "2"), "is a pack of version '2', expected '1': pack the model"),
    ("no layout", lambda p: p.metadata.pop("layout"), "the metadata has no 'layout'"),
    ("layout text", set_text("layout", "one"), "layout is 'one', expected a number"),
    ("layout huge", set_text("layout", "9" * 40), "layout is '9999"),
    ("layout tail", set_text("layout", "1 "), "layout is '1 ', expected a number"),
    ("no spec", lambda p: p.metadata.pop("spec"), "the metadata has no 'spec'"),
    ("spec empty", set_text("spec", ""), "spec: does not begin with"),
    ("spec list", set_text("spec", "[]"), "spec: does not begin with"),
    ("spec cut", set_text("spec", '{"a":'), "spec: is no JSON"),
    ("spec deep", set_text("spec", '{"a":' * 99999), "spec: is nested more than 4 deep"),
    ("spec twice", set_text("spec", '{"a":1,"a":1}'), "spec: has 'a' twice"),
    ("spec NaN", set_spec(norm_eps=float("nan")), "spec: is no JSON"),
    ("spec 1e999", set_text("spec", '{"norm_eps":1e999}'), "spec: is no JSON"),
    ("spec large float", set_spec(norm_eps=1e300), "norm_eps is inf"),
    ("spec text", set_spec(num_layers="1"), "spec.num_layers: is '1', expected an integer"),
    ("spec float", set_spec(num_layers=1.0), "spec.num_layers: is 1.0, expected an integer"),
    ("spec true", set_spec(num_layers=True), "spec.num_layers: is true, expected an integer"),
    ("spec null", set_spec(num_layers=None), "spec.num_layers: is null, expected an integer"),
    ("spec 2^64", set_spec(num_layers=1 << 63), "is 9223372036854775808, expected an integer"),
    ("spec 2^200", set_spec(num_layers=1 << 200), "num_layers: is 1.60.*expected an integer"),
    ("spec flag", set_spec(qk_norm=1), "spec.qk_norm: is 1, expected true or false"),
    ("spec unknown", set_spec(extra=1), "spec: 'extra' is not known to this version"),
    ("spec windows", set_spec(windows=5), "spec.windows: is 5, expected an array"),
    ("spec windows of", set_spec(windows=["a"]), "spec.windows: is 'a', expected an integer"),
    ("spec windows many", set_spec(windows=[1] * 9), "windows length is 9"),
    ("spec windows most", set_spec(windows=[1] * (1 << 21)), "has more than 1048576 values"),
    ("spec rope", set_spec(rope=[]), "spec.rope: is array, expected an object"),
    ("spec rope null", set_rope(inv_freq=[None]), "inv_freq: is null, expected a finite number"),
    ("spec rope short", set_rope(inv_freq=[1.0]), "rope.inv_freq length is 1"),
    ("spec rope big", set_rope(inv_freq=[1e300] * 8), "rope.inv_freq is inf"),
    ("spec layers 0", set_spec(num_layers=0), "num_layers is 0, expected 1 to"),
    ("spec layers -1", set_spec(num_layers=-1), "num_layers is -1, expected 1 to"),
    ("spec layers 2", set_spec(num_layers=2), r"weights: missing layers.1.attention_norm"),
    ("spec layers many", set_spec(num_layers=4096), r"weights: missing layers.1.attention_norm"),
    ("spec layers most", set_spec(num_layers=BIG), "num_layers is 4611686018427387904"),
    ("spec hidden", set_spec(hidden_size=1 << 28), "packed bytes: found .*, expected"),
    ("spec vocab", set_spec(vocab_size=1 << 28), "packed bytes: found .*, expected"),
    ("spec vocab small", set_spec(vocab_size=16), "is 257, expected a token of the vocabulary"),
    ("spec untied", set_spec(tied_head=True), "'head' is not a weight of this model"),
    ("spec biases", set_spec(qkv_bias=True), "missing layers.0.qkv_bias"),
    ("spec heads", set_spec(num_heads=3), "num_heads is 3|packed bytes"),
    ("no dtypes", lambda p: p.metadata.pop("dtypes"), "the metadata has no 'dtypes'"),
    ("dtype unknown", set_dtype("embed", "q9"), "dtypes of 'embed': is 'q9', expected a dtype"),
    ("dtype stored", set_dtype("embed", "q4_k"), "dtype of a matrix: found q4_k, expected"),
    (
        "dtype wrong",
        set_dtype("embed", "f32"),
        "'embed': packed bytes: found",
    ),
    ("dtype number", set_dtype("embed", 1), "is 1, expected a dtype"),
    ("dtypes extra", lambda p: p.tell("dtypes", lambda d: d.update(x=1)), "'x' is not known"),
    ("dtypes no cache", lambda p: p.tell("dtypes", lambda d: d.pop("cache")), "has no 'cache'"),
    (
        "dtype of the cache",
        lambda p: p.tell("dtypes", lambda d: d.update(cache="q8_0")),
        "dtype of the cache: found q8_0, expected",
    ),
    ("no vocabulary", lambda p: p.metadata.pop("vocabulary"), "has no 'vocabulary'"),
    ("bos", set_vocabulary(bos_token_id=-1), "bos_token_id: is -1, expected a token"),
    ("pad", set_vocabulary(pad_token_id=320), "pad_token_id: is 320, expected a token"),
    ("eos", set_vocabulary(eos_token_ids=[BIG]), "eos_token_ids: is 461.*expected a token"),
    ("eos null", set_vocabulary(eos_token_ids=None), "eos_token_ids: is null, expected an array"),
    ("no checksums", lambda p: p.metadata.pop("checksums"), "has no 'checksums'"),
    (
        "checksum short",
        lambda p: p.tell("checksums", lambda sums: sums.update(embed="12")),
        "checksums of 'embed': is '12', expected 8 hexadecimal digits",
    ),
    (
        "checksum sign",
        lambda p: p.tell("checksums", lambda sums: sums.update(embed="-1234567")),
        "expected 8 hexadecimal digits",
    ),
    (
        "checksum of a text",
        lambda p: p.tell("checksums", lambda sums: sums.pop("text.chat_template")),
        "tensor 'text.chat_template' has no checksum",
    ),
    ("text twice", twice, "tensor 'text.chat_template' is in the metadata too"),
    ("text bytes", bad_text, "tensor 'text.chat_template' is not UTF-8"),
    ("no tensor", drop("norm"), "weights: missing norm"),
    ("no entry", lambda p: p.header.update(embed=None), "tensor 'embed': is null, expected an ob"),
    ("entry unknown", set_entry("embed", more=1), "'more' is not known"),
    ("entry dtype", set_entry("embed", dtype="I64"), "has dtype 'I64', expected U8 or F32"),
    ("entry dtype 1", set_entry("embed", dtype=1), "dtype: is 1, expected a string"),
    ("no offsets", lambda p: p.header["embed"].pop("data_offsets"), "has no 'data_offsets'"),
    ("offsets 1", set_entry("embed", data_offsets=[0]), "is array, expected two integers"),
    ("offsets -1", set_entry("embed", data_offsets=[-64, 0]), r"has bytes -64\.\.0, expected them"),
    ("offsets rev", set_entry("embed", data_offsets=[64, 0]), r"has bytes 64\.\.0, expected them"),
    ("offsets big", set_entry("embed", data_offsets=[0, BIG]), "has bytes 0..4611686018427387904"),
    ("offsets over", set_entry("embed", data_offsets=[0, 1 << 64]), "expected an integer of 64"),
    ("offsets float", set_entry("embed", data_offsets=[0, 64.0]), "is 64.0, expected an integer"),
    ("shape 2", set_entry("embed", shape=[1, 1]), "is array, expected one dimension"),
    ("shape 0", set_entry("embed", shape=[]), "is array, expected one dimension"),
    ("shape -1", set_entry("embed", shape=[-1]), r"has shape \(-1\)"),
    ("shape big", set_entry("embed", shape=[BIG]), r"has shape \(4611686018427387904\)"),
    ("numbers", as_numbers, "tensor 'embed' is F32, expected the other for a weight in q8_0"),
    ("overlap", overlap, "begins at byte .*, expected .* where the one before it ends"),
    ("gap", grow, "has .* bytes, expected .* by its header"),
    ("cut", shrink, "the file is cut short or damaged"),
    ("swapped", swap_places, r"tensor 'embed': has shape"),
    (
        "unknown",
        lambda p: p.header.update(odd={"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}),
        "'odd' is not a weight of this model",
    ),
]


@pytest.mark.parametrize(
    ("change", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_refused(damaged: Callable[..., Path], change: Change, message: str) -> None:
    path = damaged(change)
    with pytest.raises(PackError, match=rf"^m\.onward: .*{message}") as caught:
        open_pack(path)
    assert len(str(caught.value)) < 700
    assert str(caught.value).isprintable()


def test_an_unchanged_pack_is_accepted(damaged: Callable[..., Path], good: Path) -> None:
    """The refusals above need a good pack for comparison."""
    path = damaged(lambda parts: None)
    assert packed_bytes(open_pack(path, verify=True)[0]) == packed_bytes(open_pack(good)[0])


def test_changed_metadata_is_reported_as_damage(damaged: Callable[..., Path]) -> None:
    with pytest.raises(PackError, match=r"the metadata has checksum .*: the file is damaged"):
        open_pack(damaged(set_text("config", "{ }"), sign=False))
    with pytest.raises(PackError, match=r"the metadata has checksum .*, expected ''"):
        open_pack(damaged(lambda parts: parts.metadata.pop("checksum"), sign=False))


@pytest.mark.parametrize(
    ("whole", "message"),
    [
        (b"", "has 0 bytes"),
        (b"1234567", "has 7 bytes, expected a header of at least 8"),
        (b"\xff" * 8, "header alone is said to take 18446744073709551615"),
        (b"\xf8" + b"\xff" * 7, "header alone is said to take"),
        (b"\x01" + b"\0" * 7, "header alone is said to take 1"),
        (b"\0" * 8, "data begins at byte 8, expected a multiple of 64"),
        (b"\0" * 64, "data begins at byte 8, expected a multiple of 64"),
        (framed(b"", b"", 64), "header: does not begin with"),
        (framed(b"{", b"", 64), "header: is no JSON"),
        (framed(b"{}", b"x", 64), "has no metadata"),
        (framed(b"{} {}", b"", 64), "header: is no JSON"),
        (framed(b"\xef\xbb\xbf{}", b"", 64), "header: does not begin with"),
        (framed(b'{"\xff":1}', b"", 64), "header: is no JSON"),
        (framed(b'{"\\ud800":1}', b"", 64), "header: is no JSON"),
        (framed(b'{"a":1,"a":1}', b"", 64), "header: has 'a' twice"),
        (framed(b'{"a":' + b"[" * 1_000_000, b"", 64), "is nested more than 4 deep"),
        (framed(b'{"a":{"b":{"b":{"b":{', b"", 64), "is nested more than 4 deep"),
        (framed(b'{"a":[' + b"1," * 2_000_000 + b"1]}", b"", 64), "has more than 1048576 values"),
        (framed(b'{"__metadata__":{"format":"pt"}}', b"", 64), r"is no pack \(format 'pt'\)"),
    ],
)
def test_files_that_are_not_containers_are_refused(
    tmp_path: Path, whole: bytes, message: str
) -> None:
    (tmp_path / "m.onward").write_bytes(whole)
    with pytest.raises(PackError, match=rf"^m\.onward: .*{message}"):
        open_pack(tmp_path / "m.onward")
    with pytest.raises(PackError):
        onward.LLM(tmp_path / "m.onward")


def test_a_header_that_does_not_end_at_a_multiple_of_64_is_refused(
    good: Path, tmp_path: Path
) -> None:
    (tmp_path / "m.onward").write_bytes(put_together(parts_of(good), alignment=32))
    parts = parts_of(good)
    header = json.dumps(parts.header).encode() + b" "
    path = tmp_path / "m.onward"
    path.write_bytes(framed(header + b" " * (-(8 + len(header)) % 64 + 1), bytes(parts.data), 1))
    with pytest.raises(PackError, match=r"data begins at byte .*, expected a multiple of 64"):
        open_pack(path)


def test_tensors_that_are_not_aligned_are_refused(damaged: Callable[..., Path]) -> None:
    """A byte of padding moves all following bytes."""

    def move(parts: Parts) -> None:
        for name, entry in parts.header.items():
            if name != "__metadata__":
                entry["data_offsets"] = [at + 1 for at in entry["data_offsets"]]
        parts.header["padding.first"] = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
        parts.data[:0] = b"\0"

    with pytest.raises(PackError, match=r"begins at byte .*, expected a multiple of 64"):
        open_pack(damaged(move))


@needs_proc
def test_a_large_header_of_a_sparse_file_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "m.onward"
    for claimed in ((1 << 40) - 8, 100_000_064 - 8 + 64):
        with open(path, "wb") as file:
            file.write(claimed.to_bytes(8, "little"))
            file.truncate(1 << 40)

        def attempt() -> None:
            with pytest.raises(PackError, match="expected at most 100000000"):
                open_pack(path)

        assert peak_growth(attempt) < 8 << 20


def test_a_pack_cut_at_any_length_is_refused(good: Path, tmp_path: Path) -> None:
    whole = good.read_bytes()
    path = tmp_path / "m.onward"
    begin = 8 + int.from_bytes(whole[:8], "little")
    lengths = {*range(0, 80), *range(0, len(whole), 997), begin - 1, begin, begin + 1}
    for length in sorted({*lengths, len(whole) - 1} - {len(whole)}):
        path.write_bytes(whole[:length])
        with pytest.raises(PackError):
            open_pack(path)


def test_a_flipped_bit_of_a_header_is_refused_or_has_no_effect(good: Path, tmp_path: Path) -> None:
    """It is refused, or it is in a space or an escape and has no effect."""
    whole = good.read_bytes()
    path = tmp_path / "m.onward"
    expected = packed_bytes(open_pack(good)[0])
    header_bits = 8 * (8 + int.from_bytes(whole[:8], "little"))
    refused = 0
    generator = np.random.default_rng(0)
    for place in (*range(64), *generator.integers(64, header_bits, 1500).tolist()):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            model, _ = open_pack(path, verify=True)
        except PackError:
            refused += 1
        else:
            assert packed_bytes(model) == expected, place
    assert refused > 1200


def test_verify_finds_every_flipped_bit_of_a_weight(good: Path, tmp_path: Path) -> None:
    whole = good.read_bytes()
    parts = parts_of(good)
    begin = len(whole) - len(parts.data)
    path = tmp_path / "m.onward"
    generator = np.random.default_rng(1)
    for name, entry in parts.header.items():
        if name == "__metadata__" or name.startswith("padding."):
            continue
        first, last = entry["data_offsets"]
        for at in {first, last - 1, int(generator.integers(first, last))}:
            changed = bytearray(whole)
            changed[begin + at] ^= 1 << int(generator.integers(8))
            path.write_bytes(changed)
            with pytest.raises(PackError, match=f"tensor '{name}' has checksum .*damaged"):
                open_pack(path, verify=True)
            if name.startswith("text."):  # read whole with every opening
                with pytest.raises(PackError, match=f"tensor '{name}' has checksum"):
                    open_pack(path)


def test_garbage_in_weights_does_no_harm(good: Path, tmp_path: Path) -> None:
    """Garbage of the right size is used as weights and gives only wrong numbers."""
    parts = parts_of(good)
    for name, entry in parts.header.items():
        if name != "__metadata__" and not name.startswith("text."):
            begin, end = entry["data_offsets"]
            parts.data[begin:end] = b"\x5a" * (end - begin)
    (tmp_path / "m.onward").write_bytes(put_together(parts))
    for copy in (False, True):
        model, _ = open_pack(tmp_path / "m.onward", copy=copy)
        new_engine(model).logits(np.arange(12, dtype=np.int32))


def test_random_changes_of_many_bytes_are_refused(good: Path, tmp_path: Path) -> None:
    """Pieces are repeated, removed, swapped and overwritten, mainly in the header."""
    whole = good.read_bytes()
    path = tmp_path / "m.onward"
    header = 8 + int.from_bytes(whole[:8], "little")
    generator = np.random.default_rng(2)
    tokens = [
        b"9" * 19,
        b"-1",
        b"null",
        b"[",
        b"{",
        b'"',
        b"1e400",
        b"\0",
        b"\xff",
        b"18446744073709551616",
    ]
    outcomes: dict[str, int] = {}
    for _ in range(1500):
        changed = bytearray(whole)
        for _ in range(int(generator.integers(1, 4))):
            begin, end = sorted(generator.integers(0, header, 2).tolist())
            end = min(end, begin + 64)
            match int(generator.integers(4)):
                case 0:
                    changed[begin:end] = changed[begin:end] * 2
                case 1:
                    del changed[begin:end]
                case 2:
                    changed[begin:end] = generator.bytes(end - begin)
                case _:
                    token = tokens[int(generator.integers(len(tokens)))]
                    changed[begin : begin + len(token)] = token
        if generator.integers(2):  # a length that fits the changed header
            size = len(changed) - (len(whole) - header) - 8
            changed[:8] = max(size, 0).to_bytes(8, "little")
        path.write_bytes(changed)
        try:
            open_pack(path)
            outcome = "taken"
        except (PackError, IoError) as error:
            outcome = type(error).__name__
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert outcomes["PackError"] > 1300


def test_a_file_that_shrinks_while_it_is_read_is_an_error_in_its_header(
    good: Path, tmp_path: Path
) -> None:
    """Mapped pages that are gone raise SIGBUS on any system (docs/pack.md). The header is read, not
    mapped."""
    path = tmp_path / "m.onward"
    path.write_bytes(good.read_bytes())
    model, _ = open_pack(path, copy=True)
    os.truncate(path, 8)
    assert packed_bytes(model) == packed_bytes(open_pack(good)[0])
    with pytest.raises(PackError, match="the file is cut short or no pack"):
        open_pack(path)


def test_the_check_of_utf8_equals_python(damaged: Callable[..., Path]) -> None:
    """At every place of a group of eight, and at the end of the text."""
    edges = ["\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000"]
    cases = [edge.encode() for edge in [*edges, "\U0010ffff"]]
    for code in (0xD800, 0xDFFF):
        cases.append(chr(code).encode("utf-8", "surrogatepass"))
    cases += [b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80"]
    cases += [b"\x80", b"\xbf", b"\xf5\x80\x80\x80", b"\xfe", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98"]
    cases += [b"\xc3(", b"\xe2(\xa1", b"\xf0\x9f(\x80"]
    taken = 0
    for i, case in enumerate(cases):
        for at in (i % 9, -len(case)):

            def write(parts: Parts, case: bytes = case, at: int = at) -> None:
                begin, end = parts.header["text.chat_template"]["data_offsets"]
                place = begin + at if at >= 0 else end + at
                parts.data[place : place + len(case)] = case
                sum_ = checksum(bytes(parts.data[begin:end]))
                parts.tell("checksums", lambda sums: sums.update({"text.chat_template": sum_}))

            path = damaged(write)
            try:
                case.decode()
            except UnicodeDecodeError:
                with pytest.raises(PackError, match="is not UTF-8"):
                    open_pack(path)
            else:
                text = open_pack(path)[1]["chat_template"]
                assert text.encode()[at : at + len(case) or None] == case
                taken += 1
    assert taken == 18
