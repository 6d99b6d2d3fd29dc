"""A folder that keeps a pack of each loaded model, for ``LLM(packed_cache=...)``.

The first load of a model writes its packed weights there. Later loads take them from the pack,
unless its metadata differs: then the model's own tensors are packed again and the file is replaced.
These packs hold no tokenizer and no texts, which are always read from the model's own files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from onward.errors import ArgumentTypeError, InvalidArgument, IoError, PackError, WeightError
from onward.files.names import is_file_name
from onward.load import loading
from onward.load import pack_contents as contents
from onward.load.hub import PACK, ModelFiles
from onward.load.loading import LoadedModel, Progress, Source
from onward.load.packing import pack_facts, write_pack
from onward.load.weights.mapped_file import MappedFile
from onward.load.weights.safetensors import read_header
from onward.machine.caller import warn_caller
from onward.message_text import label

if TYPE_CHECKING:
    from onward import _core

# Version 0.1 wrote another format under this suffix. Such a file is never read.
_OLD_SUFFIX = ".onward-packed"


def check_folder(folder: object) -> Path | None:
    """The folder, which need not exist, or None for None.

    Raises:
        ArgumentTypeError: no path.
        InvalidArgument: a path that cannot be a folder.
    """
    if folder is None:
        return None
    text = os.fspath(folder) if isinstance(folder, (str, os.PathLike)) else folder
    if not isinstance(text, str):
        raise ArgumentTypeError(
            f"packed_cache: {type(folder).__name__} given, expected the path of a folder or None"
        )
    path = os.path.expanduser(text)
    if not is_file_name(text) or (os.path.exists(path) and not os.path.isdir(path)):
        raise InvalidArgument(
            f"packed_cache: {label(text)!r} cannot be a folder, expected the path of one"
        )
    return Path(path)


def load_with_cache(
    packed_cache: str | os.PathLike[str] | None,
    files: ModelFiles,
    dtype: str,
    threads: int,
    progress: Progress | None = None,
    head_dtype: str | None = None,
    kv_dtype: object = "auto",
    device: str = "cpu",
) -> LoadedModel:
    """``load_model`` through a folder of packs; None is ``load_model`` itself.

    Where a pack is written, ``progress`` goes from 0 to all a second time. A pack that is damaged
    or cannot be written is a warning.

    Raises:
        InvalidArgument, ArgumentTypeError: as for ``check_folder``, or the model is a pack itself.
        LoadError, DeviceError: as for ``load_model``.
    """
    folder = check_folder(packed_cache)
    if folder is None:
        return loading.load_model(files, dtype, threads, progress, head_dtype, kv_dtype, device)
    if files.kind == "pack":
        raise InvalidArgument(
            f"packed_cache: is given for {label(files.path.name)}, which is packed already"
        )
    with loading.opened_source(
        files, dtype, threads, progress, head_dtype, kv_dtype, device
    ) as source:
        path = folder / _file_name(source)
        origin = _origin(source)
        if (core := _kept(path, origin, source)) is not None:
            return source.loaded(core)
        loaded = source.loaded(loading.pack(source))
    try:
        facts = pack_facts(loaded, files.name)
        write_pack(path, facts | {"source": origin}, loaded.core.packed(), progress=progress)
    except OSError as failure:
        warn_caller(
            f"packed_cache: {label(path.name)}: cannot write: {failure.strerror or failure}"
        )
    else:
        with contextlib.suppress(OSError):
            path.with_suffix(_OLD_SUFFIX).unlink()
    return loaded


def _file_name(source: Source) -> str:
    """The same after the model's files were written again, so that their old pack is replaced.
    Models of one name in two places have two."""
    matrices = sorted(source.dtypes.matrices.items())
    places = json.dumps([[file.path for file in source.checkpoint.sources()], matrices])
    digest = hashlib.sha256(places.encode()).hexdigest()[:12]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", source.files.name).strip(".-")[:80] or "model"
    return f"{plain}-{source.dtypes.name}-{digest}{PACK}"


def _origin(source: Source) -> str:
    """What packed weights depend on besides spec and dtypes: the files, the stored dtype of each
    tensor, which a config can decide too, and the kind of device."""
    tensors = [tensor for planned in source.plan for tensor in planned.sources]
    stored = contents.written({tensor: source.checkpoint.describe(tensor)[0] for tensor in tensors})
    return contents.written(
        {
            "files": [list(file) for file in source.checkpoint.sources()],
            "stored": hashlib.sha256(stored.encode()).hexdigest(),
            "device": source.device.partition(":")[0],
        }
    )


def _kept(path: Path, origin: str, source: Source) -> _core.Model | None:
    """The model of a pack that fits; None where there is none, or it differs or is damaged."""
    from onward import _core

    if not os.path.lexists(path):
        return None
    expected = {
        "onward": _core.__version__,
        "spec": contents.spec_text(source.spec),
        "dtypes": contents.dtypes_text(source.dtypes),
        "source": origin,
    }
    try:
        file = MappedFile(path)
        try:
            _, metadata = read_header(file)
        finally:
            file.close()
        if any(metadata.get(key) != value for key, value in expected.items()):
            return None
        core, _ = _core.open_pack(path, source.threads, copy=True, device=source.device)
    except (WeightError, PackError, IoError) as failure:
        if os.path.lexists(path):  # else another process removed it meanwhile
            warn_caller(f"packed_cache: {failure}; packing the model's own tensors")
        return None
    if source.progress is not None:
        source.progress(core.weight_bytes, core.weight_bytes)
    return core
