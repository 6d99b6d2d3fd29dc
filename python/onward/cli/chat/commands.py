"""The commands of a chat, in one table that gives help, completion and suggestions."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from onward.cli.chat.conversation import Conversation
from onward.cli.chat.settings import NAMES, option_name, read_setting, settings_lines
from onward.errors import InvalidArgument

_WORD = re.compile(r"/[A-Za-z-]+")


@dataclass(frozen=True)
class Command:
    """One row of the table."""

    name: str
    arguments: str
    """The arguments as help shows them, in brackets if optional; empty for none."""
    help: str
    do: Callable[[Conversation, str], None]


def command_of(text: str) -> str | None:
    """The command that a line begins with, which may be none of the table; None for a message.

    A first word with a second slash, such as a path, or with other signs is no command.
    """
    words = text.split(maxsplit=1)
    return words[0] if words and _WORD.fullmatch(words[0]) else None


def unescaped(text: str) -> str:
    """A message without the slash that escapes another one at its start."""
    return text.replace("//", "/", 1) if text.lstrip().startswith("//") else text


def obey(text: str, conversation: Conversation) -> None:
    """Run the command of a line."""
    word, rest = [*text.strip().split(maxsplit=1), ""][:2]
    command = COMMANDS.get(word.lower())
    escape = f"to send this as text, begin with //: /{text.strip().splitlines()[0][:40]}"
    if command is None:
        near = get_close_matches(word.lower(), COMMANDS, n=1)
        hint = f"did you mean {near[0]}? Or" if near else "/help shows the commands;"
        raise InvalidArgument(f"{word}: no such command, {hint} {escape}")
    if rest and not command.arguments:
        raise InvalidArgument(f"{word}: is given {rest[:40]!r}, expected nothing; {escape}")
    if not rest and command.arguments and not command.arguments.startswith("["):
        raise InvalidArgument(
            f"{word}: is given nothing, expected {command.name} {command.arguments}"
        )
    command.do(conversation, rest)


def completions(before: str) -> Iterator[tuple[str, int, str]]:
    """The completions of the text before the cursor: a word, its start relative to the cursor, and
    its meaning."""
    word, space, rest = before.partition(" ")
    if not word.startswith("/") or "\n" in before:
        return
    if not space:
        for command in COMMANDS.values():
            if command.name.startswith(word.lower()):
                yield command.name, -len(word), command.help
    elif word in ("/set", "/unset") and " " not in rest:
        spelled = rest.replace("_", "-")
        names = (*NAMES, "system") if word == "/unset" else NAMES
        yield from ((name, -len(rest), "") for name in names if name.startswith(spelled))
    elif word in ("/save", "/load"):
        found = glob.glob(glob.escape(os.path.expanduser(rest)) + "*")
        for path in sorted(found)[:100]:
            yield path + ("/" if os.path.isdir(path) else ""), -len(rest), ""


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _system(conversation: Conversation, text: str) -> None:
    if text:
        conversation.instruct(text)
        _say("(the system message is replaced; earlier messages stay, /reset removes them)")
    elif conversation.system is None:
        _say("(there is no system message; /system TEXT sets one)")
    else:
        _say(f"(system: {conversation.system})\n(/unset system removes it)")


def _retry(conversation: Conversation, text: str) -> None:
    conversation.retry()


def _more(conversation: Conversation, text: str) -> None:
    conversation.more()


def _set(conversation: Conversation, text: str) -> None:
    model = conversation.defaults
    name, value = [*re.split(r"\s*=\s*|\s+", text, maxsplit=1), ""][:2]
    if not value:
        only = option_name(name) if name else None
        _say("\n".join(settings_lines(conversation.options, model, only)))
        return
    option = option_name(name)
    conversation.choose({**conversation.options, **read_setting(option, value)})
    _say(f"({settings_lines(conversation.options, model, option)[0]})")


def _unset(conversation: Conversation, text: str) -> None:
    if text == "system":
        conversation.instruct(None)
        _say("(the system message is removed)")
        return
    option = option_name(text)
    if option not in conversation.options:
        raise InvalidArgument(f"/unset: {text}: was not set, expected an option that /set shows")
    left = {name: value for name, value in conversation.options.items() if name != option}
    conversation.choose(left)
    _say(f"({settings_lines(left, conversation.defaults, option)[0]})")


def _reset(conversation: Conversation, text: str) -> None:
    conversation.reset()
    _say("(a new conversation)")


def _rewind(conversation: Conversation, text: str) -> None:
    if text and not text.isdecimal():
        raise InvalidArgument(f"/rewind: is given {text!r}, expected a number of questions")
    conversation.rewind(int(text or 1))
    _say(f"({len(conversation.session.messages)} messages are left)")


def _edit(conversation: Conversation, text: str) -> None:
    if text:
        conversation.edit(text)
    elif conversation.can_prefill and conversation.questions:
        question = conversation.session.messages[conversation.questions[-1]]["content"]
        conversation.prefill = f"/edit {question}"
    else:
        raise InvalidArgument("/edit: is given nothing, expected /edit TEXT")


def _save(conversation: Conversation, text: str) -> None:
    conversation.save(text or None)


def _load(conversation: Conversation, text: str) -> None:
    conversation.load(text)


def _help(conversation: Conversation, text: str) -> None:
    _say(help_text())


def _quit(conversation: Conversation, text: str) -> None:
    conversation.over = True


COMMANDS = {
    command.name: command
    for command in (
        Command("/retry", "", "answer the last question again, with another seed", _retry),
        Command("/more", "", "continue an answer that was cut or stopped", _more),
        Command("/edit", "[TEXT]", "replace the last question by TEXT", _edit),
        Command(
            "/rewind", "[N]", "remove the last question and its answer, or the last N", _rewind
        ),
        Command("/reset", "", "forget the conversation", _reset),
        Command("/system", "[TEXT]", "show the system message, or replace it by TEXT", _system),
        Command("/set", "[NAME VALUE]", "show the options, or set one, as temperature 0.5", _set),
        Command("/unset", "NAME", "reset an option to its default", _unset),
        Command("/save", "[FILE]", "save the conversation to its file or another one", _save),
        Command("/load", "FILE", "continue a saved conversation", _load),
        Command("/help", "", "show this", _help),
        Command("/quit", "", "exit (also Ctrl-D)", _quit),
    )
}


def help_text() -> str:
    """The table as text, and the input that is not a command."""
    rows = [(f"{c.name} {c.arguments}".rstrip(), c.help) for c in COMMANDS.values()]
    rows += [
        ("//TEXT", "send TEXT with one slash at its start"),
        ('"""', "begin or end a multi-line message"),
        ("\\ at the end", "continue on the next line (also Alt-Enter)"),
        ("Ctrl-C", "stop the answer"),
    ]
    return "\n".join(f"{left:<20}{right}" for left, right in rows)
