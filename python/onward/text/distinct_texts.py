"""Makes the hypotheses of a beam search spell different texts.

A grammar allows every way to cut a text into tokens, so a beam search would fill its beams with the
spellings of the likeliest text. Here the spelling that is found first keeps its beam: in one step
the likelier one, and of different lengths the shorter one. All others become so unlikely that they
survive only if there is no alternative.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_LOSS = np.float32(1e4)
"""Subtracted from the log-probability of another spelling."""


def is_repeated(score: float, tokens: int, length_penalty: float) -> bool:
    """Whether the score of a hypothesis includes the penalty for another spelling."""
    return bool(score * tokens**length_penalty < -_LOSS / 2)


class DistinctTexts:
    """The texts of one beam search. The key of an output is the bytes of its int32 token ids.

    ``ends`` is called for all candidates of a step, the likeliest first, before ``lower`` is called
    for the survivors. So the result does not depend on the order of the calls of ``lower``.
    """

    def __init__(self, piece: Callable[[int, bool], bytes], beams: int) -> None:
        """``piece``: the bytes that a token adds, given its id and whether it is the first
        token."""
        self._piece = piece
        self._beams = beams
        self._found: dict[bytes, bytes] = {}  # text -> the output that spelled it first
        self._ended: dict[bytes, bytes] = {}  # the same for complete texts
        self._others: set[bytes] = set()  # outputs whose text another output spells
        self._length = self._candidates = 0  # of this step: bytes of an output, calls of ``ends``
        self._live: list[bytes] = []  # the outputs that survive this step

    def ends(self, output: bytes, complete: bool) -> bool:
        """Whether a candidate ends: it does if it is complete and the first with its text."""
        rank = self._ranked(output)
        # After this many candidates the engine finishes none and lets none survive.
        if (rank if complete else len(self._live)) >= self._beams:
            return complete
        text = self._text(output)
        first = self._found.setdefault(text, output)
        # Otherwise it is the first, or adds tokens without text to it.
        if not output.startswith(first):
            self._others.add(output)
            complete = False
        if complete:
            self._ended[text] = output
        else:
            self._live.append(output)
        return complete

    def stops(self, output: bytes) -> None:
        """Count a candidate that ends with a stop token."""
        self._ranked(output)

    def _ranked(self, output: bytes) -> int:
        """The rank of a candidate in its step."""
        if len(output) > self._length:
            self._begin_step(len(output))
        self._candidates += 1
        return self._candidates - 1

    def _begin_step(self, length: int) -> None:
        """Forget the texts that no surviving output continues."""
        if self._live:
            self._found = {
                text: found
                for text, found in self._found.items()
                if any(output.startswith(found) for output in self._live)
            } | self._ended
        self._length, self._candidates, self._live = length, 0, []
        self._others.clear()

    def lower(self, output: bytes, mask: NDArray[np.bool_], scores: NDArray[np.float32]) -> None:
        """Lower the scores of an output whose text another output spells, and of the tokens that
        lead to such a text."""
        if output in self._others:
            scores -= _LOSS
            return
        text = self._text(output)
        rests = {found[len(text) :] for found in self._found if found.startswith(text)} - {b""}
        if rests:
            allowed = np.flatnonzero(mask)
            known = [i for i in allowed.tolist() if self._piece(i, not output) in rests]
            scores[known] -= _LOSS

    def _text(self, output: bytes) -> bytes:
        ids = np.frombuffer(output, dtype=np.int32).tolist()
        return b"".join(self._piece(token, at == 0) for at, token in enumerate(ids))
