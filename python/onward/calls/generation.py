"""One request from its first event to its result, and the stream that hands out its text.

A request has one output or several: samples of one prompt, or the hypotheses of a beam search.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from onward.calls.result import (
    FinishReason,
    GeneratedSequence,
    Result,
    Speculation,
    Timings,
    TokenLogprobs,
    Usage,
    text_or_ids,
    tokens_of,
)
from onward.calls.views import Viewed
from onward.errors import Error, not_copied
from onward.options.grammar import CONSTRAINT_OPTIONS
from onward.text.distinct_texts import is_repeated

if TYPE_CHECKING:
    from onward import _core
    from onward._core import EngineClient, Event
    from onward.options.resolution import GenerationOptions


class TextSink(Protocol):
    """Where tokens become text: onward.text.streaming.TextStream."""

    @property
    def stopped(self) -> str | None: ...
    @property
    def text(self) -> str: ...
    def push(self, token_id: int) -> str: ...
    def finish(self) -> str: ...


class _Output:
    """One sequence of the request so far."""

    def __init__(self, sink: TextSink | None, stop_token_ids: tuple[int, ...]) -> None:
        self._sink = sink
        self._stop_token_ids = stop_token_ids
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprobs] = []
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self._score: float | None = None

    def push(self, event: Event, finish: FinishReason | None) -> str:
        piece, token = "", event.token
        if event.gathered is not None:
            tokens, logprobs, _ = event.gathered
            self.token_ids += tokens
            self.logprobs += map(_logprobs, logprobs)
            piece = "".join(map(self._sink.push, tokens)) if self._sink else ""
        if token >= 0:
            self.token_ids.append(token)
            if event.logprobs is not None:
                self.logprobs.append(_logprobs(event.logprobs))
            piece += self._sink.push(token) if self._sink else ""
        if finish is not None:
            if self._sink and self._sink.stopped is None:
                piece += self._sink.finish()
            self.finish_reason, self._score = finish, event.score
            stops = finish == "stop" and token in self._stop_token_ids
            self.stop_reason = token if stops else None
        if self._sink and self._sink.stopped is not None:
            self.finish_reason, self.stop_reason = "stop", self._sink.stopped
        return piece

    @property
    def text(self) -> str:
        return self._sink.text if self._sink else ""

    def repeated(self, length_penalty: float) -> bool:
        """Whether a beam search found it only as another spelling of a text."""
        assert self._score is not None
        return is_repeated(self._score, len(self.token_ids), length_penalty)

    def mean_logprob(self) -> float:
        """By this ``best_of`` chooses among the outputs."""
        if not self.logprobs:
            return -math.inf
        return math.fsum(each.logprob for each in self.logprobs) / len(self.logprobs)

    def sequence(self, with_logprobs: bool) -> GeneratedSequence:
        assert self.finish_reason is not None
        return GeneratedSequence(
            text=self.text,
            token_ids=tuple(self.token_ids),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            score=self._score,
            logprobs=tuple(self.logprobs) if with_logprobs else None,
        )


class Generation:
    """One request so far."""

    def __init__(
        self,
        where: str,
        prompt_token_ids: tuple[int, ...],
        options: GenerationOptions,
        new_sink: Callable[[], TextSink | None],
        *,
        conversational: bool = False,
    ) -> None:
        """``conversational``: the prompt is plain text, the model was trained on conversations."""
        self._where = where
        self._conversational = conversational
        self._prompt_token_ids = prompt_token_ids
        self._progress = options.prefill_progress
        self._options = options.but(prefill_progress=None)  # not part of the result
        self._new_sink = new_sink
        self._outputs: dict[int, _Output] = {}
        self._prompt_logprobs: list[TokenLogprobs] = []
        self.finished = False
        """Whether all of its outputs have ended."""
        self._guessed = self._accepted = self._cached_tokens = 0
        self._started = time.perf_counter()
        self._first: float | None = None
        self._last = self._started

    def push(self, event: Event) -> str:
        """Take one event; returns the text of the first output that can be shown now. Raises the
        error of a request that failed."""
        finish = event.finish_reason
        if finish == "error":
            try:
                event.raise_failure()
            except Error as error:
                if type(error).__module__ != Error.__module__:
                    raise  # a class of the caller's own, from a rule
                raise type(error)(f"{self._where}: {error}") from None
            except StopIteration as error:  # would end a stream quietly, and asyncio cannot hold it
                raise RuntimeError(f"{self._where}: a rule raised StopIteration") from error
            raise Error(f"{self._where}: ended with an error that was raised before")
        if event.prompt_computed >= 0:
            assert self._progress is not None
            self._progress(event.prompt_computed, len(self._prompt_token_ids))
            return ""
        output = self._outputs.get(event.sequence)
        if output is None:
            output = _Output(self._new_sink(), self._options.stop_token_ids)
            self._outputs[event.sequence] = output
        if output.finish_reason is not None:
            return ""  # computed before the stop string was found
        self._last = event.time
        if event.cached_tokens > self._cached_tokens:
            self._cached_tokens = event.cached_tokens
        if event.gathered is not None:
            first = event.gathered[2]
            self._first = first if self._first is None else min(self._first, first)
        elif self._first is None and event.token >= 0:
            self._first = self._last
        if event.prompt_logprobs:
            self._prompt_logprobs += map(_logprobs, event.prompt_logprobs)
        self._guessed += event.guessed
        self._accepted += event.accepted
        piece = output.push(event, finish)
        if output.finish_reason is None and not event.ends_request:
            return piece if event.sequence == 0 else ""  # as of nearly every event
        self.finished = event.ends_request or (
            len(self._outputs) == self._samples
            and all(output.finish_reason is not None for output in self._outputs.values())
        )
        ended_at_once = output.finish_reason == "stop" and len(output.token_ids) == 1
        if self._conversational and ended_at_once and isinstance(output.stop_reason, int):
            warnings.warn(
                f"{self._where}: the model ended at once; it was trained on conversations, "
                "and chat() applies its chat template to a question",
                stacklevel=2,
            )
        return piece if event.sequence == 0 else ""

    def ended_here(self, event: Event) -> bool:
        """Whether a stop string has ended the event's output, which the engine does not know."""
        output = self._outputs.get(event.sequence)  # none yet: the event was about the prompt
        return (
            event.finish_reason is None and output is not None and output.finish_reason is not None
        )

    def result(self) -> Result:
        """The result; only once ``finished``."""
        assert self.finished
        options = self._options
        outputs = [self._outputs[index] for index in sorted(self._outputs)]
        if options.num_beams > 1:
            if any(getattr(options, name) is not None for name in CONSTRAINT_OPTIONS):
                best_of_text: dict[str, _Output] = {}
                for output in outputs:  # the best come first
                    best_of_text.setdefault(output.text, output)
                outputs = list(best_of_text.values())
                power = options.length_penalty
                outputs = [each for each in outputs if not each.repeated(power)] or outputs[:1]
            del outputs[options.num_return_sequences :]
        tokens = sum(len(output.token_ids) for output in outputs)
        if options.best_of is not None:
            outputs.sort(key=_Output.mean_logprob, reverse=True)
        del outputs[options.num_return_sequences :]
        sequences = tuple(output.sequence(options.logprobs is not None) for output in outputs)
        best = sequences[0]
        prompt_tokens = len(self._prompt_token_ids)
        guesses = options.prompt_lookup_num_tokens or options.num_assistant_tokens
        return Result(
            text=best.text,
            token_ids=best.token_ids,
            finish_reason=best.finish_reason,
            stop_reason=best.stop_reason,
            usage=Usage(prompt_tokens, tokens, self._cached_tokens),
            timings=Timings.measure(
                prompt_tokens - self._cached_tokens,
                tokens,
                self._started,
                self._first,
                self._last,
            ),
            options=options,
            prompt_token_ids=self._prompt_token_ids,
            sequences=sequences,
            score=best.score,
            logprobs=best.logprobs,
            prompt_logprobs=(
                None if options.prompt_logprobs is None else tuple(self._prompt_logprobs)
            ),
            speculation=Speculation(self._guessed, self._accepted) if guesses else None,
        )

    @property
    def token_ids(self) -> Sequence[int]:
        """Of the first output, so far."""
        output = self._outputs.get(0)
        return () if output is None else output.token_ids

    @property
    def _samples(self) -> int:
        """Number of outputs that end one by one. The outputs of a beam search end together."""
        options = self._options
        return 0 if options.num_beams > 1 else options.best_of or options.num_return_sequences


def _logprobs(found: _core.TokenLogprobs) -> TokenLogprobs:
    return TokenLogprobs(
        token_id=found.token,
        logprob=found.raw,
        chain_logprob=found.chain,
        top=tuple(found.raw_top),
        chain_top=tuple(found.chain_top),
    )


class Stream(Viewed):
    """An iterator over the text of one request, piece by piece as it is computed.

    The request is submitted when the stream is made. Leaving the stream half-way (``close()``, the
    end of a ``with`` block, or letting go of it) frees its place in the engine. At its end
    ``result`` has the whole answer. Only one thread at a time may use a stream.
    """

    def __init__(self, client: EngineClient, generation: Generation) -> None:
        self._client = client
        self._generation = generation
        self._closed = False
        self._pieces: list[str] = []

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        """The next piece of text, never empty."""
        client, generation = self._client, self._generation
        try:
            while not (self._closed or generation.finished):
                piece = generation.push(client.next_event())
                if generation.finished:
                    client.close()
                if piece:
                    self._pieces.append(piece)
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
        """Stop generating. The pieces that were handed out stay valid."""
        self._closed = True
        self._client.close()

    def _texts(self) -> list[tuple[str, str]]:
        text, ids = "".join(self._pieces), self._generation.token_ids
        return [("", text_or_ids(text, ids if self._generation.finished else ()))]

    def _figures(self) -> str:
        if self._generation.finished:
            return self._generation.result().figures
        state = "closed before its end" if self._closed else "not ended yet"
        return f"stream, {tokens_of(len(self._generation.token_ids))} so far, {state}"

    def __reduce_ex__(self, protocol: object) -> Any:
        raise not_copied("Stream", "send its pieces, or its result when it has ended")

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
