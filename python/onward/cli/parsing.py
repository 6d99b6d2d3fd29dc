"""How the command line is read: errors of one line with the nearest name, and the layout of help.

A flag is never abbreviated, so that a script goes on working when flags are added.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from onward.message_text import label, nearest

USAGE = 2
# Flags of other programs that no spelling distance would find, by the name of ours.
_ELSEWHERE = {
    "--ctx-size": "--max-context",
    "--predict": "--max-new-tokens",
    "--output-format": "--format",
    "--input": "--jsonl",
    "--cache-type-k": "--kv-dtype",
    "--system-prompt": "--system",
}
# Arguments that are text for the model.
_TEXTS = ("prompt", "message", "text")
_NARROW, _WIDE = 40, 100


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line and exit code 2."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("formatter_class", HelpLayout)
        super().__init__(*arguments, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        line = " ".join(_in_plain_words(message).split())
        self.exit(USAGE, f"{self.prog}: {line}\n")

    def parse_command(self, words: Sequence[str]) -> argparse.Namespace:
        """The flags of a whole command line; words that have no place are an error."""
        arguments, strangers = self.parse_known_args(words)
        if strangers:
            command = commands_of(self).get(getattr(arguments, "command", None) or "", self)
            command.error(_about_strangers(command, strangers, words, arguments))
        return arguments


class HelpLayout(argparse.HelpFormatter):
    """Help as wide as the terminal within reason, the examples at the end as they are written."""

    def __init__(self, prog: str, **options: Any) -> None:
        columns = shutil.get_terminal_size().columns - 2
        super().__init__(
            prog, max_help_position=26, width=max(_NARROW, min(_WIDE, columns)), **options
        )

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        return "".join(indent + line for line in text.splitlines(keepends=True))

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


# They print something and leave, so they have no default.
_LEAVING = (argparse._HelpAction, argparse._VersionAction)


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
    """What to say about a command that there is not."""
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
    """What to say about words that belong to no flag and no argument."""
    flag = next((word for word in strangers if word.startswith("-") and len(word) > 1), None)
    if flag is not None:
        return _no_such_flag(flag.partition("=")[0], list(flags_of(command)))
    before = words[: _index_of(words, strangers[0])]
    behind_flag = next((word for word in reversed(before) if word.startswith("-")), None)
    if behind_flag is not None and all(re.fullmatch(r"[\w./-]+", word) for word in strangers):
        values = [*before[before.index(behind_flag) + 1 :], *strangers]
        if len(values) > 1 and all(re.fullmatch(r"-?[\d.]+", word) for word in values):
            listed = ",".join(values)
            return f"{' '.join(strangers)}: a list has commas: {behind_flag} {label(listed)}"
    named = [action.dest for action in command._actions if not action.option_strings]
    if len(named) == 1 and named[0] in _TEXTS:
        quoted = label(" ".join([str(getattr(arguments, named[0])), *strangers]))
        return f'{label(strangers[0])}: unexpected word; quote a text of several words: "{quoted}"'
    return f"{label(strangers[0])}: unexpected argument; {command.prog} --help shows what it takes"


def _index_of(words: Sequence[str], word: str) -> int:
    return words.index(word) if word in words else len(words)


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
    from onward.options import named_elsewhere

    name = named_elsewhere(flag.lstrip("-").replace("-", "_"))
    return None if name is None else "--" + name.replace("_", "-")


def _in_plain_words(message: str) -> str:
    """argparse's message, in the words of ours."""
    message = message.removeprefix("argument ")
    if match := re.fullmatch(r"(?:\S+/)?(--?[\w-]+): expected (?:one|at least one) argument", message):
        return f"{match[1]}: has no value, expected one; one that begins with - is given as {match[1]}=-VALUE"
    if match := re.fullmatch(r"(?:\S+/)?(--?[\w-]+): ignored explicit argument (.*)", message):
        return f"{match[1]}: is given {match[2]}, expected no value"
    if match := re.fullmatch(r"the following arguments are required: (.*)", message):
        return f"{match[1]}: is missing"
    return re.sub(r"^-\w/(--)", r"\1", message)
