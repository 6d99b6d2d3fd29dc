"""Writes a comparison as one HTML page without external files: tables, and plots as inline SVG.

The page is well-formed XML, follows the reader's light or dark setting, and prints in light.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from onward.errors import Error, InvalidArgument
from onward.files.whole_files import whole_file
from onward.lab.compare.comparison import Comparison
from onward.lab.compare.cost import names
from onward.lab.compare.curves import SIDE_COLOURS, charts
from onward.lab.compare.tables import sections
from onward.lab.report import dark_style, svg
from onward.lab.report.tables import Section
from onward.message_text import label

_STYLE = f"""
:root {{ color-scheme: light dark; --text: #222; --ground: #fff; --line: #ddd; --box: #f4f4f4;
  --good: #2f6f4f; --bad: #b03a2e }}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --text: #e6e6e6; --ground: #181818; --line: #444; --box: #242424;
    --good: #7fc29b; --bad: #ef8a7d }}
  {dark_style()}
}}
body {{ font: 15px/1.5 sans-serif; color: var(--text); background: var(--ground);
  max-width: 60em; margin: 2em auto; padding: 0 1em }}
h1 {{ font-size: 1.4em; overflow-wrap: anywhere }} h2 {{ font-size: 1.15em; margin: 2em 0 .5em }}
.wide {{ overflow-x: auto }} table {{ border-collapse: collapse }}
th, td {{ padding: .2em .8em; border-bottom: 1px solid var(--line); text-align: right;
  vertical-align: top }} th:first-child, td:first-child {{ text-align: left }}
svg {{ max-width: 100%; height: auto; display: block; margin: 1em 0 }}
.result {{ border-left: .4em solid var(--good); padding: .5em 1em; background: var(--box) }}
.result p:first-child {{ font-weight: bold }}
.fault {{ border-color: var(--bad) }} p {{ margin: .3em 0 }}
.wide svg {{ min-width: 40em }} th, td {{ white-space: nowrap }}
.side {{ display: inline-block; width: .8em; height: .8em; margin: 0 .4em 0 0 }}
@media print {{ svg, tr {{ break-inside: avoid }} }}
"""


def html(comparison: Comparison, failed: Sequence[str] = ()) -> str:
    """The page."""
    a, b = comparison.a.description.setting, comparison.b.description.setting
    title = escape(f"onward compare {a} {b}")
    summary, *found = sections(comparison, failed)
    look = "result fault" if comparison.judgement.fault or failed else "result"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width"/>',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        f'<div class="{look}">',
        *(f"<p>{escape(line)}</p>" for line in summary.notes),
        "</div>",
        _sides(comparison),
        *(_section(section) for section in found),
    ]
    drawn = charts(comparison)
    if drawn:
        parts.append("<h2>plots</h2>")
        parts += [f'<div class="wide">{svg(chart)}</div>' for chart in drawn]
    return "\n".join([*parts, "</body></html>", ""])


def _sides(comparison: Comparison) -> str:
    """The key to the colours of the sides in the plots."""
    shown = (
        f'<svg class="side" viewBox="0 0 8 8"><rect width="8" height="8" fill="{colour}"/></svg>'
        f"{side}: {escape(name)}"
        for side, colour, name in zip("AB", SIDE_COLOURS, names(comparison), strict=True)
    )
    return f"<p>{' &#160; '.join(shown)}</p>"


def check_path(path: str) -> None:
    """Raise InvalidArgument if ``path`` has no folder or no name that ends in .html."""
    if Path(path).suffix.lower() != ".html" or not Path(path).parent.is_dir():
        raise InvalidArgument(
            f"html: is {label(path)}, expected a name ending in .html in an existing folder"
        )


def write(comparison: Comparison, failed: Sequence[str], path: str) -> None:
    """Write the page as a file."""
    try:
        with whole_file(Path(path)) as part:
            part.file.write(html(comparison, failed).encode("utf-8", "backslashreplace"))
    except OSError as failure:
        raise Error(f"{label(path)}: cannot write: {failure.strerror or failure}") from failure


def _section(section: Section) -> str:
    lines = [f"<h2>{escape(section.title)}</h2>"]
    if section.rows:
        head, *body = section.rows
        lines.append('<div class="wide"><table>')
        lines.append("<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in head) + "</tr>")
        for row in body:
            lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
        lines.append("</table></div>")
    return "\n".join([*lines, *(f"<p>{escape(note)}</p>" for note in section.notes)])
