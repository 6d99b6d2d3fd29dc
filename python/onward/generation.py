"""One request followed from submission to its result, and the stream that hands out its text.

Knows events and text; does not know how the engine is driven, or where options came from.
"""

from __future__ import annotations

import time
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from onward.errors import Error, InvalidArgument, NumericsError
from onward.result import FinishReason, Result, Timings, Usage

if TYPE_CHECKING:
    from onward._core import Event
    from onward.driver import Call
    from onward.options import GenerationOptions


class TextSink(Protocol):
    """Where tokens become text: onward.streaming.TextStream."""

    @property
    def stopped(self) -> str | None: ...
    @property
    def text(self) -> str: ...
    def push(self, token_id: int) -> str: ...
    def finish(self) -> str: ...


class Generation:
    """What has come of one request so far."""

    def __init__(
        self,
        where: str,
        prompt_token_ids: tuple[int, ...],
        options: GenerationOptions,
        sink: TextSink | None,
        *,
        conversational: bool = False,
    ) -> None:
        """``conversational``: the prompt is plain text, the model was trained on conversations."""
        self._where = where
        self._conversational = conversational
        self._prompt_token_ids = prompt_token_ids
        self._options = options
        self._sink = sink
        self._token_ids: list[int] = []
        self._finish_reason: FinishReason | None = None
        self._stop_reason: str | int | None = None
        self._started = time.perf_counter()
        self._first: float | None = None
        self._last = self._started

    @property
    def finished(self) -> bool:
        return self._finish_reason is not None

    def push(self, event: Event) -> str:
        """Take one event; returns the text that can be shown now. Raises what the event tells."""
        if event.finish_reason == "error":
            if event.invalid_argument:
                raise InvalidArgument(f"{self._where}: {event.error}")
            kind = NumericsError if event.numerics_error else Error
            raise kind(f"{self._where}: {event.error}")
        self._last = event.time
        piece = ""
        if event.token >= 0:
            if self._first is None:
                self._first = event.time
            self._token_ids.append(event.token)
            piece = self._sink.push(event.token) if self._sink else ""
        if self._sink and self._sink.stopped is None and event.finish_reason is not None:
            piece += self._sink.finish()
        if self._sink and self._sink.stopped is not None:
            self._finish_reason, self._stop_reason = "stop", self._sink.stopped
        elif event.finish_reason is not None:
            self._finish_reason = event.finish_reason
            self._stop_reason = event.token if event.finish_reason == "stop" else None
            if self._conversational and event.finish_reason == "stop" and len(self._token_ids) == 1:
                warnings.warn(
                    f"{self._where}: the model ended at once; it was trained on conversations, "
                    "and chat() puts a question into the form it knows",
                    stacklevel=2,
                )
        return piece

    def result(self) -> Result:
        """The result; only once ``finished``."""
        assert self._finish_reason is not None
        prompt_tokens, tokens = len(self._prompt_token_ids), len(self._token_ids)
        return Result(
            text=self._sink.text if self._sink else "",
            token_ids=tuple(self._token_ids),
            finish_reason=self._finish_reason,
            stop_reason=self._stop_reason,
            usage=Usage(prompt_tokens, tokens),
            timings=Timings.measure(prompt_tokens, tokens, self._started, self._first, self._last),
            options=self._options,
            prompt_token_ids=self._prompt_token_ids,
        )


class Stream:
    """An iterator over the text of one request, piece by piece as it is computed.

    The request is handed in when the stream is made. Leaving it half-way (``close()``, the end of
    a ``with`` block, or letting go of it) frees its place in the engine. Afterwards ``result`` has
    the whole. One stream is for one thread at a time.
    """

    def __init__(self, call: Call, generation: Generation) -> None:
        self._call = call
        self._generation = generation
        self._closed = False

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        """The next piece of text, never empty."""
        try:
            while not (self._closed or self._generation.finished):
                piece = self._generation.push(self._call.next_event())
                if self._generation.finished:
                    self._call.close()
                if piece:
                    return piece
        except BaseException:
            self.close()
            raise
        raise StopIteration

    @property
    def result(self) -> Result:
        """The result, once the stream has ended by itself."""
        if not self._generation.finished:
            state = "was closed before its end" if self._closed else "has not ended yet"
            raise Error(f"stream: {state}, expected one that was read to its end")
        return self._generation.result()

    def close(self) -> None:
        """Stop generating. What was computed so far stays readable as the pieces handed out."""
        self._closed = True
        self._call.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # half-built, or the interpreter is already taking itself apart
            return
