"""Write docs/command-line.md: keep its introduction, and take the flags of every command from the
parser.

    python scripts/command_line_doc.py            # writes the document
    python scripts/command_line_doc.py --check    # exit code 1 if the document would change
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from onward.cli.commands import COMMANDS, name, parser, summary
from onward.cli.parsing import commands_of, help_of

DOCUMENT = Path(__file__).parent.parent / "docs" / "command-line.md"
MARK = "<!-- From here on written by scripts/command_line_doc.py. -->\n"


def main() -> int:
    arguments = argparse.ArgumentParser(description="Write docs/command-line.md.")
    arguments.add_argument(
        "--check", action="store_true", help="only report whether it would change"
    )
    check = arguments.parse_args().check
    old = DOCUMENT.read_text(encoding="utf-8")
    new = written(old)
    if check:
        return int(old != new)
    DOCUMENT.write_text(new, encoding="utf-8")
    return 0


def written(text: str) -> str:
    """The document with the present flags of the parser."""
    introduction = text.partition(MARK)[0]
    subs = commands_of(parser())
    flags = shared(list(subs.values()))
    parts = [introduction, MARK]
    for command in COMMANDS:
        parts.append(section(command, subs[name(command)], flags))
    parts.append("\n## Generation flags\n\n`generate` and `chat` take these, and the cache's.\n\n")
    parts.append(table(flags))
    return "".join(parts)


def shared(subs: list[argparse.ArgumentParser]) -> list[argparse.Action]:
    """The flags of the generation group, which is equal in all commands."""
    return next(
        list(group._group_actions)
        for sub in subs
        for group in sub._action_groups
        if group.title == "generation"
    )


def section(command: object, sub: argparse.ArgumentParser, shared: list[argparse.Action]) -> str:
    """One command: its purpose, usage, flags and examples."""
    elsewhere = {action.option_strings[-1] for action in shared}
    own = [
        action
        for action in sub._actions
        if not isinstance(action, argparse._HelpAction)
        and not (action.option_strings and action.option_strings[-1] in elsewhere)
    ]
    text = sentence(summary(command))  # type: ignore[arg-type]
    examples = getattr(command, "EXAMPLES", "")
    lines = [f"\n## {sub.prog}\n\n{text}\n\n    {sub.usage}\n\n", table(own)]
    if any(action.option_strings[-1:] == ["--temperature"] for action in sub._actions):
        lines.append("\nAnd the [generation flags](#generation-flags).\n")
    if examples:
        shown = "".join(f"  {line}\n" for line in examples.splitlines())
        lines.append(f"\nExamples:\n\n{shown}")
    return "".join(lines)


def table(actions: list[argparse.Action]) -> str:
    """One row for each flag."""
    rows = ["| | |\n|---|---|\n"]
    for action in actions:
        value = f" {action.metavar}" if action.nargs != 0 and action.metavar else ""
        spelled = ", ".join(f"`{spelling}{value}`" for spelling in action.option_strings)
        left = (spelled or f"`{action.metavar}`").replace("|", "\\|")
        rows.append(f"| {left} | {help_of(action).replace('|', '&#124;')} |\n")
    return "".join(rows)


def sentence(text: str) -> str:
    """The text with a capital letter at the beginning and a full stop at the end."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


if __name__ == "__main__":
    sys.exit(main())
