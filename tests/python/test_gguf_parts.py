"""GGUF models in several parts: opened from any part, checked against each other, written as
one.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.checkpoints import (
    TINY,
    TINY_GGUF,
    gguf_bytes,
    gguf_name,
    random_weights,
    tiny_gguf_tensors,
)
from builders.core_engine import new_engine
from onward import LLM, quantize
from onward.errors import WeightError
from onward.load.hub import find_model
from onward.load.loading import load_model
from onward.load.packed_cache import load_with_cache
from onward.load.packing import pack_model
from onward.load.weights.gguf import GgufCheckpoint

PROMPT = np.arange(12, dtype=np.int32)


def keys(number: int, count: int, tensors: int) -> dict[str, object]:
    """The metadata of a part, in the types that llama.cpp's gguf-split writes."""
    return {
        "split.no": struct.pack("<IH", 2, number),
        "split.count": struct.pack("<IH", 2, count),
        "split.tensors.count": struct.pack("<Ii", 5, tensors),
    }


def part_name(number: int, count: int) -> str:
    return f"tiny-{number:05}-of-{count:05}.gguf"


def write_parts(folder: Path, sizes: list[int], **changes: Any) -> list[Path]:
    """The tiny model in parts of N tensors each; the last part has the rest."""
    folder.mkdir(exist_ok=True)
    tensors = list(tiny_gguf_tensors().items())
    total, paths = len(tensors), []
    for i, size in enumerate(sizes):
        here = dict(tensors[:size] if i + 1 < len(sizes) else tensors)
        tensors = tensors[len(here) :]
        metadata = {**(TINY_GGUF if i == 0 else {}), **keys(i, len(sizes), total), **changes}
        paths.append(folder / part_name(i + 1, len(sizes)))
        paths[-1].write_bytes(gguf_bytes(metadata, here))
    return paths


def write_whole(folder: Path) -> Path:
    path = folder / "whole.gguf"
    path.write_bytes(gguf_bytes(TINY_GGUF, tiny_gguf_tensors()))
    return path


def logits(path: Path, packed_cache: Path | None = None) -> np.ndarray:
    core = load_with_cache(packed_cache, find_model(path), "f32", 1).core
    return np.asarray(new_engine(core).logits(PROMPT))


@pytest.mark.parametrize("sizes", [[5, 7, 0], [0, 9, 0], [1, 1, 1, 0]])
def test_any_part_opens_the_model(tmp_path: Path, sizes: list[int]) -> None:
    expected = logits(write_whole(tmp_path))
    for path in write_parts(tmp_path / "parts", sizes):
        assert np.array_equal(logits(path), expected)


def test_parts_that_the_gguf_package_wrote(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "tiny.gguf", "llama", split_max_tensors=4)
    for key, value in TINY_GGUF.items():
        if key.startswith("llama.") and isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
    for name, weights in random_weights(TINY).items():
        writer.add_tensor(gguf_name(name), weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts = sorted(tmp_path.glob("*.gguf"))
    assert len(parts) == 6
    checkpoint = GgufCheckpoint(parts[2])
    assert [Path(source.path) for source in checkpoint.sources()] == parts
    for name, weights in random_weights(TINY).items():
        own_name = gguf_name(name)
        tensor = checkpoint.tensor(own_name)
        assert np.array_equal(np.frombuffer(tensor.buffer, "<f4").reshape(tensor.shape), weights)
        assert own_name.encode() in (tmp_path / checkpoint.file_of(own_name)).read_bytes()[:4096]


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, [5, 7, 0])
    paths[1].unlink()
    for path, number in ((paths[0], 1), (paths[2], 3)):
        message = rf"^{path.name}: is part {number} of 3, and .* missing .*: {paths[1].name}$"
        with pytest.raises(WeightError, match=message):
            GgufCheckpoint(path)


def test_a_folder_of_parts_is_one_model(tmp_path: Path) -> None:
    """With any parts present. Opening the model names the missing part."""
    paths = write_parts(tmp_path / "parts", [5, 7, 0])
    files = find_model(tmp_path / "parts")
    assert (files.name, files.path) == ("tiny", paths[0])
    assert np.array_equal(logits(tmp_path / "parts"), logits(write_whole(tmp_path)))
    paths[0].unlink()
    with pytest.raises(WeightError, match=f"is part 2 of 3, and .* missing .*: {paths[0].name}$"):
        load_model(find_model(tmp_path / "parts"), "f32", 1)


def test_a_renamed_part_is_an_error(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, [5, 7, 0])
    for name in ("model.gguf", part_name(1, 4), part_name(3, 3)):
        renamed = shutil.copy(paths[1], tmp_path / name)
        with pytest.raises(WeightError, match=r"is part 2 of 3 .*, expected .*NAME-00002-of-00003"):
            GgufCheckpoint(Path(renamed))


def test_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    paths = write_parts(tmp_path, [5, 7, 0])
    good = [path.read_bytes() for path in paths]

    def refused(number: int, data: bytes, message: str) -> None:
        for path, content in zip(paths, good, strict=True):
            path.write_bytes(content)
        paths[number].write_bytes(data)
        for path in paths[:1]:
            with pytest.raises(WeightError, match=message):
                GgufCheckpoint(path)

    refused(
        2, good[1], r"00003-of-00003.gguf: split.no and split.count are 1 and 3, expected 2 and"
    )
    one_more = tiny_gguf_tensors()
    first = next(iter(one_more))
    twice = gguf_bytes(keys(2, 3, 21), {first: one_more[first]})
    refused(2, twice, f"tensor {first} is in {part_name(1, 3)} as well")
    less = gguf_bytes(keys(2, 3, 21), {"blk.9.x": one_more[first]})
    refused(2, less, r"split.tensors.count is 21, but the parts have 13 tensors")
    alone = gguf_bytes({}, {})
    refused(1, alone, "split.no and split.count are 0 and 1, expected 1 and 3")
    refused(1, good[1][:60], f"^{part_name(2, 3)}: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split.count": "3"}, "split.count is '3', expected a whole number"),
        ({"split.no": True}, "split.no is True"),
        ({"split.count": 65535}, "tiny-00001-of-00002.gguf: is part 1 of 65535 by its metadata"),
    ],
)
def test_wrong_metadata_of_parts_is_an_error(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(WeightError, match=message):
        GgufCheckpoint(write_parts(tmp_path, [5, 0], **changes)[0])


def test_a_single_part_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "any.gguf"
    path.write_bytes(gguf_bytes({**TINY_GGUF, **keys(0, 1, 21)}, tiny_gguf_tensors()))
    assert np.array_equal(logits(path), logits(write_whole(tmp_path)))


def test_quantised_in_one_part(tmp_path: Path) -> None:
    """The same file as from the model in one part, without metadata about parts."""
    pytest.importorskip("gguf")
    parts = write_parts(tmp_path / "parts", [5, 7, 0])
    whole = write_whole(tmp_path)
    for source, name in ((parts[1], "of-parts.gguf"), (whole, "of-whole.gguf")):
        quantize(source, tmp_path / name, method="round")
    assert (tmp_path / "of-parts.gguf").read_bytes() == (tmp_path / "of-whole.gguf").read_bytes()


def test_packed_cache_and_pack_of_parts(tmp_path: Path) -> None:
    parts = write_parts(tmp_path / "parts", [5, 7, 0])
    expected = logits(parts[0])
    kept = tmp_path / "kept"
    assert np.array_equal(logits(parts[0], packed_cache=kept), expected)
    [file] = kept.iterdir()
    before = file.stat().st_mtime_ns
    assert np.array_equal(logits(parts[0], packed_cache=kept), expected)
    assert file.stat().st_mtime_ns == before
    pack_model(parts[0], tmp_path / "tiny.onward", dtype="f32", threads=1)
    packed = np.asarray(
        new_engine(load_model(find_model(tmp_path / "tiny.onward"), "auto", 1).core).logits(PROMPT)
    )
    assert np.array_equal(packed, expected)


def test_a_model_in_parts_generates(tmp_path: Path) -> None:
    parts = write_parts(tmp_path / "parts", [5, 7, 0])
    with LLM(parts[1], threads=1) as llm, LLM(write_whole(tmp_path), threads=1) as whole:
        options = {"max_new_tokens": 8, "temperature": 0}
        assert llm.generate([1, 2, 3], **options).token_ids == (
            whole.generate([1, 2, 3], **options).token_ids
        )
