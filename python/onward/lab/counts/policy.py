"""The arguments of the calculator: lengths, batch sizes, and which blocks are exact or kept."""

from __future__ import annotations

from dataclasses import dataclass

from onward.options.values import check_integer

CONTEXTS = (1024, 4096, 8192, 32768, 131072)
BATCHES = (1, 8, 32)
MOST_TOKENS = 2**40
"""Longer than any sequence. The limit keeps arithmetic on hostile sizes short."""
MOST_SEQUENCES = 2**20


@dataclass(frozen=True)
class Policy:
    """Which blocks stay exact, and which are kept."""

    window_tokens: int = 128
    """The newest tokens that stay exact in a coded cache, rounded up to blocks, plus one block."""
    sinks: bool = True
    """Whether the first block stays exact too."""
    attention_window: int | None = None
    """Tokens that attention sees; None: the limits of the model's own layers only."""

    def check(self) -> None:
        check_integer("kv_window_tokens", self.window_tokens, 0, MOST_TOKENS)
        if self.attention_window is not None:
            check_integer("attention_window", self.attention_window, 1, MOST_TOKENS)


def usual_contexts(most: int) -> list[int]:
    """The lengths of CONTEXTS below a model's context ``most``, and the context itself."""
    return [*(tokens for tokens in CONTEXTS if tokens < most), most]
