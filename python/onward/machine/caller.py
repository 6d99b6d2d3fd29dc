"""Warnings that point at the line of the program that called this package."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_SKIPPED = (__name__.partition(".")[0], "contextlib")


def warn_caller(text: str) -> None:
    """A UserWarning at the innermost line outside of this package.

    Frames of contextlib are skipped too: a context manager of this package stands between two
    modules of it.
    """
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _SKIPPED:
        frame = frame.f_back
        level += 1
    warnings.warn(text, stacklevel=level)
