"""Reads the messages of a chat from a terminal or a pipe.

A message may have several lines: between lines of three double quotes, and on a terminal also after
a backslash that ends a line.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from typing import Protocol

from onward.cli import streams
from onward.cli.chat.history import History
from onward.cli.chat.typed import PROMPT, Typed, fence_is_open, is_open, typed
from onward.errors import InvalidArgument


class Reader(Protocol):
    """The interface of a reader of messages."""

    def read(self, prefill: str = "") -> Typed:
        """The next message. ``prefill`` is a text to begin with, if the input can be edited. Raises
        EOFError at the end, and InvalidArgument for bytes that are not UTF-8."""
        ...


def new_reader(history: History) -> Reader:
    """The best reader for stdin."""
    if not sys.stdin.isatty():
        return PipeReader()
    if can_edit():
        from onward.cli.chat.editor import EditingReader  # needs prompt_toolkit

        return EditingReader(history)
    return LineReader(history)


def can_edit() -> bool:
    """Whether stdin and stdout are a terminal that prompt_toolkit can use, and it is installed."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return terminal and importlib.util.find_spec("prompt_toolkit") is not None


class PipeReader:
    """Lines of a pipe or a file, each a message."""

    def __init__(self) -> None:
        self._lines = streams.stdin_lines()

    def read(self, prefill: str = "") -> Typed:
        text = self._line()
        while fence_is_open(text):
            try:
                text += "\n" + self._line()
            except EOFError:
                break
        return typed(text)

    def _line(self) -> str:
        line = next(self._lines, None)
        if line is None:
            raise EOFError
        return line


class LineReader:
    """A terminal without prompt_toolkit. Arrow keys and history come from readline, if present."""

    def __init__(self, history: History) -> None:
        self._history = history
        # If stdout is a file, the prompt does not belong there.
        self._prompts_on_stderr = not sys.stdout.isatty()
        with contextlib.suppress(ImportError):
            import readline

            for entry in history.entries:
                readline.add_history(entry)

    def read(self, prefill: str = "") -> Typed:
        text = self._line(PROMPT)
        while is_open(text):
            if not fence_is_open(text):
                text = text[:-1]
            try:
                text += "\n" + self._line("  ")
            except EOFError:
                break
        self._history.add(text)
        return typed(text)

    def _line(self, prompt: str) -> str:
        try:
            if self._prompts_on_stderr:
                print(prompt, end="", file=sys.stderr, flush=True)
                return input()
            return input(prompt)
        except UnicodeDecodeError:
            raise InvalidArgument("the line is not UTF-8, expected text") from None
