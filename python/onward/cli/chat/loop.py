"""The loop of a chat: reads a message, then answers it or runs its command, until the end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from onward.cli import streams
from onward.cli.chat.commands import command_of, obey, unescaped
from onward.cli.chat.conversation import Conversation
from onward.cli.chat.reading import Reader
from onward.cli.chat.typed import Typed
from onward.errors import Error, InvalidArgument, SessionError


def converse(conversation: Conversation, reader: Reader) -> None:
    """Read and answer until the end of the input or ``/quit``."""
    while not conversation.over:
        prefill, conversation.prefill = conversation.prefill, ""
        try:
            said = reader.read(prefill)
        except EOFError:
            if conversation.watched:
                print(file=sys.stderr)
            return
        except OSError:
            if not conversation.watched:
                raise
            return  # the terminal is gone
        except KeyboardInterrupt:
            if not conversation.watched:
                raise
            print("\n(Ctrl-D leaves)", file=sys.stderr)
            continue
        except InvalidArgument as error:
            if not conversation.watched:
                raise
            print(f"onward: {error}", file=sys.stderr)
            continue
        if said.text.strip():
            _take(conversation, said)


def _take(conversation: Conversation, said: Typed) -> None:
    """Answer one message, or run one command."""
    command = None if said.quoted else command_of(said.text)
    try:
        if command is not None:
            obey(said.text, conversation)
        else:
            conversation.answer(said.text if said.quoted else unescaped(said.text))
    except KeyboardInterrupt:
        if not conversation.watched:
            raise
        begun = conversation.session.messages[-1:]
        goes_on = "; /more continues" if begun and begun[0]["role"] == "assistant" else ""
        print(f"(stopped{goes_on})", file=sys.stderr)
        _keep(conversation)
    except Error as error:
        if not conversation.watched or not (
            command or isinstance(error, (InvalidArgument, SessionError))
        ):
            raise
        # The usual reason is a question that is too long for the context.
        hint = (
            "; /reset removes all messages"
            if isinstance(error, InvalidArgument) and not command
            else ""
        )
        print(f"onward: {error}{hint}", file=sys.stderr)


def _keep(conversation: Conversation) -> None:
    """Save after an answer that was stopped."""
    try:
        conversation.keep()
    except SessionError as error:
        print(f"onward: {error}", file=sys.stderr)


@contextlib.contextmanager
def kept_to_the_end(conversation: Conversation) -> Iterator[None]:
    """Save at the end of the block. After SIGTERM and SIGHUP, save without keys and values, which
    is fast."""
    try:
        yield
    except SystemExit:
        # The same signal may come twice, for example from a closed terminal and from its shell.
        streams.ignore_signals()
        conversation.keep()
        raise
    except BaseException:
        conversation.end()
        raise
    conversation.end()
