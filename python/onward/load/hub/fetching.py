"""Downloads a model by name with ``huggingface_hub`` into its cache, and finds it there offline.

The client owns the cache, the credentials and the settings; other programs share them.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onward.errors import IoError, MissingExtra, ModelNotFound
from onward.files.json_file import read_json_object
from onward.load.hub import failures
from onward.load.hub.local import ModelFiles
from onward.load.hub.names import HubName
from onward.load.hub.selection import Selection, select
from onward.machine.extras import install_command
from onward.machine.progress import ProgressBar

_PATIENCE_S = 10.0
_LOOK_S = 0.2  # between two looks at the bytes on the disk


def client() -> Any:
    """The package.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import huggingface_hub
    except ImportError as failure:
        raise MissingExtra(
            "hub: models by name are fetched by huggingface_hub, which is not installed: "
            f"{install_command('hub')}"
        ) from failure
    return huggingface_hub


def fetch(name: HubName, *, offline: bool = False) -> ModelFiles:
    """The files of the model in the cache, downloaded if they are missing.

    The hub is asked first, so that a branch that moved is noticed. If it does not answer, or if
    ``offline`` is set, the revision in the cache is used.

    Raises:
        ModelNotFound: no such model, revision or file, no access, no network.
        IoError: the disk is full, or the cache cannot be written.
        MissingExtra: huggingface_hub is not installed.
    """
    hub = client()
    if offline:
        found, problem = _cached(hub, name)
        if found is None:
            raise ModelNotFound(f"{name}: {problem}")
        return found
    try:
        info = hub.HfApi().model_info(
            name.repo, revision=name.revision, files_metadata=True, timeout=_PATIENCE_S
        )
    except Exception as failure:  # errors of the client and of its HTTP library
        return _instead(hub, name, failure)
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or []}
    selection = select(name, list(siblings))
    missing = [
        siblings[file] for file in selection.files if not _is_cached(hub, name, info.sha, file)
    ]
    size = sum(sibling.size or 0 for sibling in missing if not _has_blob(name, sibling))
    _check_room(name, size)
    try:
        with _progress(hub, name, len(missing), size):
            folder = hub.snapshot_download(
                name.repo,
                revision=name.revision,
                allow_patterns=[glob.escape(file) for file in selection.files],
            )
    except Exception as failure:
        raise failures.explained(name, failure, "the cache has only a part of it") from failure
    return _files(name, Path(folder), selection)


def _instead(hub: Any, name: HubName, failure: Exception) -> ModelFiles:
    """The model in the cache, if the hub gives no useful answer."""
    if failures.is_unknown_revision(failure):
        raise failures.explained(name, failure) from failure
    found, problem = _cached(hub, name)
    error = failures.explained(name, failure, problem)
    if found is None:
        raise error from failure
    if not (failures.is_offline(failure) or failures.is_unreachable(failure)):
        warnings.warn(f"{error}; the copy in the cache is used", stacklevel=2)
    return found


def _cached(hub: Any, name: HubName) -> tuple[ModelFiles | None, str]:
    """The model, if the cache has all of it; otherwise None and the missing files."""
    try:
        # The pattern matches no file. The files that matter are checked here.
        folder = Path(
            hub.snapshot_download(
                name.repo, revision=name.revision, local_files_only=True, allow_patterns=["\n"]
            )
        )
    except Exception:
        return None, "it is not in the cache"
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    try:
        selection = select(name, files)
    except ModelNotFound as failure:
        return None, f"the cache has only a part of it ({failure})"
    index = folder / "model.safetensors.index.json"
    if index.name in selection.files:
        shards = read_json_object(index, str(index)).get("weight_map")
        named = set(shards.values()) if isinstance(shards, dict) else set()
        if lacking := sorted(str(shard) for shard in named if shard not in selection.files):
            return None, f"the cache has only a part of it (without {lacking[0]})"
    return _files(name, folder, selection), "it is in the cache"


def _files(name: HubName, folder: Path, selection: Selection) -> ModelFiles:
    if selection.kind == "folder":
        return ModelFiles(str(name), folder, "folder")
    called = HubName(name.repo, selection.tag, name.revision)
    return ModelFiles(str(called), folder / selection.files[0], "gguf")


def _is_cached(hub: Any, name: HubName, commit: str, file: str) -> bool:
    return isinstance(hub.try_to_load_from_cache(name.repo, file, revision=commit), str)


def _has_blob(name: HubName, sibling: Any) -> bool:
    """Whether the bytes are in the cache under another revision."""
    lfs = sibling.lfs
    digest = (lfs.get("sha256") if isinstance(lfs, Mapping) else getattr(lfs, "sha256", None)) or (
        sibling.blob_id
    )
    return digest is not None and (_repository(name) / "blobs" / str(digest)).is_file()


def _check_room(name: HubName, size: int) -> None:
    """Check the free space on the disk of the cache.

    Raises:
        IoError: the download needs more.
    """
    folder = Path(failures.cache_folder()).absolute()
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if size > free:
        raise IoError(
            f"{name}: needs {readable_bytes(size)} in {folder}, which has {readable_bytes(free)} "
            "free; free some with onward list and onward rm, or set HF_HOME to another disk"
        )


@contextlib.contextmanager
def _progress(hub: Any, name: HubName, files: int, size: int) -> Iterator[None]:
    """One bar for the whole download on a terminal; silent otherwise.

    The bar follows the bytes on the disk. The bars of the client differ between its versions and
    draw over later output, so they are switched off meanwhile.
    """
    with contextlib.ExitStack() as stack:
        bars = hub.utils
        if "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ and not (
            bars.are_progress_bars_disabled()
        ):
            bars.disable_progress_bars()
            stack.callback(bars.enable_progress_bars)
        if files > 0 and sys.stderr is not None and sys.stderr.isatty():
            what = "1 file" if files == 1 else f"{files} files"
            print(f"fetching {name}: {what}, {readable_bytes(size)}", file=sys.stderr)
            stack.enter_context(_bar(name, size))
        yield


@contextlib.contextmanager
def _bar(name: HubName, size: int) -> Iterator[None]:
    """A bar over the growth of the repository's folder in the cache."""
    folder = _repository(name) / "blobs"
    before = _bytes_in(folder)
    over = threading.Event()

    def follow(bar: ProgressBar) -> None:
        while not over.wait(_LOOK_S):
            bar(min(_bytes_in(folder) - before, size - 1), size)

    with ProgressBar(f"fetching {readable_bytes(size)}") as bar:
        follower = threading.Thread(target=follow, args=(bar,), daemon=True)
        follower.start()
        try:
            yield
        finally:
            over.set()
            follower.join()


def _repository(name: HubName) -> Path:
    """The folder of a repository in the cache."""
    return Path(failures.cache_folder()) / f"models--{name.repo.replace('/', '--')}"


def _bytes_in(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def readable_bytes(size: int) -> str:
    """A size for people, in decimal units as the hub shows them."""
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
