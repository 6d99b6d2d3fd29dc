"""What a call gives back: text, tokens, why it ended, what it cost, how long it took.

Plain data. Knows nothing of models, tokenizers or the engine.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from onward.options import GenerationOptions

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Usage:
    """Tokens read and tokens written."""

    prompt_tokens: int
    completion_tokens: int

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
    """Prompt tokens divided by the time to the first token."""
    decode_tokens_per_s: float | None
    total_s: float

    @classmethod
    def measure(
        cls, prompt_tokens: int, tokens: int, started: float, first: float | None, last: float
    ) -> Timings:
        """From the clock readings at submission, at the first token and at the last event."""
        to_first = None if first is None else first - started
        per_token = None if first is None or tokens < 2 else (last - first) / (tokens - 1)
        return cls(
            time_to_first_token_s=to_first,
            time_per_output_token_s=per_token,
            prefill_tokens_per_s=prompt_tokens / to_first if to_first else None,
            decode_tokens_per_s=1 / per_token if per_token else None,
            total_s=last - started,
        )


@dataclass(frozen=True)
class Result:
    """One finished generation. ``str(result)`` is the text."""

    text: str
    """The decoded tokens, cut before the stop string if one ended it."""
    token_ids: tuple[int, ...]
    """What was generated, the stop token included."""
    finish_reason: FinishReason
    """"stop": a stop token or stop string. "length": max_new_tokens or the model's context."""
    stop_reason: str | int | None
    """The stop string or the stop token's id; None after "length"."""
    usage: Usage
    timings: Timings
    options: GenerationOptions
    """The values that were in effect, wherever they came from; the seed that was drawn, too."""
    prompt_token_ids: tuple[int, ...]

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, object]:
        """Everything as JSON can hold it; what ``onward generate --json`` prints."""
        content = asdict(self)
        content["usage"]["total_tokens"] = self.usage.total_tokens
        content["options"]["logit_bias"] = {
            token: bias if math.isfinite(bias) else "-inf"  # JSON has no infinity
            for token, bias in self.options.logit_bias.items()
        }
        return content
