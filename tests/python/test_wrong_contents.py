"""Wrong files after a failed clone or download under the name of a model file: the error names the
kind of file and the next step.
"""

from __future__ import annotations

import gzip
import io
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_gguf_parts import write_parts

import onward
from builders.checkpoints import TINY_GGUF, gguf_bytes, tiny_gguf_tensors
from builders.packs import open_pack, tiny_pack, write_talking
from closed_form import write_safetensors
from onward.errors import Error, LoadError, ModelNotFound, PackError
from onward.files.contents import unexpected_content
from onward.load.weights.safetensors import INDEX_NAME

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4665bb4bd4a0d9d2a7d2ea9f86a8c1b6bcbe2d1f7b8a0e5a3a9f3e2c1d0b9a8f\n"
    b"size 2471645608\n"
)


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"weights" * 100)
    return file.getvalue()


# Content: (bytes, the kind in the error, the next step in the error)
CONTENTS: dict[str, tuple[bytes, str, str]] = {
    "pointer": (POINTER, "a git-lfs pointer", "git lfs pull"),
    "html": (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>", "an HTML page", "download"),
    "html, upper case": (b"<HTML><HEAD><TITLE>502</TITLE>" + b" " * 600, "an HTML page", "downl"),
    "html, blank lines": (b"\r\n\n <html lang='en'>" + b"x" * 2000, "an HTML page", "download"),
    "gzip": (gzip.compress(b"tensors " * 1000), "a gzip archive", "unpack it"),
    "zip": (zipped(), "a zip archive", "expected "),
    "pickle 2": (pickle.dumps({"a": [1.0] * 100}, 2), "a pickle", "expected "),
    "pickle 4": (pickle.dumps({"a": [1.0] * 100}, 4), "a pickle", "expected "),
}


def folder_file(name: str) -> Callable[[Path, bytes], Path]:
    def write(folder: Path, content: bytes) -> Path:
        (folder / "model" / name).write_bytes(content)
        return folder / "model"

    return write


def shard(folder: Path, content: bytes) -> Path:
    model = folder / "model"
    (model / "model.safetensors").unlink()
    name = "model-00001-of-00001.safetensors"
    (model / name).write_bytes(content)
    (model / INDEX_NAME).write_text(f'{{"weight_map": {{"model.norm.weight": "{name}"}}}}')
    return model


def index(folder: Path, content: bytes) -> Path:
    (folder / "model" / "model.safetensors").unlink()
    (folder / "model" / INDEX_NAME).write_bytes(content)
    return folder / "model"


def single(name: str) -> Callable[[Path, bytes], Path]:
    def write(folder: Path, content: bytes) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def in_folder(folder: Path, content: bytes) -> Path:
    (folder / "ggufs").mkdir()
    (folder / "ggufs" / "m.gguf").write_bytes(content)
    return folder / "ggufs"


def part(folder: Path, content: bytes) -> Path:
    paths = write_parts(folder / "parts", [5, 7, 0])
    paths[1].write_bytes(content)
    return paths[0]


FILES: dict[str, tuple[Callable[[Path, bytes], Path], str]] = {
    "model.safetensors": (folder_file("model.safetensors"), "model.safetensors"),
    "shard": (shard, "model-00001-of-00001.safetensors"),
    "index": (index, INDEX_NAME),
    "config.json": (folder_file("config.json"), "config.json"),
    "generation_config.json": (folder_file("generation_config.json"), "generation_config.json"),
    "tokenizer.json": (folder_file("tokenizer.json"), "tokenizer.json"),
    "tokenizer_config.json": (folder_file("tokenizer_config.json"), "tokenizer_config.json"),
    "gguf": (single("m.gguf"), "m.gguf"),
    "gguf in a folder": (in_folder, "m.gguf"),
    "gguf part": (part, "tiny-00002-of-00003.gguf"),
    "pack": (single("m.onward"), "m.onward"),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write_talking(folder / "model", num_layers=1, hidden_size=32, intermediate_size=32)
    return folder


def message(model: Path) -> str:
    """The error of loading. A wrong tokenizer may be found only when text is used."""
    with pytest.raises((LoadError, ModelNotFound)) as caught, onward.LLM(model) as llm:
        llm.tokenize("a")
    return str(caught.value)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("file", FILES)
def test_the_error_names_the_kind_of_file(
    good: Path, tmp_path: Path, file: str, content: str
) -> None:
    data, what, advice = CONTENTS[content]
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    write, name = FILES[file]
    found = message(write(tmp_path, data))
    assert name in found
    said = found[found.index(name) :]
    kinds = (what,) if file != "pack" else (what, "a pickle or a zip archive")
    assert any(f": is {kind}" in said for kind in kinds)
    assert advice in said and said.isprintable()


@pytest.mark.parametrize("content", ["zip", "pickle 2"])
def test_a_pack_is_advised_as_a_pack(tmp_path: Path, content: str) -> None:
    (tmp_path / "m.onward").write_bytes(CONTENTS[content][0])
    assert message(tmp_path / "m.onward").endswith(
        "expected a pack: onward pack MODEL -o FILE.onward"
    )


def test_a_gguf_under_other_names(good: Path, tmp_path: Path) -> None:
    whole = gguf_bytes(TINY_GGUF, tiny_gguf_tensors())
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        shutil.copytree(good, tmp_path / name)
        assert "is a GGUF file" in message(FILES[name][0](tmp_path / name, whole))
    (tmp_path / "m.onward").write_bytes(whole)
    assert "m.onward: is a GGUF file" in message(tmp_path / "m.onward")


def test_unknown_contents_are_an_error() -> None:
    assert unexpected_content(b'{"model_type": "llama"}') is None
    assert unexpected_content(b"") is None
    assert unexpected_content(b"<|im_start|>") is None


def test_files_that_begin_like_another_kind_load(good: Path, tmp_path: Path) -> None:
    """Headers whose length spells a signature: 0x685A42 is "BZh", 0x010280 begins like a pickle."""
    for length in (0x685A42, 0x8B1F, 0x010280):
        folder = tmp_path / str(length)
        shutil.copytree(good / "model", folder)
        with_header_of(folder / "model.safetensors", length)
        assert (folder / "model.safetensors").read_bytes()[:2] == length.to_bytes(8, "little")[:2]
        with onward.LLM(folder) as llm:
            assert np.isfinite(llm.logits([1])).all()


def with_header_of(path: Path, length: int) -> None:
    whole = path.read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    header = whole[8:begin].ljust(length)
    path.write_bytes(len(header).to_bytes(8, "little") + header + whole[begin:])


def test_the_core_names_the_kind_of_file(tmp_path: Path) -> None:
    path = tiny_pack(tmp_path)
    open_pack(path)
    for content, what, _ in CONTENTS.values():
        path.write_bytes(content)
        with pytest.raises(PackError, match=r": is a") as caught:
            open_pack(path)
        assert what.split()[1] in str(caught.value)


@pytest.mark.parametrize("content", CONTENTS)
def test_the_error_for_a_session_names_the_kind_of_file(
    good: Path, tmp_path: Path, content: str
) -> None:
    data, what, _ = CONTENTS[content]
    (tmp_path / "s").write_bytes(data)
    with onward.LLM(good / "model") as llm:
        with pytest.raises(Error, match=rf"s: is {what}"):
            llm.session().load(tmp_path / "s")
        assert len(llm.session().send("a", max_new_tokens=1).token_ids) == 1


def test_a_file_of_one_tensor_is_not_a_folder(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a.safetensors", {"a": [1.0]})
    assert "is one file of a model, expected its folder" in message(tmp_path / "a.safetensors")
