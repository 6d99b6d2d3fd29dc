"""A model file that is rewritten, replaced, or removed while it loads is a WeightError, never a
model of mixed weights."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_folder_weights import SHARDS, saying, write_shards
from test_gguf_parts import write_parts

from builders.checkpoints import (
    TINY,
    TINY_GGUF,
    gguf_bytes,
    random_weights,
    tiny_gguf_tensors,
    write_folder,
)
from builders.packs import pack, write_gguf
from closed_form import base_config, write_safetensors
from onward import LLM, quantize
from onward.errors import WeightError
from onward.load import loading
from onward.load.hub import find_model
from onward.load.loading import load_model
from onward.load.packed_cache import load_with_cache
from onward.load.weights import open_checkpoint
from onward.load.weights.safetensors import INDEX_NAME
from onward.quantization import folder_output, gguf_output


def write_single(folder: Path) -> tuple[Path, Path]:
    model = write_folder(folder / "model")
    return model, model / "model.safetensors"


def write_sharded(number: int, config: Any = TINY, tensors: Any = None) -> Any:
    def write(folder: Path) -> tuple[Path, Path]:
        model = folder / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(config))
        weight_map = write_shards(model, tensors or random_weights(config))
        (model / INDEX_NAME).write_text(json.dumps({"weight_map": weight_map}))
        return model, model / SHARDS[number]

    return write


def write_one_gguf(folder: Path) -> tuple[Path, Path]:
    path = folder / "m.gguf"
    path.write_bytes(gguf_bytes(TINY_GGUF, tiny_gguf_tensors()))
    return path, path


def write_gguf_parts(number: int) -> Callable[[Path], tuple[Path, Path]]:
    def write(folder: Path) -> tuple[Path, Path]:
        paths = write_parts(folder / "parts", [5, 7, 0])
        return paths[0], paths[number]

    return write


MODELS = {
    "safetensors": write_single,
    "first shard": write_sharded(0),
    "last shard": write_sharded(1),
    "gguf": write_one_gguf,
    "first gguf part": write_gguf_parts(0),
    "last gguf part": write_gguf_parts(2),
}


def later(path: Path) -> None:
    """Give the file a different time, for any resolution of the clock."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def rewrite(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(-64, os.SEEK_END)
        file.write(bytes(64))
    later(path)


def grow(path: Path) -> None:
    time = path.stat().st_mtime_ns
    with open(path, "ab") as file:
        file.write(b"\0")
    os.utime(path, ns=(time, time))


def replace(path: Path) -> None:
    """Replace it by another file of the same size and time."""
    other = path.with_name("other")
    shutil.copy2(path, other)
    os.replace(other, path)


CHANGES = {"rewrite": rewrite, "grow": grow, "replace": replace, "remove": Path.unlink}


def changing(change: Callable[[Path], object], path: Path) -> Callable[[int, int], None]:
    """A progress callback that changes the file after the first weight."""
    calls: list[int] = []

    def progress(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 1:
            assert 0 < done < total
            change(path)

    return progress


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("model", MODELS)
def test_a_change_between_two_weights_is_an_error(tmp_path: Path, model: str, change: str) -> None:
    opened, path = MODELS[model](tmp_path)
    progress = changing(CHANGES[change], path)
    with pytest.raises(WeightError, match=rf"^{path.name}: was written or replaced while it was b"):
        load_model(find_model(opened), "f32", 1, progress)


@pytest.mark.parametrize("model", MODELS)
def test_an_unchanged_file_loads(tmp_path: Path, model: str) -> None:
    opened, path = MODELS[model](tmp_path)
    before = path.stat()
    load_model(find_model(opened), "f32", 1, changing(lambda path: path.read_bytes(), path))
    os.utime(path, ns=(before.st_atime_ns + 10**9, before.st_mtime_ns))  # it was read: no change
    LLM(opened).close()


def test_the_next_load_reads_the_new_file(tmp_path: Path, open_llm: Any) -> None:
    """The error leaves no packed weights of a mixed model."""
    model, path = write_sharded(1, base_config(), saying(5))(tmp_path)
    kept = tmp_path / "kept"

    def other(path: Path) -> None:
        write_safetensors(path, {"lm_head.weight": saying(6)["lm_head.weight"]})
        later(path)

    with pytest.raises(WeightError, match="was written or replaced"):
        load_with_cache(kept, find_model(model), "f32", 1, changing(other, path))
    assert not kept.exists() or not list(kept.iterdir())
    for _ in range(2):
        llm = open_llm(model, packed_cache=kept)
        assert int(llm.logits([1])[0].argmax()) == 6


def test_the_writer_of_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "m.gguf")
    core_spec = loading.core_spec

    def after(spec: Any) -> Any:
        """The headers have been read when the spec goes to the core. The weights come next."""
        rewrite(path)
        return core_spec(spec)

    monkeypatch.setattr(loading, "core_spec", after)
    with pytest.raises(WeightError, match=r"^m\.gguf: was written or replaced"):
        pack(path, tmp_path / "m.onward")
    assert not (tmp_path / "m.onward").exists()
    with pytest.raises(WeightError, match=r"^m\.gguf: was written or replaced"):
        LLM(path)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("model", ["safetensors", "last shard", "gguf", "last gguf part"])
def test_the_quantizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, late: bool
) -> None:
    """``late``: during the write of the new model's weights."""
    opened, path = MODELS[model](tmp_path)
    kind = type(open_checkpoint(find_model(opened)))
    tensor, calls = kind.tensor, []

    def and_then(checkpoint: Any, name: str) -> Any:
        found = tensor(checkpoint, name)
        calls.append(name)
        if len(calls) == 2 and not late:
            rewrite(path)
        return found

    def writing(*arguments: Any) -> bytes:
        rewrite(path)
        return write(*arguments)

    monkeypatch.setattr(kind, "tensor", and_then)
    output = tmp_path / ("out" if opened.is_dir() else "out.gguf")
    if late:
        where: Any = folder_output if opened.is_dir() else gguf_output
        name = "header_bytes" if opened.is_dir() else "_copy_metadata"
        write = getattr(where, name)
        monkeypatch.setattr(where, name, writing)
    with pytest.raises(WeightError, match=rf"^{path.name}: was written or replaced"):
        quantize(opened, output, method="round", threads=1)
    assert not output.exists() and not list(tmp_path.glob(".out*"))
