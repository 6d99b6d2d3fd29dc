"""Parses one typed message: plain lines, or a text between fences."""

from __future__ import annotations

from dataclasses import dataclass

PROMPT = "> "
FENCE = '"""'


@dataclass(frozen=True)
class Typed:
    """One message or command."""

    text: str
    quoted: bool = False
    """Whether the text stood between fences, so that it is never a command."""


def is_open(text: str) -> bool:
    """Whether a message continues on the next line."""
    return fence_is_open(text) or text.endswith("\\")


def fence_is_open(text: str) -> bool:
    """Whether a message began with a fence that is not closed yet."""
    stripped = text.strip()
    closed = len(stripped) >= 2 * len(FENCE) and stripped.endswith(FENCE)
    return stripped.startswith(FENCE) and not closed


def typed(text: str) -> Typed:
    """A message without its fences."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    stripped = text.strip()
    if not stripped.startswith(FENCE):
        return Typed(text)
    return Typed(stripped.removeprefix(FENCE).removesuffix(FENCE).strip("\n"), quoted=True)
