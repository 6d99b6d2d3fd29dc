"""Write what is derived from the tables of generation options.

The tables are the core's (csrc/sampling) and onward/options/table.py. Derived are
onward/options/generation.py (the core's rows and the types of all options for Python) and the
table in docs/generation.md.

    python scripts/generation_options.py            # writes both files
    python scripts/generation_options.py --check    # exit code 1 where one of them would change

After a change of the core's tables: build the core, run this, then scripts/command_line_doc.py.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onward import _core
from onward.options import table
from onward.options.values import Option

ROOT = Path(__file__).parent.parent
MODULE = ROOT / "python" / "onward" / "options" / "generation.py"
DOCUMENT = ROOT / "docs" / "generation.md"
BEGIN = "<!-- From here on written by scripts/generation_options.py. -->\n"
END = "<!-- To here. -->\n"

# The type of an argument, and of the checked value, by the kind of the option.
TYPES = {
    "integer": ("int", "int"),
    "optional_integer": ("int | None", "int | None"),
    "number": ("float", "float"),
    "flag": ("bool", "bool"),
    "seed": ("int | None", "int | None"),
    "name": ("str", "str"),
    "early_stopping": ('bool | Literal["never"]', 'bool | Literal["never"]'),
    "texts": ("str | Sequence[str] | None", "tuple[str, ...]"),
    "constraint": ("{type}", "{type}"),
    "callable": ("{type}", "{type}"),
    "callables": ("{type} | Sequence[{type}] | None", "tuple[{type}, ...]"),
    "ids": ("Sequence[int] | None", "tuple[int, ...]"),
    "allowed_ids": ("Sequence[int] | None", "tuple[int, ...] | None"),
    "id_lists": ("Sequence[Sequence[int]] | None", "tuple[tuple[int, ...], ...]"),
    "biases": ("Mapping[int, float] | None", "dict[int, float]"),
}

HEADER = '''\
"""The generation options of the core, and the types of all options.

Written by scripts/generation_options.py from the tables in csrc/sampling and in table.py, which say
what each option means. Change those and run the script; a test compares them with this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from onward.options.callables import LogitsProcessor, PrefillProgress, StoppingCriterion
from onward.options.values import Option
'''
KEYWORDS = '''

class GenerationKwargs(TypedDict, total=False):
    """The keyword arguments of ``generate``, ``stream`` and ``chat``, each with its type."""

'''
VALUES = '''

@dataclass(frozen=True)
class OptionValues:
    """A checked value of every option."""

'''


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="only say what would change")
    check = arguments.parse_args().check
    stale = 0
    for path, text in written().items():
        if path.read_text(encoding="utf-8") == text:
            continue
        stale = 1
        print(f"{path.relative_to(ROOT)}: {'is stale' if check else 'is written'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return stale if check else 0


def written() -> dict[Path, str]:
    """The derived files as they have to be."""
    core = {name: [_row(row) for row in rows] for name, rows in _core.generation_options().items()}
    options = table.all_options(core)
    return {MODULE: _module(core, options), DOCUMENT: _document(options)}


def _row(row: dict[str, Any]) -> Option:
    """A row of the core as Python has it."""
    if row["kind"] in ("ids", "id_lists"):
        row["default"] = ()
    if row["kind"] == "allowed_ids":
        row["absent"] = "all"
    for bound in ("low", "high"):
        row[bound] = int(row[bound]) if row[bound] in (0, 1, 2**31 - 1, 2) else row[bound]
    return Option(**{**row, "choices": tuple(row["choices"])})


def _module(core: dict[str, list[Option]], options: Iterable[Option]) -> str:
    """The text of onward/options/generation.py."""
    lines = ["\nCORE_OPTIONS: dict[str, tuple[Option, ...]] = {"]
    for name, rows in core.items():
        lines += [f'    "{name}": (', *map(_source, rows), "    ),"]
    lines.append("}")
    keywords = [f"    {option.name}: {_type(option, 0)}" for option in options]
    values = [f"    {option.name}: {_type(option, 1)}" for option in options]
    text = "\n".join([HEADER + "\n".join(lines), KEYWORDS + "\n".join(keywords)])
    text += "\n" + VALUES + "\n".join(values) + "\n"
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(MODULE), "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return formatted.stdout


def _source(option: Option) -> str:
    """A row as Python source; what has its default in ``Option`` is left out."""
    parts = [repr(option.name), repr(option.kind), repr(option.default)]
    pieces = textwrap.wrap(option.help, 80, drop_whitespace=False)
    parts.append(" ".join(map(repr, pieces)))
    plain = Option("", "number", 0.0, "")
    for name in ("low", "high", "above_low", "choices", "absent", "samples"):
        value = getattr(option, name)
        if value != getattr(plain, name):
            parts.append(f"{name}={value!r}")
    return f"Option({', '.join(parts)}),"


def _type(option: Option, checked: int) -> str:
    return TYPES[option.kind][checked].replace("{type}", option.type)


def _document(options: Iterable[Option]) -> str:
    """The text of docs/generation.md: its table has a row for each option."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option in options:
        meaning = ". ".join(filter(None, (option.help, option.details))).replace("|", "\\|")
        rows.append(f"| `{option.name}` | {_default(option)} | {meaning} |")
    return before + BEGIN + "\n".join(rows) + "\n" + END + after


def _default(option: Option) -> str:
    match option.default:
        case None | () | {}:
            return option.absent
        case bool(flag):
            return str(flag).lower()
        case str(text):
            return f'`"{text}"`'
        case number:
            return f"{number:g}"


if __name__ == "__main__":
    sys.exit(main())
