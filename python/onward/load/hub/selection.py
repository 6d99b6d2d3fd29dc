"""Selects the files of a repository that make up a model: safetensors, or one GGUF with its
parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Literal

from onward.errors import ModelNotFound
from onward.load.hub.names import HubName
from onward.message_text import labels

PREFERRED = ("Q4_K_M", "Q4_0", "Q5_K_M", "Q6_K", "Q8_0")
"""Without a tag, the first of these that a repository of several GGUF files has is selected."""

_SINGLE = "model.safetensors"
_TEXTS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
_INDEX = "model.safetensors.index.json"
_TAG = re.compile(
    r"(?<![A-Za-z0-9])(?:UD-)?(?:(?:I|T)?Q\d(?:_[A-Z0-9]+)*|BF16|F16|FP16|F32|MXFP4(?:_MOE)?)"
    r"(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_PART = re.compile(r"-(\d{5})-of-(\d{5})$")
# GGUF files beside a model that are not text models.
_OTHER_GGUF = re.compile(r"(^|/)mmproj|imatrix", re.IGNORECASE)


@dataclass(frozen=True)
class Selection:
    """The files of one model, as paths in the repository; the first part of a GGUF comes first."""

    kind: Literal["folder", "gguf"]
    files: tuple[str, ...]
    tag: str | None = None


def select(name: HubName, files: Sequence[str]) -> Selection:
    """The files of the model that ``name`` means, out of all files of its repository.

    A tag selects the GGUF whose file name contains the tag as a word, in upper or lower case, or
    equals it. Without a tag, safetensors have priority, then the only GGUF, then the first of
    PREFERRED.

    Raises:
        ModelNotFound: no file fits, or several do. The message lists the choices.
    """
    ggufs = gguf_files(files)
    if name.tag is not None:
        return _tagged(name, name.tag, ggufs)
    weights = weight_files(files)
    if "config.json" in files and weights:
        texts = [file for file in files if file in _TEXTS]
        index = [_INDEX] if _INDEX in files and weights != [_SINGLE] else []
        return Selection("folder", (*texts, *index, *weights))
    if len(ggufs) == 1:
        return _whole(name, next(iter(ggufs)), ggufs)
    for tag in PREFERRED:
        found = _fitting(tag, ggufs)
        if len(found) == 1:
            return _whole(name, found[0], ggufs)
    if ggufs:
        raise ModelNotFound(
            f"{name}: has {len(ggufs)} GGUF files and none of {', '.join(PREFERRED)} among them, "
            f"expected one of {_spelled(name, ggufs)}"
        )
    there = labels(sorted(files)) or "nothing"
    raise ModelNotFound(
        f"{name}: holds {there}, expected config.json with .safetensors files, or a .gguf file"
    )


def weight_files(files: Sequence[str]) -> list[str]:
    """The safetensors of the model: model.safetensors alone, if it exists."""
    if _SINGLE in files:
        return [_SINGLE]
    return [
        file
        for file in files
        if "/" not in file
        and file.endswith(".safetensors")
        and not fnmatch(file, "consolidated*")
        and not fnmatch(file, "adapter*")
    ]


def gguf_files(files: Sequence[str]) -> dict[str, list[str]]:
    """The GGUF models among the files: name without part number and suffix -> files, in order."""
    found: dict[str, list[str]] = {}
    for file in sorted(files):
        if file.endswith(".gguf") and not _OTHER_GGUF.search(file):
            found.setdefault(_PART.sub("", file.removesuffix(".gguf")), []).append(file)
    return found


def tag_of(stem: str) -> str:
    """The quantisation in a file's name, or the name itself if it has none."""
    base = stem.rpartition("/")[2]
    tags = _TAG.findall(base)
    return tags[-1].upper() if tags else base


def tags_of(ggufs: Iterable[str]) -> dict[str, str]:
    """The tag of each GGUF of a repository, or its file name if others have the same tag."""
    tags = {stem: tag_of(stem) for stem in ggufs}
    counts = Counter(tags.values())
    return {stem: tag if counts[tag] == 1 else stem for stem, tag in tags.items()}


def _tagged(name: HubName, tag: str, ggufs: dict[str, list[str]]) -> Selection:
    found = _fitting(tag, ggufs)
    if len(found) == 1:
        return _whole(name, found[0], ggufs)
    if found:
        exact = ", ".join(f"{name.repo}:{stem}" for stem in found)
        raise ModelNotFound(f"{name}: {len(found)} GGUF files fit, expected one of {exact}")
    there = f"expected one of {_spelled(name, ggufs)}" if ggufs else "the repository has no GGUF"
    raise ModelNotFound(f"{name}: no GGUF file fits {tag}, {there}")


def _fitting(tag: str, ggufs: dict[str, list[str]]) -> list[str]:
    wanted = tag.lower().removesuffix(".gguf")
    called = [
        stem
        for stem in ggufs
        if wanted in (stem.lower(), stem.lower().rpartition("/")[2])
        or any(file.lower().removesuffix(".gguf") == wanted for file in ggufs[stem])
    ]
    word = re.compile(rf"(?<![a-z0-9]){re.escape(wanted)}(?![a-z0-9_])")
    return called or [stem for stem in ggufs if word.search(stem.lower().rpartition("/")[2])]


def _whole(name: HubName, stem: str, ggufs: dict[str, list[str]]) -> Selection:
    """The GGUF with all of its parts.

    Raises:
        ModelNotFound: a part is missing.
    """
    files = ggufs[stem]
    part = _PART.search(files[0].removesuffix(".gguf"))
    if part is not None:
        count = int(part[2])
        expected = [f"{stem}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]
        if missing := [file for file in expected if file not in files]:
            raise ModelNotFound(f"{name}: {count} parts, without {labels(missing)}")
        files = expected
    return Selection("gguf", tuple(files), tags_of(ggufs)[stem])


def _spelled(name: HubName, ggufs: dict[str, list[str]]) -> str:
    """The GGUF files of a repository, by the names that select them."""
    return labels(f"{name.repo}:{tag}" for tag in tags_of(ggufs).values())
