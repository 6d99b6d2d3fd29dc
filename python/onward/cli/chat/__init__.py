"""onward chat: talk with a model; the conversation is kept.

With a MESSAGE it answers this message and exits; text on stdin is part of the message. Without it,
messages are read from a terminal with a prompt, editing and history, or from a pipe line by line.
Ctrl-C stops an answer, Ctrl-D exits. With --session the conversation continues from a file, and
each answer is saved there. This file has the arguments and the run; the other files of the folder
have the loop, the conversation, the commands, the input and the screen.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import TYPE_CHECKING

from onward.cli import flags, piped, values
from onward.errors import InvalidArgument
from onward.machine.extras import install_command

if TYPE_CHECKING:
    from onward.cli.chat.conversation import Conversation
    from onward.cli.chat.reading import Reader

EXAMPLES = """\
  onward chat
  onward chat "What is gravity?" -n 64
  onward chat --session planets.session
  onward chat "Name the main points." < story.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "message",
        nargs="?",
        type=values.text,
        metavar="MESSAGE",
        help="answer this, or @FILE, and exit; text that arrives on stdin within 10 s is added to "
        'it; "-": all of stdin is the message',
    )
    parser.add_argument(
        "--system",
        type=values.text,
        metavar="TEXT",
        help="the system message; default: none",
    )
    parser.add_argument(
        "--session",
        metavar="FILE",
        help="continue from this file if it exists, and save the conversation there; default: none",
    )
    parser.add_argument(
        "--json", action="store_true", help="print each answer as a JSON object on one line"
    )
    parser.add_argument(
        "--plain", action="store_true", help="show answers as plain text, not as rendered Markdown"
    )
    parser.add_argument(
        "--no-history",
        action="store_true",
        help="neither read nor save the history of typed messages",
    )
    flags.add_model_arguments(parser)
    flags.add_generation_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from onward.cli.chat.conversation import Conversation
    from onward.cli.chat.loop import converse, kept_to_the_end
    from onward.cli.chat.screen import Screen

    options = flags.generation_options(arguments)
    message = None if arguments.message is None else _with_stdin(arguments.message)
    watched = message is None and sys.stdin.isatty()
    screen = Screen(as_json=arguments.json, plain=arguments.plain, verbose=arguments.verbose)
    with flags.load(arguments) as llm:
        conversation = Conversation(
            llm,
            options,
            screen,
            system=arguments.system,
            file=arguments.session,
            watched=watched,
        )
        with kept_to_the_end(conversation):
            if message is not None:
                conversation.answer(message)
            else:
                converse(conversation, _reader(conversation, arguments.no_history))
    return 0


def _reader(conversation: Conversation, no_history: bool) -> Reader:
    from onward.cli.chat.history import History, history_path
    from onward.cli.chat.reading import can_edit, new_reader

    if conversation.watched:
        print("Talk to the model; /help shows the commands.", file=sys.stderr)
        if missing := [name for name in _EXTRA if importlib.util.find_spec(name) is None]:
            brings = " and ".join(_EXTRA[name] for name in missing)
            print(f"({install_command('chat')}\n brings {brings})", file=sys.stderr)
        conversation.can_prefill = can_edit()
    kept = conversation.watched and not no_history
    return new_reader(History(history_path() if kept else None))


_EXTRA = {
    "prompt_toolkit": "messages of several lines",
    "rich": "Markdown",
}


def _with_stdin(message: str) -> str:
    """The message, an empty line, and the text on stdin; for "-" only the text on stdin."""
    if message == "-":
        text = flags.read_stdin()
        if not text.strip():
            raise InvalidArgument("stdin: is empty, expected the message")
        return text
    text = piped.text_beside()
    return f"{message}\n\n{text}" if text.strip() else message
