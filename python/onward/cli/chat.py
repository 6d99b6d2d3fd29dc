"""onward chat: talk with a model; the conversation is kept.

With a MESSAGE it answers that one and leaves. Else it reads lines: from a person with a prompt,
arrow keys and history, from a pipe silently. Ctrl-C stops an answer, Ctrl-D leaves. Knows nothing
of how conversations become tokens.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

from onward.cli import flags
from onward.errors import InvalidArgument

if TYPE_CHECKING:
    from onward.llm import LLM

HELP = """\
/reset   forget the conversation
/help    show this
/quit    leave (so does Ctrl-D)
Ctrl-C   stop the answer"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("message", nargs="?", metavar="MESSAGE", help="answer this and leave")
    parser.add_argument("--system", metavar="TEXT", help="a system message to begin with")
    parser.add_argument(
        "--json", action="store_true", help="print each answer as one JSON object, a line each"
    )
    flags.add_model_arguments(parser)
    flags.add_generation_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    options = flags.generation_options(arguments)
    with flags.load(arguments) as llm:
        conversation = Conversation(llm, options, arguments)
        if arguments.message is not None:
            conversation.answer(arguments.message)
        else:
            _converse(conversation)
    return 0


class Conversation:
    """The messages so far, and how the next answer is shown."""

    def __init__(self, llm: LLM, options: dict[str, Any], arguments: argparse.Namespace) -> None:
        self._llm = llm
        self._options = options
        self._json: bool = arguments.json
        self._verbose: bool = arguments.verbose
        system = arguments.system
        self._beginning = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self._beginning)

    def reset(self) -> None:
        self.messages = list(self._beginning)

    def answer(self, message: str) -> None:
        """Add a message and stream the answer. An error leaves the conversation as it was."""
        asked = [*self.messages, {"role": "user", "content": message}]
        pieces: list[str] = []
        with self._llm.chat(asked, stream=True, **self._options) as stream:
            try:
                for piece in stream:
                    pieces.append(piece)
                    if not self._json:
                        flags.show(piece)
            finally:  # what was said before Ctrl-C was said
                if pieces:
                    text = "".join(pieces)
                    self.messages = [*asked, {"role": "assistant", "content": text}]
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
        if line.strip().startswith("/"):
            if _command(line.strip(), conversation):
                return
            continue
        try:
            conversation.answer(line)
        except KeyboardInterrupt:
            if not watched:
                raise
            print()
        except InvalidArgument as error:  # longer than the context, as a rule
            print(f"onward: {error}; /reset starts over", file=sys.stderr)
            if not watched:
                raise


def _command(line: str, conversation: Conversation) -> bool:
    """Obey a line that starts with a slash; whether to leave."""
    if line == "/quit":
        return True
    if line == "/reset":
        conversation.reset()
        print("(a new conversation)", file=sys.stderr)
    else:
        if line != "/help":
            print(f"onward: {line}: no such command", file=sys.stderr)
        print(HELP, file=sys.stderr)
    return False
