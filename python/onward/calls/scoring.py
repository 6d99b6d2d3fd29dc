"""Scores texts: the probability of each token after the tokens before it.

Long texts are cut into windows. The caller supplies the function that computes a window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from onward.calls.views import Viewed


@dataclass(frozen=True, repr=False)
class Score(Viewed):
    """Log-probabilities of a text's tokens, from the model's own distribution (temperature 1, no
    penalty, no filter).

    Attributes:
        token_ids: the whole text.
        log_probabilities: natural logarithms, one for each token but the first.
    """

    token_ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]

    @property
    def total(self) -> float:
        """ln of the probability of the whole text after its first token."""
        return math.fsum(self.log_probabilities)

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability a token (Jelinek et al. 1977)."""
        return math.exp(-self.total / len(self.log_probabilities))

    def _texts(self) -> list[tuple[str, str]]:
        return []

    def _figures(self) -> str:
        return (
            f"score of {len(self.token_ids)} tokens: log-probability {self.total:.4g}, "
            f"perplexity {self.perplexity:.4g}"
        )


def windows(tokens: int, window: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """(begin, end, first scored) of windows over a text: each token but the first is scored once,
    with at least ``window - stride`` tokens before it where the text has them."""
    scored = 1
    begin = 0
    while scored < tokens:
        end = min(begin + window, tokens)
        yield begin, end, scored
        scored = end
        begin += stride
