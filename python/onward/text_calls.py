"""The calls of ``LLM`` that turn prompts and conversations into text.

``LLM`` adds loading, properties and closing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from onward.calls.generation import Stream
from onward.calls.prompts import Prompt, TokenIds
from onward.calls.result import Result
from onward.errors import ArgumentTypeError, TokenizerError, not_copied
from onward.options.chat import CHAT_KEYWORDS, SESSION_KEYWORDS, conversation, split
from onward.options.resolution import (
    check_each,
    refuse_unknown,
    with_chat_options,
    with_options,
    with_session_options,
)
from onward.options.values import check_flag
from onward.sessions.session import Session, SessionModel
from onward.text.template.template import ChatTemplate, chat_prompt_ids

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Unpack

    from onward.calls.submission import Submitter
    from onward.load.origin import Origin
    from onward.machine.workers import Workers
    from onward.options.chat import ChatKwargs, SessionKwargs
    from onward.options.generation import GenerationKwargs
    from onward.text.tokenizer.tokenizer import Tokenizer

Messages: TypeAlias = "str | Sequence[Mapping[str, Any]]"
_OF_CHAT = (*CHAT_KEYWORDS, "stream", "template_options")
_OF_SESSIONS = (*SESSION_KEYWORDS, "system", "messages", "template_options")


class TextCalls:
    """The calls. ``LLM`` sets the attributes that they need."""

    _submitter: Submitter
    _workers: Workers
    _origin: Origin
    _context: int
    _tokenizer: Tokenizer | None
    _no_tokenizer: str
    """Why there is no tokenizer; empty if there is one."""
    _read_template: Callable[[Tokenizer], ChatTemplate]
    _template: ChatTemplate | None

    @overload
    def generate(self, prompt: str | TokenIds, **options: Unpack[GenerationKwargs]) -> Result: ...

    @overload
    def generate(
        self,
        prompt: list[str] | list[list[int]] | list[NDArray[np.integer[Any]]] | tuple[str, ...],
        **options: Unpack[GenerationKwargs],
    ) -> list[Result]: ...

    @overload
    def generate(
        self, prompt: list[Prompt], **options: Unpack[GenerationKwargs]
    ) -> Result | list[Result]: ...

    @with_options
    def generate(self, prompt: Any, **options: Any) -> Result | list[Result]:
        """Continue a prompt, or each prompt of a list, in one batch. The order is kept.

        A prompt is text or a sequence of token ids: ``[1, 2, 3]`` is one prompt, ``["a", "b"]`` and
        ``[[1, 2], [3]]`` are two. Arrays and tensors of integers count as lists. ``[]`` is an
        error: it is a prompt without tokens. Prompts are continued unchanged; ``chat`` applies the
        chat template of the model.
        """
        return self._submitter.submit(prompt, options).answer()

    @overload
    async def agenerate(
        self, prompt: str | TokenIds, **options: Unpack[GenerationKwargs]
    ) -> Result: ...

    @overload
    async def agenerate(
        self,
        prompt: list[str] | list[list[int]] | list[NDArray[np.integer[Any]]] | tuple[str, ...],
        **options: Unpack[GenerationKwargs],
    ) -> list[Result]: ...

    @with_options
    async def agenerate(self, prompt: Any, **options: Any) -> Result | list[Result]:
        """``generate`` for asyncio. The event loop continues, and calls that are awaited
        together share the steps of the engine. Cancelling the task frees the engine after the
        present step."""
        call = await self._workers.run(self._submitter.submit, prompt, options)
        try:
            return await self._workers.run(call.answer)
        finally:
            call.close()

    @with_options
    async def astream(
        self, prompt: str | TokenIds, **options: Unpack[GenerationKwargs]
    ) -> AsyncGenerator[str, None]:
        """``stream`` for asyncio. Leaving the iteration, or cancelling its task, frees the
        engine after the present step."""
        stream = await self._workers.run(lambda: self.stream(prompt, **options))
        try:
            while (piece := await self._workers.run(lambda: next(stream, None))) is not None:
                yield piece
        finally:
            stream.close()

    @with_options
    def stream(self, prompt: str | TokenIds, **options: Unpack[GenerationKwargs]) -> Stream:
        """Continue one prompt and return the text piece by piece.

        Joined, the pieces are the ``text`` that ``generate`` returns for the same seed.
        """
        return self._submitter.submit(prompt, options, streamed=True).stream()

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        stream: Literal[False] = False,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[ChatKwargs],
    ) -> Result: ...

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        stream: Literal[True],
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[ChatKwargs],
    ) -> Stream: ...

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        stream: bool,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[ChatKwargs],
    ) -> Result | Stream: ...

    @with_chat_options
    def chat(
        self,
        messages: Messages,
        *,
        stream: bool = False,
        template_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Result | Stream:
        """Answer a conversation, with the chat template of the model.

        Args:
            messages: ``[{"role": "user", "content": "..."}, ...]``, or a string for one message.
            stream: return a ``Stream`` instead of waiting for the whole answer.
            template_options: further variables for the template, in addition to the keywords below.
        """
        check_chat(stream, options)
        variables, options = split(options, template_options)
        ids = self.chat_token_ids(messages, variables)
        return self.stream(ids, **options) if stream else self.generate(ids, **options)

    def chat_token_ids(
        self,
        messages: Messages,
        template_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> list[int]:
        """The token ids of the prompt of ``chat``; takes the conversation keywords of ``chat``."""
        tokenizer = self._text_tokenizer()
        variables, rest = split(options, template_options)
        if rest:
            refuse_unknown(rest, _OF_CHAT)
            name = next(iter(rest))
            raise ArgumentTypeError(f"{name}: does not change a prompt, expected it in chat()")
        read = conversation(messages, variables.pop("system", None))
        return chat_prompt_ids(self._chat_template(), tokenizer, read, **variables)

    @with_session_options
    def session(
        self,
        system: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        *,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[SessionKwargs],
    ) -> Session:
        """A conversation that remembers (onward doctor --docs sessions), beginning with these
        messages. The options apply to all answers, unless a call on the session overrides them."""
        refuse_unknown(options, _OF_SESSIONS)
        variables, generation = split(options, template_options)
        tokenizer, template = self._text_tokenizer(), self._chat_template()
        model = SessionModel(tokenizer, template, self._submitter, self._origin, self._context)
        return Session(model, system, messages, variables, generation)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise not_copied(
            "LLM",
            "make the LLM in each of them; processes that load the same pack "
            "(onward pack) share its pages in memory",
        )

    def _text_tokenizer(self) -> Tokenizer:
        self._submitter.engine.check_open()
        if self._tokenizer is None:
            raise TokenizerError(self._no_tokenizer)
        return self._tokenizer

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            tokenizer = self._text_tokenizer()
            self._template = self._read_template(tokenizer)
        return self._template


def check_chat(stream: object, options: Mapping[str, Any]) -> None:
    """Check the arguments of ``chat`` before anything is computed or loaded."""
    check_flag("stream", stream)
    check_each(options, _OF_CHAT)
