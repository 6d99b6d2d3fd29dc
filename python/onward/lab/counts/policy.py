"""The arguments of the calculator: lengths, batches, and which blocks are exact or kept at all."""

from __future__ import annotations

from dataclasses import dataclass

from onward.options.values import check_integer

CONTEXTS = (1024, 4096, 8192, 32768, 131072)
BATCHES = (1, 8, 32)
MOST_TOKENS = 2**40
"""More than any sequence; keeps arithmetic on hostile sizes short."""
MOST_SEQUENCES = 2**20


@dataclass(frozen=True)
class Policy:
    """Which blocks stay exact, and which are kept at all."""

    window_tokens: int = 128
    """Newest tokens that stay exact beside codes, rounded up to blocks, and a block more."""
    sinks: bool = True
    """The first block stays exact too."""
    attention_window: int | None = None
    """None: all that the model's own windows show."""

    def check(self) -> None:
        check_integer("kv_window_tokens", self.window_tokens, 0, MOST_TOKENS)
        if self.attention_window is not None:
            check_integer("attention_window", self.attention_window, 1, MOST_TOKENS)


def usual_contexts(most: int) -> list[int]:
    """The usual lengths that a model's context holds, and the context itself."""
    return [*(tokens for tokens in CONTEXTS if tokens < most), most]
