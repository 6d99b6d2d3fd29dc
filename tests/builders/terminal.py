"""A child process on a pseudo-terminal, and the screen that a user would see."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import pexpect
import pyte

PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"


class Terminal:
    """Sends input to ``python -m onward`` and reads its screen."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        source: str | None = None,
        columns: int = 80,
        rows: int = 100,
    ) -> None:
        """``source``: Python code to run instead of ``-m onward``."""
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        begin = ["-m", "onward"] if source is None else ["-c", source]
        self.child = pexpect.spawn(
            sys.executable,
            [*begin, *arguments],
            env={**environment, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"},
            dimensions=(rows, columns),
        )
        self.child.delaybeforesend = None

    @property
    def lines(self) -> list[str]:
        """The rows of the screen down to the cursor, without spaces at their ends."""
        return [line.rstrip() for line in self._screen.display[: self._screen.cursor.y + 1]]

    def wait(self, seen: Callable[[], bool], what: str, seconds: float = 30) -> None:
        """Read until a condition on the screen is true."""
        deadline = time.monotonic() + seconds
        while not seen():
            alive = self.child.isalive() and time.monotonic() < deadline
            assert alive, f"no {what} in\n" + "\n".join(self.lines)
            self._read(0.2)

    def expect(self, text: str, seconds: float = 30) -> None:
        """Read until the text is on the screen."""
        self.wait(lambda: text in "\n".join(self.lines), repr(text), seconds)

    def prompt(self) -> None:
        """Read until there is an empty prompt."""
        self.wait(lambda: self.lines[-1] == ">", "prompt")

    def type(self, keys: str) -> None:
        self.child.send(keys.encode())

    def paste(self, text: str) -> None:
        """Paste as a terminal does: in brackets, with carriage returns."""
        self.type(PASTE_BEGIN + text.replace("\n", "\r") + PASTE_END)

    def ask(self, keys: str, seconds: float = 30) -> list[str]:
        """Type a text, press Enter, wait for the next prompt; returns the rows between them."""
        self.prompt()
        return self.go_on(keys, seconds)

    def go_on(self, keys: str, seconds: float = 30) -> list[str]:
        """Like ``ask``, after a text was typed."""
        before = len(self.lines)
        self.type(keys)
        self.wait(lambda: self.lines[-1] != ">", "typed text")
        self.type("\r")
        self.wait(lambda: len(self.lines) > before and self.lines[-1] == ">", "prompt", seconds)
        typed = len(re.sub(r"[^\x20-\x7e]", "", keys)) // 78 + 1
        return self.lines[before - 1 + typed : -1]

    def resize(self, columns: int, rows: int) -> None:
        self.child.setwinsize(rows, columns)  # sends SIGWINCH
        self._screen.resize(rows, columns)

    def exit_code(self) -> int:
        """Wait for the end; returns the exit code, negative for a signal."""
        deadline = time.monotonic() + 30
        while self.child.isalive():
            assert time.monotonic() < deadline, "still running:\n" + "\n".join(self.lines)
            time.sleep(0.02) if self.child.closed else self._read(0.2)
        if not self.child.closed:
            self._read(0)
        status = self.child.exitstatus
        return -self.child.signalstatus if status is None else status

    def hang_up(self) -> None:
        """Close the terminal, as when a window is closed."""
        self.child.ptyproc.fileobj.close()
        self.child.closed = True

    def close(self) -> None:
        if not self.child.closed:
            self.child.close(force=True)

    def _read(self, seconds: float) -> None:
        try:
            self._stream.feed(self.child.read_nonblocking(65536, timeout=seconds))
        except pexpect.TIMEOUT:
            return
        except pexpect.EOF:
            time.sleep(min(seconds, 0.05))
