"""Shows an answer as one JSON object, as plain text, or as rendered Markdown."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
from typing import TYPE_CHECKING, Protocol

from onward.cli import flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onward.calls.result import Result
    from onward.sessions.stream import SessionStream

# Control characters, which would change the terminal, become visible signs.
_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
_VISIBLE |= {0x7F: 0x2421, **dict.fromkeys(range(0x80, 0xA0), 0xFFFD)}


class Answer(Protocol):
    """An answer on the screen, during its generation."""

    def write(self, piece: str) -> None: ...
    def end(self) -> None: ...


class Screen:
    """Shows the answers of one chat on stdout."""

    def __init__(self, *, as_json: bool, plain: bool, verbose: bool) -> None:
        self._json = as_json
        self._verbose = verbose
        self._terminal = sys.stdout.isatty()
        self._rendered = self._terminal and not (plain or as_json) and _can_render()

    @property
    def json(self) -> bool:
        return self._json

    def show(self, stream: SessionStream) -> Result:
        """Write an answer during its generation."""
        with stream, _without_echo():
            if self._json:
                for _ in stream:
                    pass
                flags.show(json.dumps(stream.result.to_dict()) + "\n")
            else:
                self._write(stream)
        if self._verbose:
            print(flags.timings_line(stream.result), file=sys.stderr)
        return stream.result

    def _write(self, stream: SessionStream) -> None:
        answer = self._new_answer()
        try:
            for piece in stream:
                answer.write(piece.translate(_VISIBLE) if self._terminal else piece)
        except OSError:
            raise  # stdout is closed
        except BaseException:
            with contextlib.suppress(OSError):
                answer.end()
            raise
        answer.end()

    def _new_answer(self) -> Answer:
        if self._rendered:
            from onward.cli.chat.markdown import RenderedAnswer

            return RenderedAnswer()
        return _PlainAnswer()


class _PlainAnswer:
    """Shows the text unchanged."""

    def write(self, piece: str) -> None:
        flags.show(piece)

    def end(self) -> None:
        flags.show("\n")


@contextlib.contextmanager
def _without_echo() -> Iterator[None]:
    """Do not echo typed text during an answer. The next input begins with this text."""
    try:
        import termios

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError, termios.error):  # not a terminal
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _can_render() -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return importlib.util.find_spec("rich") is not None
