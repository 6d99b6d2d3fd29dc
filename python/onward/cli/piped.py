"""Text on stdin beside a prompt that is an argument: it is used or refused, and never waited for
without an end.

Schedulers, CI jobs and other programs often start a command with a stdin that stays open and gives
nothing. So no command reads stdin to its end before something has come.
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
    """InvalidArgument where stdin has text already, while the argument `name` is given.

    Nothing is read, and an open stdin without text is not waited for.
    """
    if _bytes_ready():
        raise InvalidArgument(
            f"stdin: has text, but the argument {name} is given too, expected one of them: "
            f"leave out {name} to read stdin, or add < /dev/null to ignore it"
        )


def note_late_text(name: str) -> None:
    """A line on stderr where text came on stdin after `refuse_text`, during the work."""
    if _bytes_ready():
        print(
            f"onward: note: stdin: its text was not read, because the argument {name} is given",
            file=sys.stderr,
        )


def text_beside() -> str:
    """All text of a pipe or a file on stdin; empty where the first of it does not come in time."""
    descriptor = _descriptor()
    if descriptor is None:
        return ""
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not select.select([descriptor], [], [], NOTE_AFTER_S)[0]:
        print(
            f"onward: note: waiting {PATIENCE_S:g} s for text on stdin, which belongs to the "
            "message; < /dev/null leaves it out",
            file=sys.stderr,
        )
        if not select.select([descriptor], [], [], PATIENCE_S - NOTE_AFTER_S)[0]:
            print("onward: note: nothing came on stdin; going on without it", file=sys.stderr)
            return ""
    return read_stdin()


def _descriptor() -> int | None:
    """The descriptor of stdin where that is a pipe, a socket or a file."""
    try:
        descriptor = sys.stdin.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    kinds = (stat.S_ISREG, stat.S_ISFIFO, stat.S_ISSOCK)
    return descriptor if any(kind(mode) for kind in kinds) else None


def _bytes_ready() -> int:
    """How many bytes can be read from stdin at once. They are left there: in a loop of a shell,
    they are the input of the loop."""
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
