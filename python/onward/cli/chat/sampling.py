"""The sampling options of ``onward chat`` if neither the flags nor the model's files set them.

With greedy choice small models repeat themselves without end, so a chat samples by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onward.options.resolution import ModelDefaults

# A mild penalty of repeated tokens makes loops rare, and a model can still quote earlier text. The
# stronger DRY would prevent that. RepetitionGuard ends the loops that remain.
CHAT_SAMPLING: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1}


_LONGEST_PIECE = 64  # tokens that are repeated
_LEAST_TIMES = 4
_LEAST_TOKENS = 64
_EVERY = 16  # tokens between two checks


class RepetitionGuard:
    """A stopping criterion: the answer ends with the same piece of up to 64 tokens at least four
    times in a row, over at least 64 tokens."""

    def __init__(self) -> None:
        self.fired = False

    def __call__(self, token_ids: NDArray[np.int32]) -> bool:
        if len(token_ids) % _EVERY == 0:
            self.fired = self.fired or _repeats(token_ids)
        return self.fired


def _repeats(token_ids: NDArray[np.int32]) -> bool:
    for piece in range(1, _LONGEST_PIECE + 1):
        length = max(_LEAST_TOKENS, _LEAST_TIMES * piece)
        end = token_ids[-length:]
        if len(end) == length and (end[piece:] == end[:-piece]).all():
            return True
    return False


def chat_options(given: Mapping[str, Any], model: ModelDefaults) -> dict[str, Any]:
    """The options of a chat's answers: the given ones, and ``CHAT_SAMPLING`` where it applies."""
    return {**CHAT_SAMPLING, **given} if uses_defaults(given, model) else dict(given)


def uses_defaults(given: Mapping[str, Any], model: ModelDefaults) -> bool:
    """Whether the defaults of this file apply. They do not for a model whose generation_config.json
    sets do_sample, for ``temperature`` 0, and in beam search."""
    beams = given.get("num_beams", model.values.get("num_beams", 1))
    greedy = given.get("temperature") == 0
    return not (model.says_whether_to_sample or greedy or beams != 1)
