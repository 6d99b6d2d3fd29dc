"""Shows an answer as rendered Markdown during its generation, with ``rich``.

Finished blocks are not written again. Only the rows of the unfinished block that have changed are
written again. After a change of the terminal's width the text continues in the new width, and
nothing is erased.
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TextIO

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Markdown

_REDRAW_S = 0.03
_ESCAPE = re.compile(r"(\x1b\[[0-9;]*m)")
# The last line may still become the marker of a list, so the block before it is not finished.
_MARKER = re.compile(r"\s*([-*+]|\d+[.)]?)?\s*")
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # terminals with this mode show the change at once


class RenderedAnswer:
    """Takes an answer piece by piece and shows it on the terminal."""

    def __init__(self, output: TextIO | None = None) -> None:
        self._output = output or sys.stdout
        self._console = Console(file=self._output, force_terminal=True, highlight=False)
        self._parser = _parser()
        self._text = ""  # of the blocks that are not finished
        self._rows: list[str] = []  # of this text, as on the screen
        self._skipped = 0  # letters and digits of this text that stand above the rows
        self._width = 0
        self._next_draw = 0.0

    def write(self, piece: str) -> None:
        """Add to the answer."""
        self._text += piece
        began = time.monotonic()
        if began < self._next_draw:
            return
        self._draw(final=False)
        now = time.monotonic()
        self._next_draw = now + max(_REDRAW_S, 4 * (now - began))

    def end(self) -> None:
        """Show the whole answer, and go to the next line."""
        self._draw(final=True)
        self._put("\n")

    def _draw(self, final: bool) -> None:
        out = ""
        finished, rest, in_code = self._split()
        if finished and not final:
            out += self._change(self._rendered(finished)) + "\n\n"
            self._text, self._rows, self._skipped = rest, [], 0
        shown = self._text if final or in_code else _closed(self._text)
        out += self._change(self._rendered(shown))
        if out:
            self._put(f"{_BEGIN}{out}{_END}")

    def _split(self) -> tuple[str, str, bool]:
        """The blocks before the last one, the last block, and whether the last block is code."""
        blocks = [token for token in self._parser.parse(self._text) if token.level == 0]
        blocks = [token for token in blocks if token.map is not None]
        if not blocks:
            return "", self._text, False
        in_code = blocks[-1].type in ("fence", "code_block")
        lines = self._text.split("\n")
        if len(blocks) < 2 or (not in_code and _MARKER.fullmatch(lines[-1])):
            return "", self._text, in_code
        assert blocks[-1].map is not None
        begin = blocks[-1].map[0]
        return "\n".join(lines[:begin]).rstrip("\n"), "\n".join(lines[begin:]), in_code

    def _rendered(self, text: str) -> list[str]:
        """The rows of a text in the width of the terminal, without the rows above it."""
        width = _size(self._output)[0]
        if width != self._width:
            if self._rows:
                self._skipped += sum(map(_letters, self._rows))
                self._rows = []
                self._put("\n")
            self._width = width
        markdown = Markdown("", code_theme="ansi_dark", hyperlinks=False)
        markdown.parsed = self._parser.parse(text)
        for token in markdown.parsed:
            for child in token.children or ():
                if child.type == "softbreak":  # a newline in an answer is shown as one
                    child.type = "hardbreak"
        with self._console.capture() as captured:
            self._console.print(markdown, width=width)
        rows = [row.rstrip() for row in captured.get().rstrip().split("\n")]
        return _without(rows, self._skipped)

    def _change(self, rows: list[str]) -> str:
        """The control sequences that turn the rows on the screen into ``rows``."""
        shown, self._rows = self._rows, rows
        if not shown:
            return "\n".join(rows)
        if rows == shown:
            return ""
        same = 0
        while same < min(len(shown), len(rows)) and shown[same] == rows[same]:
            same += 1
        if same == len(rows) - 1 == len(shown) - 1 and rows[-1].startswith(shown[-1]):
            return rows[-1][len(shown[-1]) :]
        # Rows that have left the screen cannot be changed.
        first = max(min(same, len(rows) - 1), len(shown) - _size(self._output)[1] + 1)
        up = len(shown) - 1 - first
        if up < 0:
            return "\n" + "\n".join(rows[first:])
        return (f"\x1b[{up}A" if up else "") + "\r\x1b[J" + "\n".join(rows[first:])

    def _put(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


def _parser() -> MarkdownIt:
    """Markdown that keeps all text of an answer. rich alone shows neither HTML nor the definitions
    of links."""
    parser = MarkdownIt("commonmark", {"html": False})
    return parser.enable(["strikethrough", "table"]).disable(["reference", "image", "html_block"])


def _closed(text: str) -> str:
    """The text, with all open marks closed at its end."""
    head, newline, last = text.rpartition("\n")
    if last.lstrip().startswith(("```", "~~~")):
        return text
    last = re.sub(r"[*`_~]+$", "", last)
    if last.count("`") % 2:
        last += "`"
    elif last.count("**") % 2:
        last = last.rstrip() + "**"
    return head + newline + last


def _letters(row: str) -> int:
    return sum(map(str.isalnum, _ESCAPE.sub("", row)))


def _without(rows: list[str], letters: int) -> list[str]:
    """The rows after the first N letters and digits, with their styles."""
    while letters and rows and _letters(rows[0]) <= letters:
        letters -= _letters(rows[0])
        rows = rows[1:]
    if not letters or not rows:
        return rows or [""]
    kept = ""
    for part in _ESCAPE.split(rows[0]):
        if not part.startswith("\x1b"):
            while part and letters:
                letters -= part[0].isalnum()
                part = part[1:]
        kept += part
    return [kept.lstrip(), *rows[1:]]


def _size(output: TextIO) -> tuple[int, int]:
    """Columns and rows of the terminal."""
    try:
        columns, rows = os.get_terminal_size(output.fileno())
    except (OSError, ValueError):
        columns, rows = 80, 24
    return columns or 80, rows or 24
