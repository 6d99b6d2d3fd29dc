"""A comparison as one HTML page that needs nothing beside itself: tables, and plots as inline SVG.

Well-formed as XML too. Knows nothing of how it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from onward.compare.comparison import Comparison
from onward.compare.curves import charts
from onward.compare.tables import Section, sections
from onward.errors import Error, InvalidArgument
from onward.message_text import label
from onward.plotting import svg

_STYLE = """
body { font: 15px/1.5 sans-serif; color: #222; background: #fff; max-width: 60em;
  margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin: 2em 0 .5em }
table { border-collapse: collapse } th, td { padding: .2em .8em; border-bottom: 1px solid #ddd;
  text-align: right; vertical-align: top } th:first-child, td:first-child { text-align: left }
svg { max-width: 100%; height: auto; display: block; margin: 1em 0 }
.verdict { border-left: .4em solid #2f6f4f; padding: .5em 1em; background: #f4f4f4 }
.fault { border-color: #b03a2e } .flip { border-color: #7d6608 } p { margin: .3em 0 }
"""
_CLASSES = {"suspected fault": "verdict fault", "coin flip": "verdict flip"}


def html(comparison: Comparison, failed: Sequence[str] = ()) -> str:
    """The page."""
    a, b = comparison.a.description.setting, comparison.b.description.setting
    title = escape(f"onward compare {a} {b}")
    found = sections(comparison, failed)
    look = _CLASSES.get(comparison.judgement.verdict, "verdict")
    if failed:
        look = "verdict fault"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"/>',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        f'<div class="{look}">',
        *(f"<p>{escape(line)}</p>" for line in found[-1][2]),
        "</div>",
        *(_section(section) for section in found[:-1]),
    ]
    drawn = charts(comparison)
    if drawn:
        parts += ["<h2>plots</h2>", *map(svg, drawn)]
    return "\n".join([*parts, "</body></html>", ""])


def check_path(path: str) -> None:
    """InvalidArgument where the page cannot be written for want of a folder or a name."""
    if Path(path).suffix.lower() != ".html" or not Path(path).parent.is_dir():
        raise InvalidArgument(
            f"html: is {label(path)}, expected a name ending in .html in a folder that is there"
        )


def write(comparison: Comparison, failed: Sequence[str], path: str) -> None:
    """The page as a file."""
    try:
        Path(path).write_text(html(comparison, failed), encoding="utf-8")
    except OSError as failure:
        raise Error(f"{label(path)}: cannot write: {failure.strerror or failure}") from failure


def _section(section: Section) -> str:
    title, rows, notes = section
    lines = [f"<h2>{escape(title)}</h2>"]
    if rows:
        head, *body = rows
        lines.append("<table>")
        lines.append("<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>")
        for row in body:
            lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
        lines.append("</table>")
    return "\n".join([*lines, *(f"<p>{escape(note)}</p>" for note in notes)])
