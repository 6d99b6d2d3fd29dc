"""onward chat: talk with a model; the conversation is kept.

With a MESSAGE it answers that one and leaves. Else it reads lines: from a person with a prompt,
arrow keys and history, from a pipe silently. Ctrl-C stops an answer, Ctrl-D leaves. With --session
the conversation goes on from a file, and is saved there at the end. Knows nothing of how
conversations become tokens, or files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from onward.cli import flags
from onward.errors import Error, InvalidArgument

if TYPE_CHECKING:
    from onward.llm import LLM
    from onward.sessions.stream import SessionStream

HELP = """\
/reset   forget the conversation
/rewind [N]    take back the last question and its answer, or the last N
/edit TEXT     say TEXT instead of the last question
/save [FILE]   save the conversation, to the file it came from or another
/load FILE     go on from a saved one
/help    show this
/quit    leave (so does Ctrl-D)
Ctrl-C   stop the answer"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("message", nargs="?", metavar="MESSAGE", help="answer this and leave")
    parser.add_argument("--system", metavar="TEXT", help="a system message to begin with")
    parser.add_argument(
        "--session",
        metavar="FILE",
        help="go on from this file if there is one, and save the conversation there at the end",
    )
    parser.add_argument(
        "--json", action="store_true", help="print each answer as one JSON object, a line each"
    )
    flags.add_model_arguments(parser)
    flags.add_generation_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    options = flags.generation_options(arguments)
    with flags.load(arguments) as llm:
        conversation = Conversation(llm, options, arguments)
        try:
            if arguments.message is not None:
                conversation.answer(arguments.message)
            else:
                _converse(conversation)
        finally:
            conversation.end()
    return 0


class Conversation:
    """The session, the file it is kept in, and how an answer is shown."""

    def __init__(self, llm: LLM, options: dict[str, Any], arguments: argparse.Namespace) -> None:
        self._llm = llm
        self._options = options
        self._json: bool = arguments.json
        self._verbose: bool = arguments.verbose
        self._system: str | None = arguments.system
        self._file: str | None = arguments.session
        self._saves_at_end = self._file is not None
        self.session = llm.session(self._system, **options)
        if self._file is not None:
            self._begin_with(os.path.expanduser(self._file))

    def _begin_with(self, path: str) -> None:
        """Go on from the file if it is there; else see now that it can be there at the end."""
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise InvalidArgument(f"--session: {folder} is no folder, expected one for the file")
        if os.path.lexists(path):
            if self._system is not None:
                raise InvalidArgument(
                    f"--system: is given beside {path}, a conversation that has begun, "
                    "expected one of them"
                )
            self.load(path)

    def reset(self) -> None:
        self.session = self._llm.session(self._system, **self._options)

    def answer(self, message: str) -> None:
        """Stream the answer to a message. An error leaves the conversation as it was."""
        self._show(self.session.stream(message))

    def edit(self, message: str) -> None:
        """Stream the answer to what is said instead of the last question."""
        asked = [i for i, told in enumerate(self.session.messages) if told["role"] == "user"]
        if not asked:
            raise InvalidArgument("/edit: there is no question yet, expected one to say otherwise")
        other = self.session.fork()  # an error, and an answer that never began, change nothing
        other.edit(asked[-1], message)
        stream = other.restream()
        try:
            self._show(stream)
        finally:
            if other.messages[-1]["role"] == "assistant":
                self.session = other

    def save(self, file: str | None = None) -> None:
        """Save to a file, which from then on is the conversation's."""
        if file is None and self._file is None:
            raise InvalidArgument("/save: has no file, expected one: /save FILE")
        self._file = file or self._file
        assert self._file is not None
        self.session.save(self._file)
        told = f"{len(self.session.messages)} messages, {len(self.session.token_ids)} tokens"
        print(f"(saved {told}: {self._file})", file=sys.stderr)

    def load(self, file: str) -> None:
        """Go on from a file, which from then on is the conversation's."""
        self.session.load(file)
        self._file = file
        told = f"{len(self.session.messages)} messages, {len(self.session.token_ids)} tokens"
        print(f"(loaded {told}: {file})", file=sys.stderr)

    def end(self) -> None:
        """Save where that was asked for, and something was said."""
        if self._saves_at_end and self.session.messages:
            self.save()

    def _show(self, stream: SessionStream) -> None:
        with stream:
            for piece in stream:
                if not self._json:
                    flags.show(piece)
        result = stream.result
        flags.show(json.dumps(result.to_dict()) + "\n" if self._json else "\n")
        if self._verbose:
            print(flags.timings_line(result), file=sys.stderr)


def _converse(conversation: Conversation) -> None:
    watched = sys.stdin.isatty()
    if watched:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (gives input() arrow keys and history)
        print("Talk to the model; /help shows the commands.", file=sys.stderr)
    while True:
        try:
            line = input("> ") if watched else input()
        except EOFError:
            if watched:
                print()
            return
        except KeyboardInterrupt:
            if not watched:
                raise
            print("\n(Ctrl-D leaves)", file=sys.stderr)
            continue
        except UnicodeDecodeError:
            raise InvalidArgument("stdin: is not UTF-8, expected text") from None
        if not line.strip():
            continue
        command = line.strip() if line.strip().startswith("/") else None
        if command == "/quit":
            return
        try:
            if command is not None:
                _obey(command, conversation)
            else:
                conversation.answer(line)
        except KeyboardInterrupt:
            if not watched:
                raise
            print()
        except Error as error:
            if not watched or not (command or isinstance(error, InvalidArgument)):
                raise
            # Of a question: it is longer than the context, as a rule.
            print(f"onward: {error}{'' if command else '; /reset starts over'}", file=sys.stderr)


def _obey(line: str, conversation: Conversation) -> None:
    """Do what a line that starts with a slash asks for."""
    command, _, rest = line.partition(" ")
    rest = rest.strip()
    if command == "/reset":
        conversation.reset()
        print("(a new conversation)", file=sys.stderr)
    elif command == "/rewind":
        if rest and not rest.isdecimal():
            raise InvalidArgument(f"/rewind: is given {rest!r}, expected a number of questions")
        conversation.session.rewind(int(rest or 1))
        print(f"({len(conversation.session.messages)} messages are left)", file=sys.stderr)
    elif command in ("/edit", "/load") and not rest:
        expected = "the text" if command == "/edit" else "a file"
        raise InvalidArgument(f"{command}: is given nothing, expected {expected}")
    elif command == "/edit":
        conversation.edit(rest)
    elif command == "/save":
        conversation.save(rest or None)
    elif command == "/load":
        conversation.load(rest)
    else:
        if command != "/help":
            print(f"onward: {line}: no such command", file=sys.stderr)
        print(HELP, file=sys.stderr)
