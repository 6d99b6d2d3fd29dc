"""The models in the hub's cache, and how they are removed.

The cache belongs to the client and is shared: a removed model is gone for other programs as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onward.errors import InvalidArgument, ModelNotFound
from onward.load.hub.fetching import client
from onward.load.hub.names import HubName
from onward.load.hub.selection import gguf_files, tag_of, tags_of, weight_files
from onward.machine.extras import pip_install
from onward.message_text import labels

_COMMIT_DIGITS = 8


@dataclass(frozen=True)
class CachedModel:
    """One model in the cache, at one revision."""

    name: str
    """The name for ``--model``: user/repo, with :TAG for a GGUF and @revision for other than
    main."""
    revision: str
    """The branches and tags that point to it, if any, and the beginning of the commit."""
    format: str
    size_bytes: int
    last_used: float
    """Seconds since 1970."""
    path: str


def cached_models() -> list[CachedModel]:
    """The models in the cache, by name: one row for each revision, and for each GGUF in it.

    Repositories without readable weights are listed too, so that they can be removed.
    """
    found = [
        model
        for repository in _repositories()
        for revision in repository.revisions
        for model in _models(repository.repo_id, revision)
    ]
    return sorted(found, key=lambda model: (model.name.lower(), model.revision))


@dataclass(frozen=True)
class Removal:
    """What a removal would delete. ``execute`` deletes it."""

    names: tuple[str, ...]
    freed_bytes: int
    strategy: Any

    def execute(self) -> None:
        """Remove the files."""
        self.strategy.execute()


def removal(name: HubName) -> Removal:
    """What the cache has under this name: a repository, one revision of it, or one GGUF file.

    Raises:
        ModelNotFound: the cache has nothing with that name.
        InvalidArgument: the client is too old to remove one file of several.
    """
    repository = next((each for each in _repositories() if each.repo_id == name.repo), None)
    if repository is None:
        raise ModelNotFound(f"{name}: is not in the cache; onward list shows what is")
    revisions = [each for each in repository.revisions if _is_meant(each, name.revision)]
    if not revisions:
        there = labels(_revision(each) for each in repository.revisions)
        raise ModelNotFound(f"{name}: the cache has no such revision, expected one of {there}")
    cache = client().scan_cache_dir()
    models = [model for each in revisions for model in _models(name.repo, each)]
    if name.tag is None:
        strategy = cache.delete_revisions(*(each.commit_hash for each in revisions))
        return Removal(tuple(m.name for m in models), int(strategy.expected_freed_size), strategy)
    wanted = name.tag.lower()
    chosen = [model for model in models if _tag(model.name).lower() == wanted]
    if not chosen:
        raise ModelNotFound(
            f"{name}: the cache has no such file, expected one of {labels(m.name for m in models)}"
        )
    strategy = _without(cache, revisions, models, wanted)
    return Removal(tuple(m.name for m in chosen), int(strategy.expected_freed_size), strategy)


def _without(cache: Any, revisions: list[Any], models: list[CachedModel], wanted: str) -> Any:
    """Remove one GGUF, or the whole revision if it has no other model."""
    if all(_tag(model.name).lower() == wanted for model in models):
        return cache.delete_revisions(*(each.commit_hash for each in revisions))
    if not hasattr(cache, "delete_files"):
        raise InvalidArgument(
            "rm: this huggingface_hub cannot remove one file of several; remove the repository, or "
            f"update: {pip_install('--upgrade', 'huggingface_hub')}"
        )
    files = []
    for revision in revisions:
        by_name = {_relative(file, revision): file for file in revision.files}
        ggufs = gguf_files(list(by_name))
        for stem, tag in tags_of(ggufs).items():
            if tag.lower() == wanted:
                files += [by_name[part] for part in ggufs[stem]]
    return cache.delete_files(*files)


def _repositories() -> Iterator[Any]:
    hub = client()
    from huggingface_hub.errors import CacheNotFound

    try:
        cache = hub.scan_cache_dir()
    except CacheNotFound:
        return
    yield from (each for each in cache.repos if each.repo_type == "model")


def _models(repo: str, revision: Any) -> Iterator[CachedModel]:
    """The models of one revision in the cache."""
    by_name = {_relative(file, revision): file for file in revision.files}
    suffix = "" if _is_main(revision) else f"@{_short(revision)}"
    ggufs = gguf_files(list(by_name))
    weights = weight_files(list(by_name))
    if weights or not ggufs:
        chosen = [file for file in by_name if not file.endswith(".gguf")]
        kind = _folder_format(revision, by_name) if weights else "no weights"
        yield _row(repo + suffix, revision, kind, [by_name[file] for file in chosen])
    for stem, tag in tags_of(ggufs).items():
        files = [by_name[part] for part in ggufs[stem]]
        yield _row(f"{repo}:{tag}{suffix}", revision, f"GGUF {tag_of(stem)}", files)


def _row(name: str, revision: Any, format: str, files: list[Any]) -> CachedModel:
    return CachedModel(
        name=name,
        revision=_revision(revision),
        format=format,
        size_bytes=sum(file.size_on_disk for file in files),
        last_used=max((file.blob_last_accessed for file in files), default=0.0),
        path=str(revision.snapshot_path),
    )


def _folder_format(revision: Any, by_name: dict[str, Any]) -> str:
    """safetensors, with the dtype or the quantisation that config.json names."""
    try:
        config = json.loads(Path(by_name["config.json"].file_path).read_bytes())
        quantization = config.get("quantization_config") or {}
        detail = quantization.get("quant_method") or config.get("dtype") or config["torch_dtype"]
    except (OSError, ValueError, KeyError, AttributeError):
        return "safetensors"
    return f"safetensors {str(detail)[:20]}"


def _is_meant(revision: Any, wanted: str | None) -> bool:
    if wanted is None or wanted in revision.refs:
        return True
    return len(wanted) >= _COMMIT_DIGITS - 1 and str(revision.commit_hash).startswith(wanted)


def _is_main(revision: Any) -> bool:
    return "main" in revision.refs


def _short(revision: Any) -> str:
    """The value for @revision: a branch or tag, otherwise the whole commit."""
    return min(revision.refs, default=str(revision.commit_hash))


def _revision(revision: Any) -> str:
    return " ".join([*sorted(revision.refs), str(revision.commit_hash)[:_COMMIT_DIGITS]])


def _relative(file: Any, revision: Any) -> str:
    return Path(file.file_path).relative_to(revision.snapshot_path).as_posix()


def _tag(name: str) -> str:
    return name.partition("@")[0].partition(":")[2]
