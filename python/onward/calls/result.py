"""What a call gives back: text, tokens, why it ended, what it cost, how long it took.

Plain data, which a shell and a notebook show as text and a line of figures (views.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal

from onward.calls.views import Viewed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onward.options.resolution import GenerationOptions

FinishReason = Literal["stop", "length"]
_SHOWN_IDS = 16


@dataclass(frozen=True)
class Usage:
    """Tokens read and tokens written, in all outputs together."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = field(default=0, compare=False)
    """Of the prompt: keys and values that an earlier request had left, and that were not computed
    again. It says what came before, not what came of it: equality leaves it out."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Timings:
    """Wall-clock times from the moment the request was handed to the engine.

    Prefill is bound by arithmetic and decode by memory bandwidth, so they are timed apart. In a
    batch, and with several callers, a request's times include what it waited for the others. A
    figure that needs more tokens than there are is None.
    """

    time_to_first_token_s: float | None
    time_per_output_token_s: float | None
    """Mean gap between tokens after the first."""
    prefill_tokens_per_s: float | None
    """Prompt tokens that were computed, divided by the time to the first token."""
    decode_tokens_per_s: float | None
    total_s: float

    @classmethod
    def measure(
        cls, computed_tokens: int, tokens: int, started: float, first: float | None, last: float
    ) -> Timings:
        """From the clock readings at submission, at the first token and at the last event."""
        to_first = None if first is None else first - started
        per_token = None if first is None or tokens < 2 else (last - first) / (tokens - 1)
        return cls(
            time_to_first_token_s=to_first,
            time_per_output_token_s=per_token,
            prefill_tokens_per_s=computed_tokens / to_first if to_first else None,
            decode_tokens_per_s=1 / per_token if per_token else None,
            total_s=last - started,
        )


@dataclass(frozen=True)
class TokenLogprobs:
    """How likely a token was: natural logarithms."""

    token_id: int
    logprob: float
    """Of the model's own distribution: the softmax of the raw logits."""
    chain_logprob: float
    """Of what the chain left to choose from, renormalised (greedy: of the processed scores). With
    beams: what was added to the hypothesis's sum. Of a prompt's token: the same as ``logprob``."""
    top: tuple[tuple[int, float], ...]
    """The likeliest token ids and their ``logprob``, best first, as many as were asked for."""
    chain_top: tuple[tuple[int, float], ...]
    """The same after the chain; fewer where fewer were left."""


@dataclass(frozen=True)
class Speculation:
    """What guessing ahead has brought: each accepted token saved a step."""

    guessed: int
    accepted: int

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted guesses over all; None without any."""
        return self.accepted / self.guessed if self.guessed else None


@dataclass(frozen=True, repr=False)
class GeneratedSequence(Viewed):
    """One of the outputs of a prompt. ``str(sequence)`` is the text."""

    text: str
    """The decoded tokens, cut before the stop string if one ended it."""
    token_ids: tuple[int, ...]
    """What was generated, the stop token included."""
    finish_reason: FinishReason
    """"stop": a stop token, a stop string, the end of a grammar or a stopping criterion.
    "length": max_new_tokens or the model's context."""
    stop_reason: str | int | None
    """The stop string or the stop token's id; None where neither ended it."""
    score: float | None = None
    """Of a beam search: the sum of log-probabilities / length ** length_penalty."""
    logprobs: tuple[TokenLogprobs, ...] | None = None
    """One a token, where the ``logprobs`` option asks for them."""

    def __str__(self) -> str:
        return self.text

    def _texts(self) -> list[tuple[str, str]]:
        return [("", text_or_ids(self.text, self.token_ids))]

    def _figures(self) -> str:
        score = [] if self.score is None else [f"score {self.score:.4g}"]
        return ", ".join([tokens_of(len(self.token_ids)), *score, f"finish: {self.finish_reason}"])


@dataclass(frozen=True, repr=False)
class Result(Viewed):
    """One finished generation. ``str(result)`` is the text.

    ``text``, ``token_ids`` and so on belong to the first of ``sequences``.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None
    usage: Usage
    timings: Timings
    options: GenerationOptions
    """The values that were in effect, wherever they came from; the seed that was drawn, too."""
    prompt_token_ids: tuple[int, ...]
    sequences: tuple[GeneratedSequence, ...]
    """``num_return_sequences`` of them: of a beam search best first (and fewer where the rules left
    fewer), with ``best_of`` the likeliest first, else in the order of their streams."""
    score: float | None = None
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
    """One for each token of the prompt after the first, where the option asks for them."""
    speculation: Speculation | None = None
    """Where ``prompt_lookup_num_tokens`` or a draft model guessed ahead."""

    def __str__(self) -> str:
        return self.text

    @property
    def figures(self) -> str:
        """Tokens, times and the finish reason in one line, for a person."""
        timings, usage = self.timings, self.usage
        parts = [f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"]
        if usage.cached_tokens:
            parts.append(f"{usage.cached_tokens} reused")
        if len(self.sequences) > 1:
            parts.append(f"the first of {len(self.sequences)} outputs")
        if timings.time_to_first_token_s is not None:
            parts.append(f"first token after {timings.time_to_first_token_s:.3f} s")
        if timings.prefill_tokens_per_s is not None:
            parts.append(f"prefill {timings.prefill_tokens_per_s:.0f} tokens/s")
        if timings.decode_tokens_per_s is not None:
            parts.append(f"decode {timings.decode_tokens_per_s:.1f} tokens/s")
        parts.append(f"finish: {self.finish_reason}")
        return ", ".join(parts)

    def _texts(self) -> list[tuple[str, str]]:
        return [("", text_or_ids(self.text, self.token_ids))]

    def _figures(self) -> str:
        return self.figures

    def to_dict(self) -> dict[str, object]:
        """Everything as JSON can hold it; what ``onward generate --json`` prints."""
        content = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        usage: Any = content["usage"]
        usage["total_tokens"] = self.usage.total_tokens
        if self.speculation is not None:
            speculation: Any = content["speculation"]
            speculation["acceptance_rate"] = self.speculation.acceptance_rate
        return content


def tokens_of(count: int) -> str:
    """A number of tokens in words."""
    return f"{count} token" if count == 1 else f"{count} tokens"


def text_or_ids(text: str, token_ids: Sequence[int]) -> str:
    """What was generated, for a person: the ids where they have no text."""
    if text or not token_ids:
        return text
    shown = ", ".join(map(str, token_ids[:_SHOWN_IDS]))
    return f"[token ids {shown}{', ...' if len(token_ids) > _SHOWN_IDS else ''}]"


def _plain(value: object) -> object:
    """Dataclasses as dicts; functions by name; JSON has no infinity."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return value
