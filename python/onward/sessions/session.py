"""Session: a conversation that remembers.

A session keeps its messages and the token ids that the engine has computed for them. So the next
prompt begins with ids whose keys and values are in the prefix cache, and only the rest is computed.
A session reserves nothing in the engine: it finds the cached prefixes of finished requests. It can
be rewound, forked, saved and loaded.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onward.calls.result import Usage
from onward.calls.views import Viewed
from onward.errors import (
    ArgumentTypeError,
    Error,
    InvalidArgument,
    NotCached,
    SessionError,
    not_copied,
)
from onward.machine.progress import ProgressBar
from onward.message_text import label
from onward.options.resolution import with_options
from onward.options.values import check_integer, wrong_type
from onward.sessions.file import opened_session, session_path, write_session
from onward.sessions.messages import (
    Asked,
    Message,
    copies,
    exchanges,
    read_message,
    read_messages,
    text_of,
)
from onward.sessions.state import UNUSED, SessionState, read_state, written_state
from onward.sessions.stream import Answer, SessionStream
from onward.sessions.transcript import Transcript, ids_of
from onward.text.template.template import chat_prompt_ids

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from onward.calls.result import Result
    from onward.calls.submission import Submitter
    from onward.load.origin import Origin
    from onward.options.generation import GenerationKwargs
    from onward.text.template.template import ChatTemplate
    from onward.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class SessionModel:
    """What a session needs of the model that answers."""

    tokenizer: Tokenizer
    template: ChatTemplate
    submitter: Submitter
    origin: Origin
    context: int

    def prompt(
        self, state: SessionState, messages: Sequence[Message], more: bool = False
    ) -> Transcript:
        """The prompt that asks for an answer to ``messages``. The state describes the messages
        before.

        With ``more`` the last message is an unfinished answer, and the prompt ends where that ends.
        """
        options = dict(state.template_options)
        if more:
            options["continue_final_message"] = True
        return Transcript(self.tokenizer, state.segments).prompt(
            self.template.render(messages, **options),
            len(messages),
            lambda: chat_prompt_ids(self.template, self.tokenizer, messages, **options),
        )


class Session(Viewed):
    """A conversation. ``LLM.session`` creates it.

    A failed call leaves the session unchanged. Use one session in one thread at a time; several
    sessions of one ``LLM`` may run at once and share each step of the engine.
    """

    def __init__(
        self,
        model: SessionModel,
        system: str | None,
        messages: Sequence[Mapping[str, Any]] | None,
        template_options: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        read, variables = read_messages(system, messages, template_options)
        template = variables.get("chat_template")
        if not model.template.names or template not in (None, *model.template.names):
            probe = [{"role": "user", "content": ""}]
            # Raises where the template is missing.
            model.template.render(probe, chat_template=template)
        model.submitter.check(options)
        self._model = model
        self._options = dict(options)
        self._state = SessionState(tuple(read), variables)
        self._stream: weakref.ref[SessionStream] | None = None

    @with_options
    def send(
        self,
        message: Asked,
        **options: Unpack[GenerationKwargs],
    ) -> Result:
        """Send a message and wait for the answer.

        ``message`` is text or parts of a user message, or a message of any role. Options given here
        have priority over the options of the session.
        """
        return self._answer(self._asked(message), options)

    @with_options
    def stream(
        self,
        message: Asked,
        **options: Unpack[GenerationKwargs],
    ) -> SessionStream:
        """Like ``send``, but returns the text piece by piece.

        The answer becomes part of the conversation when the stream ends. If the stream is closed
        early, the text so far is kept; if there is none, the message is removed as well.
        """
        return self._streamed(self._asked(message), options)

    @with_options
    def resend(self, **options: Unpack[GenerationKwargs]) -> Result:
        """Ask again for an answer to the last message of the user; it replaces the present answer.
        Use it after ``edit``, or to get a different answer."""
        return self._answer(self._unanswered(), options)

    @with_options
    def restream(self, **options: Unpack[GenerationKwargs]) -> SessionStream:
        """Like ``resend``, but returns the text piece by piece. If it is closed before any text
        came, the conversation stays unchanged."""
        return self._streamed(self._unanswered(), options)

    @with_options
    def more(self, **options: Unpack[GenerationKwargs]) -> Result:
        """Continue the last answer, which ended at ``max_new_tokens`` or because its stream was
        closed.

        The result contains the new text only. The message in ``messages`` grows by it.
        """
        return self._answer(self._begun(), options, more=True)

    @with_options
    def stream_more(self, **options: Unpack[GenerationKwargs]) -> SessionStream:
        """Like ``more``, but returns the text piece by piece."""
        return self._streamed(self._begun(), options, more=True)

    def instruct(self, system: str | None) -> None:
        """Replace the system message, or remove it with None. The other messages stay. The next
        answer has to read all of them again."""
        messages = [*self._ended().messages]
        if messages and messages[0]["role"] == "system":
            del messages[0]
        read, _ = read_messages(system, messages, None)
        self._state = replace(self._state, messages=tuple(read), segments=())

    def rewind(self, n: int = 1) -> None:
        """Remove the last ``n`` exchanges. An exchange is a message of the user and all that
        follows it."""
        begins = exchanges(self._ended().messages)
        if not begins:
            raise InvalidArgument("rewind: the conversation has no exchange, expected at least one")
        self._cut(begins[-check_integer("n", n, 1, len(begins))])

    def edit(self, index: int, content: str | Sequence[Mapping[str, Any]]) -> None:
        """Change the text of the message at ``index``, and remove all messages after it.

        Nothing is computed yet. After a message of the user, ``resend`` answers it; after an
        answer, ``send`` continues from there.
        """
        state = self._ended()
        if not state.messages:
            raise InvalidArgument("edit: the conversation has no message, expected at least one")
        count = len(state.messages)
        at = check_integer("index", index, -count, count - 1) % count
        changed = read_message(f"messages[{at}]", {**state.messages[at], "content": content})
        self._cut(at, changed)

    def fork(self) -> Session:
        """A new session with the same conversation. The two are independent from now on. The usage
        of the new one begins at 0."""
        twin = object.__new__(type(self))
        twin._model, twin._options = self._model, dict(self._options)
        twin._state = replace(self._ended(), usage=UNUSED)
        twin._stream = None
        return twin

    def __reduce_ex__(self, protocol: object) -> Any:
        raise not_copied(
            "Session",
            "send the file that save() writes, or its messages, and begin a session there; "
            "fork() copies one within the process",
        )

    @property
    def messages(self) -> list[Message]:
        """Copies of the messages."""
        return copies(self._state.messages)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Token ids of the last prompt and its answer, as far as they are in the conversation."""
        return tuple(ids_of(self._state.segments))

    @property
    def usage(self) -> Usage:
        """Usage of all answers so far, including removed ones."""
        return self._state.usage

    def save(self, path: str | os.PathLike[str], *, cache: bool = True) -> None:
        """Write the conversation, its keys and its values to a file for ``load``.

        With ``cache=False`` the keys and values are left out: the file is small, and the first
        answer after ``load`` computes them again.

        Raises:
            SessionError: the file cannot be written, or a file of another kind is in its place.
        """
        if not isinstance(cache, bool):
            raise wrong_type("cache", cache, "True or False")
        state, file = self._ended(), session_path("path", path)
        ids = np.asarray(ids_of(state.segments), np.int32)
        with ProgressBar(f"saving {label(file.name)}") as progress:
            engine = self._model.submitter.engine
            blocks = engine.store_prefix(ids) if cache and len(ids) else []
            metadata = {**self._model.origin, "backend": engine.backend}
            write_session(file, metadata, ids.tolist(), written_state(state), blocks, progress)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace this conversation by the one in a file that ``save`` wrote.

        If the cache has no room for its keys and values, a warning says so, and the next answer
        computes them again.

        Raises:
            SessionError: the file is damaged, or was saved with another model or other settings of
                the cache.
        """
        self._ended()
        file = session_path("path", path)
        name, model = label(file.name), self._model
        backend = model.submitter.engine.backend
        with (
            ProgressBar(f"loading {name}") as progress,
            opened_session(
                file, model.origin, model.submitter.reader.vocab_size, model.context, progress
            ) as saved,
        ):
            try:
                state = read_state(saved.conversation, saved.token_ids)
            except (InvalidArgument, ArgumentTypeError) as failure:
                raise SessionError(f"{name}: {failure}") from None
            if saved.blocks:
                self._restore(name, saved.token_ids, saved.blocks)
            if saved.metadata.get("backend") != backend:
                warnings.warn(
                    f"{name}: was computed on {saved.metadata.get('backend')}, this is {backend}: "
                    "answers may differ in their last bits",
                    stacklevel=2,
                )
        self._state = state

    def __repr__(self) -> str:
        return f"<onward.Session: {self._figures()}>"

    def _texts(self) -> list[tuple[str, str]]:
        return [text_of(message) for message in self._state.messages]

    def _figures(self) -> str:
        count = len(self._state.messages)
        return f"{count} messages, {len(self.token_ids)} tokens of {self._model.context}"

    def _ended(self) -> SessionState:
        """The state between two answers."""
        stream = None if self._stream is None else self._stream()
        if stream is not None and stream.open:
            raise Error(
                "session: an answer is still being streamed, expected it read to its end or closed"
            )
        return self._state

    def _asked(self, message: Asked) -> list[Message]:
        messages = [*self._ended().messages]
        asked = read_message("message", message)
        if messages and messages[-1]["role"] == asked["role"] == "user":
            raise InvalidArgument(
                "session: its last message has no answer, expected resend() to answer it"
            )
        return [*messages, asked]

    def _unanswered(self) -> list[Message]:
        messages = [*self._ended().messages]
        while messages and messages[-1]["role"] == "assistant":
            messages.pop()
        if not exchanges(messages):
            raise InvalidArgument("resend: the conversation has no question, expected one")
        return messages

    def _begun(self) -> list[Message]:
        """The messages; the last one is an answer that can be continued."""
        messages = [*self._ended().messages]
        last = messages[-1] if messages else {"role": "none"}
        if last["role"] != "assistant" or not isinstance(last.get("content"), str):
            raise InvalidArgument("more: there is no answer to go on with, expected one")
        return messages

    def _answer(
        self, messages: list[Message], options: Mapping[str, Any], *, more: bool = False
    ) -> Result:
        submitter = self._model.submitter
        submitter.engine.check_open()
        prompt = self._model.prompt(self._state, messages, more)
        call = submitter.submit(prompt.token_ids(), {**self._options, **options})
        [result] = call.results()
        self._take(messages, prompt, Answer(result.text, result.token_ids, result.usage), more)
        return result

    def _streamed(
        self, messages: list[Message], options: Mapping[str, Any], *, more: bool = False
    ) -> SessionStream:
        submitter = self._model.submitter
        submitter.engine.check_open()
        prompt = self._model.prompt(self._state, messages, more)
        ids = prompt.token_ids()
        given = {**self._options, **options}
        call = submitter.submit(ids, given, streamed=True)
        stream = SessionStream(
            call,
            len(ids),
            lambda answer: self._take(messages, prompt, answer, more),
        )
        self._stream = weakref.ref(stream)
        return stream

    def _take(
        self, messages: list[Message], prompt: Transcript, answer: Answer, more: bool
    ) -> None:
        """Add an answer to the conversation: as a new message, or as more text of the last one."""
        used, cost = self._state.usage, answer.usage
        usage = Usage(
            used.prompt_tokens + cost.prompt_tokens,
            used.completion_tokens + cost.completion_tokens,
            used.cached_tokens + cost.cached_tokens,
        )
        if not (answer.text or answer.whole):
            self._state = replace(self._state, usage=usage)
            return
        said = {"role": "assistant", "content": self._content(answer)}
        if more:
            begun = prompt.completed(messages[-1]["content"], answer.token_ids)
            said = {**messages[-1], "content": begun + said["content"]}
            messages = messages[:-1]
        told = prompt.answered(answer.token_ids, len(messages) + 1)
        self._state = replace(
            self._state, messages=(*messages, said), segments=told.segments, usage=usage
        )

    def _content(self, answer: Answer) -> str:
        """The text without the special token that ended it. The template writes that token
        again."""
        tokenizer, ids = self._model.tokenizer, answer.token_ids
        if not ids or ids[-1] not in tokenizer.special_ids:
            return answer.text
        return answer.text.removesuffix(tokenizer.decode(ids[-1:], skip_special_tokens=False))

    def _cut(self, count: int, *more: Message) -> None:
        """Keep the first ``count`` messages."""
        kept = Transcript(self._model.tokenizer, self._state.segments).first(count)
        messages = (*self._state.messages[:count], *more)
        self._state = replace(self._state, messages=messages, segments=kept.segments)

    def _restore(
        self, name: str, token_ids: list[int], blocks: list[tuple[int, bool, int, memoryview]]
    ) -> None:
        """Put the blocks of a file into the cache, if it has room for them."""
        ids: NDArray[np.int32] = np.asarray(token_ids, np.int32)
        try:
            self._model.submitter.engine.restore_prefix(ids, blocks)
        except NotCached as failure:
            warnings.warn(
                f"{name}: the cache does not hold its {len(ids)} tokens, which the next answer "
                f"computes again ({failure})",
                stacklevel=3,
            )
        except InvalidArgument as failure:
            raise SessionError(f"{name}: {failure}") from None
