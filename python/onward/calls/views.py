"""How results look in a shell and in a notebook: their text, and their figures in small print."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

MOST_CHARACTERS = 2000
"""Of a text in a repr; ``str`` of a result has the whole."""
_BEGINNING, _END = 1200, 600
_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)", re.DOTALL)


class Viewed:
    """What has texts and a line of figures: its repr, its Markdown and its HTML."""

    def _texts(self) -> Sequence[tuple[str, str]]:
        """Texts, each with a heading, which may be empty."""
        raise NotImplementedError

    def _figures(self) -> str:
        """One line."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """The text, shortened where it is long, then a line of figures."""
        lines = [
            f"{heading}: {shortened(text)}" if heading else shortened(text)
            for heading, text in self._texts()
        ]
        return "\n".join([*filter(None, lines), f"({self._figures()})"])

    def _repr_markdown_(self) -> str:
        """For notebooks: the text read as Markdown."""
        parts = []
        for heading, text in self._texts():
            body = _as_markdown(text)
            parts.append(f"**{html.escape(heading)}**\n\n{body}" if heading else body)
        return "\n\n".join([*filter(None, parts), f"<small>{html.escape(self._figures())}</small>"])

    def _repr_html_(self) -> str:
        """For notebooks: the text as it is."""
        parts = []
        for heading, text in self._texts():
            title = f"<b>{html.escape(heading)}</b> " if heading else ""
            body = f'<span style="white-space: pre-wrap">{html.escape(text)}</span>'
            parts.append(f'<div style="margin-bottom: 0.4em">{title}{body}</div>')
        figures = html.escape(self._figures())
        small = f'<div style="font-size: 80%; opacity: 0.7">{figures}</div>'
        return f'<div style="max-width: 48em">{"".join(parts)}{small}</div>'


def shortened(text: str) -> str:
    """Beginning and end of a long text; control characters as Python escapes them, so that a
    model cannot send commands to a terminal."""
    if len(text) > MOST_CHARACTERS:
        left_out = len(text) - _BEGINNING - _END
        between = f"\n[... {left_out:,} characters left out; str() gives them all ...]\n"
        text = text[:_BEGINNING] + between + text[-_END:]
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def _as_markdown(text: str) -> str:
    """The text with its marks, but without tags of HTML outside of code, and with code closed."""
    parts = _CODE.split(text)
    parts[::2] = [part.replace("&", "&amp;").replace("<", "&lt;") for part in parts[::2]]
    whole = "".join(parts)
    return whole + "\n```" if whole.count("```") % 2 else whole
