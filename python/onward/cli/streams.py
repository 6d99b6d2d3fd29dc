"""Handles the standard streams and signals of the ``onward`` process.

A closed or full stream and a signal end in an exit code and at most one line, not in a traceback.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from onward.errors import Error, InvalidArgument

INTERRUPTED = 128 + signal.SIGINT
# Signals that end the command cleanly: files are closed, and the exit code is 128 + number.
_ENDING = [
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
]  # there is no SIGHUP on Windows


class StreamError(Error):
    """stdin, stdout or stderr cannot be used."""


class _BestEffort(io.TextIOWrapper):
    """A stderr that drops text that cannot be written, such as on a full disk."""

    def write(self, text: str) -> int:
        with self._forgiving():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with self._forgiving():
            super().flush()

    @contextlib.contextmanager
    def _forgiving(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):
            # The rest of the buffer goes to the null device, now and at exit.
            with contextlib.suppress(OSError, ValueError):
                discard(self.fileno())


def open_streams() -> None:
    """Replace closed streams, so that no file that is opened later gets their descriptors.

    A closed stdin or stdout is an error when the command first uses it. A closed or full stderr
    loses only the messages.
    """
    closed = []
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            discard(descriptor)
            closed.append(name)
    if "stdin" in closed:
        sys.stdin = _Closed("stdin")
    if "stdout" in closed:
        sys.stdout = _Closed("stdout")
    if "stderr" in closed:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (for good)
    elif isinstance(sys.stderr, io.TextIOWrapper):
        encoding = sys.stderr.encoding
        sys.stderr = _BestEffort(
            sys.stderr.detach(),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=True,
        )
        vars(sys)["__stderr__"] = sys.stderr


def check_stdout() -> None:
    """Raise StreamError if stdout was closed, before work whose result goes there."""
    if isinstance(sys.stdout, _Closed):
        raise sys.stdout.error()


class _Closed(io.TextIOBase):
    """Replaces a stream that was closed before the command began."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def buffer(self) -> Any:
        raise self.error()

    def read(self, size: int | None = -1) -> str:
        raise self.error()

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
        raise self.error()

    def write(self, text: str) -> int:
        raise self.error()

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return ("stdin", "stdout").index(self._name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def error(self) -> StreamError:
        return StreamError(f"{self._name}: is closed, expected a file, a pipe or a terminal")


def discard(descriptor: int) -> None:
    """Redirect a descriptor to the null device."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == descriptor:
        os.set_inheritable(null, True)
    else:
        os.dup2(null, descriptor)
        os.close(null)


def catch_signals() -> None:
    """Make SIGTERM and SIGHUP raise an exception, as Ctrl-C does. A signal that the parent ignores,
    such as under ``nohup``, stays ignored."""
    sys.unraisablehook = _note_unraisable
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def ignore_signals() -> None:
    """Ignore signals from here on, so that nothing interrupts the exit of the process."""
    for number in (signal.SIGINT, *_ENDING):
        signal.signal(number, signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _note_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Handle an exception that nothing can catch, such as in the callback of a weakref. A signal
    that arrives there is sent again; any other exception is printed as a line."""
    error = unraisable.exc_value
    number = 0
    if isinstance(error, KeyboardInterrupt):
        number = int(signal.SIGINT)
    elif isinstance(error, SystemExit) and isinstance(error.code, int):
        number = error.code - 128
    if number > 0:
        again = threading.Timer(0.01, os.kill, (os.getpid(), number))
        again.daemon = True
        with contextlib.suppress(RuntimeError):  # the process is ending
            again.start()
    elif sys.stderr is not None:
        said = " ".join(str(error).split())
        print(f"onward: note: {unraisable.exc_type.__name__}: {said}", file=sys.stderr)


def finish(code: int, complain: Callable[[str], object]) -> int:
    """Flush stdout. Returns the exit code, which is 1 if the flush fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard(1)
    except (OSError, ValueError) as failure:
        discard(1)
        if code == 0:
            complain(str(cannot_write("stdout", failure)))
            return 1
    return code


def cannot_write(where: str, failure: OSError | ValueError) -> Error:
    """The error for a stream or file that cannot be written."""
    reason = getattr(failure, "strerror", None) or failure
    return StreamError(f"{where}: cannot write: {reason}")


def show(text: str) -> None:
    """Write text to stdout at once. Characters that it cannot encode become escapes."""
    try:
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError:
            encoding = sys.stdout.encoding or "ascii"
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise cannot_write("stdout", failure) from failure


def read_stdin() -> str:
    """All of stdin as text, without the newline that ends it."""
    with _reading():
        data = sys.stdin.buffer.read()
    return decoded(data, "stdin").removesuffix("\n")


def stdin_lines() -> Iterator[str]:
    """Lines of stdin as they arrive, without their ends."""
    with _reading():
        source = sys.stdin.buffer
    number = 0
    while True:
        with _reading():
            line = source.readline()
        if not line:
            return
        number += 1
        yield decoded(line, f"stdin: line {number},").rstrip("\r\n")


def decoded(data: bytes, where: str) -> str:
    """UTF-8 bytes as text. Raises InvalidArgument with the place of the first byte that is not
    UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        between = "" if where.endswith(",") else ":"
        raise InvalidArgument(
            f"{where}{between} byte {error.start} is not UTF-8, expected text"
        ) from None


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except OSError as failure:  # a folder, or a descriptor for writing only
        raise StreamError(f"stdin: cannot read: {failure.strerror or failure}") from failure
