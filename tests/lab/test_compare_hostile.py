"""Damaged and hostile saved sides of ``onward compare``: LoadError, and memory in proportion to the
file.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.resources import needs_proc, peak_growth
from onward.errors import LoadError
from onward.lab.compare.messages import receive
from onward.lab.compare.result_file import FORMAT, VERSION, Saved, load, save
from onward.lab.compare.side import Description, Footprint, Round, Text

DESCRIPTION = Description(
    **dict.fromkeys(
        ("setting", "onward", "build", "core", "python", "system", "processor", "device", "isa"),
        "x",
    ),
    **dict.fromkeys(("model", "fingerprint", "dtype", "kv_dtype"), "x"),
    weight_dtypes=("f32",),
    threads=1,
    cache=True,
    vocab_size=4,
    context=64,
    parameters=9,
)
TEXTS = (Text((1,), (2, 3)), Text((0, 1), (1,)))
ROWS = (np.arange(8, dtype=np.float32).reshape(2, 4), np.ones((1, 4), np.float32))
SIDE = Saved(DESCRIPTION, Footprint(1.0, 2, None), TEXTS, (), ROWS)


def head_bytes(side: Saved) -> bytes:
    return json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "description": asdict(side.description),
            "footprint": asdict(side.footprint),
            "texts": [asdict(text) for text in side.texts],
            "rounds": [asdict(run) for run in side.rounds],
        }
    ).encode()


def array_bytes(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def members(side: Saved = SIDE) -> dict[str, bytes]:
    head = np.frombuffer(head_bytes(side), np.uint8)
    arrays = {f"logits_{i}.npy": array_bytes(rows) for i, rows in enumerate(side.logits)}
    return {"side.json.npy": array_bytes(head), **arrays}


def write(path: Path, contents: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return str(path)


def test_the_builder_and_save_write_the_same_bytes(tmp_path: Path) -> None:
    save(SIDE, str(tmp_path / "saved.npz"))
    for path in (str(tmp_path / "saved.npz"), write(tmp_path / "built.npz", members())):
        found = load(path)
        assert (found.description, found.texts, found.rounds) == (DESCRIPTION, TEXTS, ())
        assert [rows.tolist() for rows in found.logits] == [rows.tolist() for rows in ROWS]


# Members that share bytes


def local_header(name: bytes, data: bytes) -> bytes:
    size, crc = len(data), zlib.crc32(data)
    return struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, crc, size, size, len(name), 0) + name


def central_header(name: bytes, data: bytes, at: int) -> bytes:
    size, crc = len(data), zlib.crc32(data)
    fields = (b"PK\1\2", 20, 20, 0, 0, 0, 0, crc, size, size, len(name), 0, 0, 0, 0, 0, at)
    return struct.pack("<4s6H3I5H2I", *fields) + name


def write_nested(path: Path, count: int, rows: int) -> int:
    """A side in which each array of logits contains the members of all later arrays. Sizes,
    checksums and shapes are right. Returns the bytes of logits that the file claims."""
    vocab = 1024
    lengths = [rows + count - 1 - i for i in range(count)]
    side = replace(
        SIDE,
        description=replace(DESCRIPTION, vocab_size=vocab),
        texts=tuple(Text((1,), (0,) * length) for length in lengths),
        logits=(),
    )
    tail = bytes(4 * vocab * rows)
    for i in reversed(range(count)):
        array = array_bytes(np.zeros((lengths[i], vocab), np.float32))[:128]
        data = array + tail
        assert len(data) == 128 + 4 * vocab * lengths[i]
        name = b"logits_%d.npy" % i
        front = local_header(name, data)
        # The bytes of the next array begin a row before the bytes of this one. The rest is zero.
        fill = bytes(4 * vocab - len(front) - 128)
        tail = fill + front + data
    whole = write_central(tail, lengths, vocab, members(side)["side.json.npy"])
    path.write_bytes(whole)
    return sum(lengths) * 4 * vocab


def write_central(tail: bytes, lengths: list[int], vocab: int, head: bytes) -> bytes:
    """The nested members after the head, and the directory of all members."""
    first = local_header(b"side.json.npy", head) + head
    whole = first + tail
    entries = central_header(b"side.json.npy", head, 0)
    for i, length in enumerate(lengths):
        name = b"logits_%d.npy" % i
        size = 128 + 4 * vocab * length
        begin = whole.index(b"PK\3\4" + local_header(name, whole[-size:])[4:])
        entries += central_header(name, whole[-size:], begin)
    count = len(lengths) + 1
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(entries), len(whole), 0)
    return whole + entries + end


@needs_proc
def test_members_that_share_bytes_are_refused_without_memory(tmp_path: Path) -> None:
    claimed = write_nested(tmp_path / "a.npz", 64, 300)
    size = (tmp_path / "a.npz").stat().st_size
    assert claimed > 80 << 20 > 40 * size  # 1.5 MB that would become 85 MB

    def refused() -> None:
        with pytest.raises(LoadError, match=r"^a\.npz: member logits_0\.npy claims \d+ "):
            load(str(tmp_path / "a.npz"))

    assert peak_growth(refused) < 12 << 20


def test_two_names_of_one_member_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members().items():
            archive.writestr(name, data)
        archive.filelist[2].header_offset = archive.filelist[1].header_offset
    with pytest.raises(LoadError, match=r"^a\.npz: member logits_0\.npy claims 160 bytes"):
        load(str(path))


@pytest.mark.parametrize("size", [173, 1 << 31, 1 << 62])
@pytest.mark.parametrize("both", [True, False])
def test_a_size_beyond_the_file_is_refused(tmp_path: Path, size: int, both: bool) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members().items():
            archive.writestr(name, data)
        archive.filelist[1].file_size = size
        if both:
            archive.filelist[1].compress_size = size
    with pytest.raises(LoadError, match=rf"^a\.npz: member logits_0\.npy claims {size} "):
        load(str(path))


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=str
)
def test_a_compressed_member_is_refused(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members().items():
            archive.writestr(name, data, method if name == "logits_1.npy" else zipfile.ZIP_STORED)
    with pytest.raises(LoadError, match=r"^a\.npz: member logits_1\.npy is compressed or encrypte"):
        load(str(path))


# Headers of arrays


def with_header(text: bytes, data: bytes, version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + data


DATA = ROWS[0].tobytes()
GOOD = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }\n"
HEADERS = {
    "a descr that is a list": GOOD.replace(b"'<f4'", b"[]"),
    "a descr that is an empty tuple": GOOD.replace(b"'<f4'", b"()"),
    "a descr that is a number": GOOD.replace(b"'<f4'", b"7"),
    "a descr of a structure": GOOD.replace(b"'<f4'", b"[('a', '<f4')]"),
    "a descr that no dtype has": GOOD.replace(b"<f4", b"zz9"),
    "a descr with a shape": GOOD.replace(b"<f4", b"(4,)f4"),
    "objects": GOOD.replace(b"<f4", b"|O"),
    "an object that is called": GOOD.replace(b"(2, 4)", b"exit()"),
    "a shape that is a list": GOOD.replace(b"(2, 4)", b"[2, 4]"),
    "a negative size": GOOD.replace(b"(2, 4)", b"(-2, -4)"),
    "a truth value as size": GOOD.replace(b"(2, 4)", b"(True, 8)"),
    "a size of many digits": GOOD.replace(b"(2, 4)", b"(" + b"9" * 400 + b", 4)"),
    "a size beyond 64 bits": GOOD.replace(b"(2, 4)", b"(9999999999999999, 9999999999999999)"),
    "nested brackets": GOOD.replace(b"(2, 4)", b"(" * 200 + b")" * 200),
    "another order": GOOD.replace(b"False", b"True"),
    "a missing key": b"{'descr': '<f4', 'shape': (2, 4), }\n",
    "a list": b"[1, 2]\n",
    "nothing": b"",
    "no text": bytes(range(128, 200)),
    "a line that is not closed": GOOD[:30],
}


def test_a_good_header_is_accepted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", {**members(), "logits_0.npy": with_header(GOOD, DATA)})
    assert load(path).logits[0].tobytes() == DATA


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_damaged_header(tmp_path: Path, header: bytes) -> None:
    for name in ("logits_0.npy", "side.json.npy"):
        path = write(tmp_path / "a.npz", {**members(), name: with_header(header, DATA)})
        with pytest.raises(LoadError, match=rf"^a\.npz: member {name} is .*, expected "):
            load(path)


@pytest.mark.parametrize("version", [b"\x02\x00", b"\x03\x00", b"\x00\x00", b"\xff\xff"])
def test_another_version_of_the_header_is_refused(tmp_path: Path, version: bytes) -> None:
    bad = with_header(GOOD, DATA, version)
    path = write(tmp_path / "a.npz", {**members(), "logits_0.npy": bad})
    with pytest.raises(LoadError, match=r"^a\.npz: member logits_0\.npy is not an array"):
        load(path)


@pytest.mark.parametrize(
    "array",
    [
        ROWS[0].astype(np.float64),
        ROWS[0].astype(">f4"),
        ROWS[0].astype(np.float16),
        ROWS[0].astype(np.int32),
        np.asfortranarray(ROWS[0]),
        ROWS[0].ravel(),
        ROWS[0].T.copy(),
        ROWS[0][:1],
        ROWS[0][None],
        np.float32(1),
        np.zeros((2, 0), np.float32),
    ],
    ids=lambda array: f"{array.dtype.str}-{array.shape}-{array.flags.f_contiguous}",
)
def test_another_shape_or_type_is_refused(tmp_path: Path, array: Any) -> None:
    path = write(tmp_path / "a.npz", {**members(), "logits_0.npy": array_bytes(array)})
    with pytest.raises(LoadError, match=r"logits_0\.npy is .*, expected <f4 of \(2, 4\)$"):
        load(path)


@pytest.mark.parametrize("data", [DATA[:-1], DATA[:-4], DATA + b"\0", b""])
def test_another_number_of_bytes_is_refused(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path / "a.npz", {**members(), "logits_0.npy": with_header(GOOD, data)})
    with pytest.raises(LoadError, match=r"logits_0\.npy has \d+ bytes, expected 32 and a header$"):
        load(path)


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_damaged_header_of_another_process(header: bytes) -> None:
    for data in (with_header(header, DATA), zipped(header), b""):
        line = json.dumps({"body": 1, "bytes": [len(data)]}).encode() + b"\n"
        with pytest.raises(LoadError, match=r"^x: sent no array"):
            receive(io.BytesIO(line + data), "x")


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", data)
    return file.getvalue()


# Fields of the description


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, number: str) -> None:
    head = head_bytes(SIDE).replace(b'"load_s": 1.0', f'"load_s": {number}'.encode())
    array = array_bytes(np.frombuffer(head, np.uint8))
    path = write(tmp_path / "a.npz", {**members(), "side.json.npy": array})
    with pytest.raises(LoadError, match=r"^a\.npz: "):
        load(path)


WRONG = (None, True, -1, 1.5, "x", [], {}, [None], [{}], [[]], [1.5], {"a": 1})


@pytest.mark.parametrize("record", ["description", "footprint", "texts", "rounds"])
def test_a_field_of_a_wrong_type_is_refused(tmp_path: Path, record: str) -> None:
    """A value is accepted only in a field of the same type."""
    run = Round(4, 1.0, 2.0, 3.0, 4.0, 0.5, None)
    head = json.loads(head_bytes(replace(SIDE, rounds=(run,))))
    whole = head[record]
    entry = whole[0] if isinstance(whole, list) else whole
    loaded = refused = 0
    for key in (None, *entry):
        for value in WRONG:
            changed = value if key is None else {**entry, key: value}
            if key is not None and isinstance(whole, list):
                changed = [changed, *whole[1:]]
            data = json.dumps({**head, record: changed}).encode()
            array = array_bytes(np.frombuffer(data, np.uint8))
            path = write(tmp_path / "a.npz", {**members(), "side.json.npy": array})
            try:
                load(path)
                loaded += 1
            except LoadError as failure:
                refused += 1
                assert str(failure).startswith("a.npz: ")
    assert refused > loaded


def test_a_description_may_have_4_mib_and_no_more(tmp_path: Path) -> None:
    head = head_bytes(SIDE)
    for more, fits in ((0, True), (1, False)):
        padded = head + b" " * ((4 << 20) - len(head) - 128 + more)
        array = array_bytes(np.frombuffer(padded, np.uint8))
        assert len(array) == (4 << 20) + more
        path = write(tmp_path / "a.npz", {**members(), "side.json.npy": array})
        if fits:
            assert load(path).texts == TEXTS
            continue
        with pytest.raises(LoadError, match=r"has no side\.json of at most 4194304 bytes"):
            load(path)


def test_many_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(1003):
            archive.writestr(f"logits_{i}.npy", b"")
    with pytest.raises(LoadError, match=r"^a\.npz: has 1003 members"):
        load(str(path))


@pytest.mark.parametrize(
    "change",
    [
        {"footprint": Footprint(0.0, 2, None)},
        {"footprint": Footprint(1.0, 0, None)},
        {"rounds": (Round(0, None, 0.0, 1.0, 1.0, None, None),)},
        {"rounds": (Round(8, -1.0, 2.0, 1.0, 1.0, None, None),)},
    ],
    ids=["load time", "weights", "decode", "prefill"],
)
def test_a_divisor_of_zero_or_less_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = str(tmp_path / "side.npz")
    save(replace(SIDE, **change), path)
    with pytest.raises(LoadError, match="expected more than 0"):
        load(path)
