"""The syntax of hub names: ``user/repo``, ``user/repo:TAG`` and ``...@revision``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.message_text import label, shown

SPELLING = "user/repo, user/repo:Q4_K_M for one GGUF file of it, and @revision at the end"
PACK = ".onward"

_NAME = re.compile(
    r"(?P<repo>[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)"
    r"(?P<rest>[:@].*)?"
)
_REST = re.compile(r"(?::(?P<tag>[A-Za-z0-9][A-Za-z0-9._/+-]*))?(?:@(?P<revision>[^\s@:]+))?")


@dataclass(frozen=True)
class HubName:
    """A repository of the hub, and the selected part of it."""

    repo: str
    tag: str | None = None
    """The GGUF file: the quantisation in the file's name, or the file's name."""
    revision: str | None = None
    """A branch, a tag or a commit; None is the hub's default branch, main."""

    def __str__(self) -> str:
        tag = "" if self.tag is None else f":{self.tag}"
        return f"{self.repo}{tag}{'' if self.revision is None else '@' + self.revision}"


def parse(text: str) -> HubName | None:
    """The parsed name, or None if the text is no name of the hub.

    Raises:
        InvalidArgument: the text begins like such a name, but the rest is malformed.
    """
    match = _NAME.fullmatch(text)
    if match is None or match["repo"].endswith((".gguf", PACK)):
        return None
    rest = _REST.fullmatch(match["rest"] or "")
    if rest is None or not text.isprintable():
        order = "; the revision comes last" if re.search(r"@[^:]*:", text) else ""
        raise InvalidArgument(f"model: {label(text)}: expected {SPELLING}{order}")
    return HubName(match["repo"], rest["tag"], rest["revision"])


def with_revision(name: HubName, revision: object) -> HubName:
    """The name with a revision that was given separately.

    Raises:
        InvalidArgument: the name has another revision.
    """
    if revision is None:
        return name
    if not isinstance(revision, str):
        raise ArgumentTypeError(f"revision: is {shown(revision)}, expected text or None")
    if not re.fullmatch(r"[^\s@:]+", revision) or not revision.isprintable():
        raise InvalidArgument(
            f"revision: is {shown(revision)}, expected a branch, a tag or a commit"
        )
    if name.revision not in (None, revision):
        raise InvalidArgument(
            f"revision: is {shown(revision)}, but the model is {label(str(name))}, expected one of "
            "the two, or both the same"
        )
    return replace(name, revision=revision)
