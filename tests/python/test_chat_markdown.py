"""Answers that are rendered as Markdown on a terminal, piece by piece."""

from __future__ import annotations

import os
import pty
import sys
import threading
from collections.abc import Callable
from typing import TextIO

import pyte
import pytest

from onward.cli.chat import markdown
from onward.cli.chat.markdown import RenderedAnswer
from onward.cli.chat.screen import Screen

ANSWER = """\
# Animals

Here are **three bold animals** and some `code_with_stars**` in a line that is longer than the \
screen is wide, so it has to be cut between words.

1. A *lion*
2. A [bear](http://bear.example)

   with a paragraph
10. Ten

```python
def f(x):
    return x ** 2  # a * b
```

| a | b |
|---|---|
| 1 | 2 |

<think>List<int> is text</think>
one line
another line

[note]: http://kept.example
![picture](http://picture.example)
- last"""


class Display:
    """A pseudo-terminal whose screen is kept."""

    def __init__(self, columns: int, rows: int) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        self.output: TextIO = os.fdopen(slave, "w", encoding="utf-8")
        self._bytes = b""
        self.written = 0
        self.resize(columns, rows)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def resize(self, columns: int, rows: int) -> None:
        import fcntl
        import struct
        import termios

        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.output.fileno(), termios.TIOCSWINSZ, size)

    def _read(self) -> None:
        try:
            while piece := os.read(self._master, 65536):
                self._bytes += piece
        except OSError:  # the other end is closed
            return

    def lines(self) -> list[str]:
        """All rows that were shown, after the end."""
        self.output.close()
        self._reader.join()
        os.close(self._master)
        self.written = len(self._bytes)
        self._stream.feed(self._bytes)
        above = [
            "".join(line[x].data for x in range(self.screen.columns)).rstrip()
            for line in self.screen.history.top
        ]
        below = [line.rstrip() for line in self.screen.display]
        return "\n".join(above + below).rstrip().split("\n")


@pytest.fixture
def always_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every piece is drawn, at any rate of pieces."""
    monkeypatch.setattr(markdown.time, "monotonic", iter(range(10**9)).__next__)


def shown(pieces: list[str], columns: int = 60, rows: int = 50) -> tuple[list[str], int]:
    display = Display(columns, rows)
    answer = RenderedAnswer(display.output)
    for piece in pieces:
        answer.write(piece)
    answer.end()
    return display.lines(), display.written


@pytest.mark.usefixtures("always_drawn")
class TestRendered:
    @pytest.mark.parametrize("size", [1, 3, 7, 1000])
    def test_no_text_is_lost_for_any_division_into_pieces(self, size: int) -> None:
        pieces = [ANSWER[i : i + size] for i in range(0, len(ANSWER), size)]
        lines, _ = shown(pieces)
        text = "\n".join(lines)
        for part in (
            "Animals",
            "Here are three bold animals and some code_with_stars** in a",
            "line that is longer than the screen is wide, so it has to be",
            "A lion",
            "bear (http://bear.example)",
            "with a paragraph",
            "3 Ten",
            "def f(x):",
            "    return x ** 2  # a * b",
            "<think>List<int> is text</think>\none line\nanother line",
            "[note]: http://kept.example",
            "http://picture.example",
            "• last",
        ):
            assert text.count(part) == 1, part + "\n" + text

    def test_few_rows_of_a_screen_are_enough(self) -> None:
        whole, _ = shown([ANSWER])
        small, _ = shown(list(ANSWER), rows=8)
        letters = ["".join(filter(str.isalnum, "".join(lines))) for lines in (whole, small)]
        assert letters[0] == letters[1]

    def test_shown_rows_are_not_written_again(self) -> None:
        """The bytes to the terminal grow with the length of the text, not with its square."""
        text = "plain words of one paragraph " * 100
        _, written = shown([text[i : i + 4] for i in range(0, len(text), 4)])
        assert written < 12 * len(text)

    @pytest.mark.parametrize("columns", [30, 100])
    def test_a_change_of_width_during_an_answer(self, columns: int) -> None:
        display = Display(60, 50)
        answer = RenderedAnswer(display.output)
        words = [f"word{i} " for i in range(60)]
        for i, word in enumerate(words):
            if i == 31:
                display.resize(columns, 50)
            answer.write(f"**{word.strip()}** " if i % 7 == 0 else word)
        answer.end()
        display.screen.resize(50, 100)  # this one only collects what was written
        assert " ".join(display.lines()).split() == "".join(words).split()


class TestScreen:
    @pytest.fixture
    def reported(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
        """What a terminal shows of some pieces."""
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)

        def tell(*pieces: str, plain: bool) -> list[str]:
            display = Display(60, 50)
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdout", display.output)
                screen = Screen(as_json=False, plain=plain, verbose=False)
                screen._write(iter(pieces))  # type: ignore[arg-type]
            return display.lines()

        return tell

    @pytest.mark.parametrize(
        ("environment", "plain", "said"),
        [
            ({}, False, "bold"),
            ({}, True, "**bold**"),
            ({"NO_COLOR": "1"}, False, "**bold**"),
            ({"TERM": "dumb"}, False, "**bold**"),
        ],
    )
    def test_when_markdown_is_rendered(
        self,
        reported: Callable[..., list[str]],
        monkeypatch: pytest.MonkeyPatch,
        environment: dict[str, str],
        plain: bool,
        said: str,
    ) -> None:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert reported("**bo", "ld**", plain=plain) == [said]

    @pytest.mark.parametrize("plain", [True, False])
    def test_control_characters_are_shown_as_signs(
        self, reported: Callable[..., list[str]], plain: bool
    ) -> None:
        found = reported("a\x1b[2Jb\x07", "\x9bc\rd", plain=plain)
        assert found == ["a\u241b[2Jb\u2407\ufffdc\u240dd"]
