"""Parses the command line: one-line errors with the nearest name, and the layout of help.

Flags cannot be abbreviated, so that scripts keep working when flags are added.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from onward.cli import streams
from onward.message_text import label, nearest

USAGE = 2
# Our flag -> flags of other programs with the same meaning but a very different spelling.
_ELSEWHERE = {
    "--ctx-size": "--max-context",
    "--predict": "--max-new-tokens",
    "--output-format": "--format",
    "--input": "--jsonl",
    "--cache-type-k": "--kv-dtype",
    "--system-prompt": "--system",
}
# Arguments that hold text for the model.
_TEXTS = ("prompt", "message", "text")
_NARROW, _WIDE = 40, 100


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line and exits with 2."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("formatter_class", HelpLayout)
        super().__init__(*arguments, **{**options, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        line = " ".join(_in_plain_words(message).split())
        self.exit(USAGE, f"{self.prog}: {line}\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write the message. A failure is an error here; argparse ignores it."""
        if message:
            print(message, file=file, end="") if file is sys.stderr else streams.show(message)

    def parse_command(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse a whole command line. Words that match no argument are an error."""
        arguments, strangers = self.parse_known_args(words)
        if strangers:
            command = commands_of(self).get(getattr(arguments, "command", None) or "", self)
            command.error(_about_strangers(command, strangers, words, arguments))
        return arguments


class HelpLayout(argparse.HelpFormatter):
    """Help with the width of the terminal. A line that begins with a space is kept as it is."""

    def __init__(self, prog: str, **options: Any) -> None:
        columns = shutil.get_terminal_size().columns - 2
        super().__init__(
            prog, max_help_position=26, width=max(_NARROW, min(_WIDE, columns)), **options
        )

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        fill = super()._fill_text
        lines = text.splitlines()
        return "\n".join(
            line if line.startswith(" ") else fill(line, width, indent) for line in lines
        )

    def _get_help_string(self, action: argparse.Action) -> str:
        """The help, which always ends with the default."""
        return help_of(action).replace("%", "%%")


def help_of(action: argparse.Action) -> str:
    """The help of a flag with its default in words: "default: X", or that it is required."""
    text = (action.help or "") % {"default": action.default}
    if not action.option_strings or isinstance(action, _LEAVING) or "default: " in text:
        return text
    if action.required:
        return f"{text}; required"
    if action.nargs == 0:
        return f"{text}; default: off"
    return text if action.default is None else f"{text}; default: {action.default}"


# These flags print something and exit, so they have no default.
_LEAVING = (argparse._HelpAction, argparse._VersionAction)


def usage(parser: argparse.ArgumentParser) -> str:
    """The line after "usage:": the arguments, and [flags]."""
    words = [parser.prog, "[FLAGS]"]
    for action in parser._actions:
        if action.required and action.option_strings:
            words.append(f"{action.option_strings[0]} {action.metavar}")
        elif not action.option_strings:
            words.append(str(action.metavar) if action.required else f"[{action.metavar}]")
    return " ".join(words)


def commands_of(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    """The parsers of the subcommands, by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def flags_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Every spelling of every flag."""
    for action in parser._actions:
        yield from action.option_strings


def no_such_command(word: str, names: Iterable[str]) -> str:
    """The message for an unknown command."""
    names = list(names)
    hint = nearest(word, names)
    if not hint and " " in word.strip():
        hint = f'; a prompt comes after the command: onward generate "{label(word)}"'
    return f"{label(word)}: no such command{hint or ', expected ' + ', '.join(names)}"


def _about_strangers(
    command: argparse.ArgumentParser,
    strangers: Sequence[str],
    words: Sequence[str],
    arguments: argparse.Namespace,
) -> str:
    """The message for words that belong to no flag and no argument."""
    flag = next((word for word in strangers if word.startswith("-") and len(word) > 1), None)
    if flag is not None:
        return _no_such_flag(flag.partition("=")[0], list(flags_of(command)))
    if spaced := _list_with_spaces(words, strangers[0]):
        return f"{label(strangers[0])}: unexpected number; a list has commas: {spaced}"
    named = [action.dest for action in command._actions if not action.option_strings]
    if len(named) == 1 and named[0] in _TEXTS:
        quoted = label(" ".join([str(getattr(arguments, named[0])), *strangers]))
        return f'{label(strangers[0])}: unexpected word; quote a text of several words: "{quoted}"'
    return f"{label(strangers[0])}: unexpected argument; {command.prog} --help lists the arguments"


def _list_with_spaces(words: Sequence[str], word: str) -> str | None:
    """The right spelling of the flag and the numbers around ``word``, if they form a list."""
    position = words.index(word) if word in words else len(words)
    begin = next((i for i in reversed(range(position)) if words[i].startswith("--")), None)
    if begin is None:
        return None
    numbers = list(itertools.takewhile(re.compile(r"[\d.]+").fullmatch, words[begin + 1 :]))
    return f"{words[begin]} {label(','.join(numbers))}" if len(numbers) > 1 else None


def _no_such_flag(flag: str, flags: Sequence[str]) -> str:
    spelled = flag.replace("_", "-")
    named = _ELSEWHERE.get(spelled) or _option_elsewhere(spelled)
    longer = [known for known in flags if known.startswith(spelled) and len(spelled) > 3]
    if named in flags:
        hint = f", did you mean {named}?"
    elif spelled in flags:
        hint = f", did you mean {spelled}?"
    elif longer:
        hint = f", did you mean {' or '.join(longer[:2])}?"
    else:
        hint = nearest(spelled, flags) or "; --help lists the flags"
    return f"{label(flag)}: no such flag{hint}"


def _option_elsewhere(flag: str) -> str | None:
    """Our flag for a generation option's name in another library."""
    from onward.options.resolution import named_elsewhere

    name = named_elsewhere(flag.lstrip("-").replace("-", "_"))
    return None if name is None else "--" + name.replace("_", "-")


def _in_plain_words(message: str) -> str:
    """The message of argparse in the form of this program's messages."""
    message = message.removeprefix("argument ")
    if match := re.fullmatch(
        r"(?:\S+/)?(--?[\w-]+): expected (?:one|at least one) argument", message
    ):
        flag = match[1]
        return f"{flag}: has no value, expected one; a value that begins with - is {flag}=-VALUE"
    if match := re.fullmatch(r"(?:\S+/)?(--?[\w-]+): ignored explicit argument (.*)", message):
        return f"{match[1]}: is given {match[2]}, expected no value"
    if match := re.fullmatch(r"the following arguments are required: (.*)", message):
        return f"{match[1]}: is missing"
    return re.sub(r"^-\w/(--)", r"\1", message)
