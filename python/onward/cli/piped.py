"""Handles text on stdin in addition to a prompt argument: it is used or refused, and the wait for
it is limited.

Schedulers, CI jobs and other programs often start a command with a stdin that stays open and sends
nothing. So no command reads stdin to its end before the first bytes have arrived.
"""

from __future__ import annotations

import os
import select
import stat
import sys

from onward.cli.streams import read_stdin
from onward.errors import InvalidArgument

NOTE_AFTER_S = 2.0
PATIENCE_S = 10.0


def refuse_text(name: str) -> None:
    """Raise InvalidArgument if stdin has text and the argument ``name`` is given too.

    Reads nothing, and does not wait for text on an open stdin.
    """
    if _bytes_ready():
        raise InvalidArgument(
            f"stdin: has text, but the argument {name} is given too, expected one of them: "
            f"leave out {name} to read stdin, or add < /dev/null to ignore it"
        )


def note_late_text(name: str) -> None:
    """Write a line to stderr if text arrived on stdin after ``refuse_text``, during the work."""
    if _bytes_ready():
        print(
            f"onward: note: stdin: its text was not read, because the argument {name} is given",
            file=sys.stderr,
        )


def text_beside() -> str:
    """All text of a pipe or a file on stdin; empty if no text arrives in time."""
    descriptor = _descriptor()
    if descriptor is None:
        return ""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not select.select([descriptor], [], [], NOTE_AFTER_S)[0]:
        print(
            f"onward: note: waiting {PATIENCE_S:g} s for text on stdin, which is part of the "
            "message; < /dev/null leaves it out",
            file=sys.stderr,
        )
        if not select.select([descriptor], [], [], PATIENCE_S - NOTE_AFTER_S)[0]:
            print("onward: note: no text arrived on stdin; continuing without it", file=sys.stderr)
            return ""
    return read_stdin()


def _descriptor() -> int | None:
    """The descriptor of stdin if it is a pipe, a socket or a file."""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    kinds = (stat.S_ISREG, stat.S_ISFIFO, stat.S_ISSOCK)
    return descriptor if any(kind(mode) for kind in kinds) else None


def _bytes_ready() -> int:
    """The number of bytes that can be read from stdin without waiting.

    The bytes stay unread: in a shell loop they are the input of the loop."""
    descriptor = _descriptor()
    if descriptor is None:
        return 0
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            return max(0, found.st_size - os.lseek(descriptor, 0, os.SEEK_CUR))
        import fcntl
        import termios

        answer = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0")
    except (ImportError, OSError):
        return 0
    return int.from_bytes(answer, sys.byteorder)
