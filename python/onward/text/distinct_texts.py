"""Hypotheses of a beam search that spell the same text in different tokens count as one.

A grammar allows every way to cut a text into tokens, and a beam search would fill its beams with
the spellings of the likeliest text. Here the spelling that is found first keeps its beam: in a step
the likelier one, and of different lengths the shorter one. The others are made so unlikely that
they live on only where there is nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

_LOSS = np.float32(1e4)
"""Taken from the log-probability of another spelling."""


def is_repeated(score: float, tokens: int, length_penalty: float) -> bool:
    """Whether a hypothesis of this score has the loss of another spelling in it."""
    return bool(score * tokens**length_penalty < -_LOSS / 2)


class DistinctTexts:
    """The texts of one beam search. An output is known by the bytes of its int32 token ids.

    ``ends`` is called for all candidates of a step, the likeliest first, before ``lower`` is called
    for those that live on. So what is found does not depend on the order of the calls of ``lower``.
    """

    def __init__(self, piece: Callable[[int, bool], bytes], beams: int) -> None:
        """``piece``: the bytes that a token adds, by its id and whether it is the first."""
        self._piece = piece
        self._beams = beams
        self._found: dict[bytes, bytes] = {}  # text -> the output that spelled it first
        self._ended: dict[bytes, bytes] = {}  # the same of complete texts
        self._others: set[bytes] = set()  # outputs whose text another one spells
        self._length = self._candidates = 0  # of the step: bytes of an output, calls of ``ends``
        self._live: list[bytes] = []  # the outputs of the step that live on

    def ends(self, output: bytes, complete: bool) -> bool:
        """Whether a candidate ends: it does where it is complete and the first with its text."""
        rank = self._ranked(output)
        # Beyond these the engine finishes none, and lets none live on.
        if (rank if complete else len(self._live)) >= self._beams:
            return complete
        text = self._text(output)
        first = self._found.setdefault(text, output)
        if not output.startswith(first):  # else it is the first, or adds tokens without text to it
            self._others.add(output)
            complete = False
        if complete:
            self._ended[text] = output
        else:
            self._live.append(output)
        return complete

    def stops(self, output: bytes) -> None:
        """Count a candidate that a stop token ends."""
        self._ranked(output)

    def _ranked(self, output: bytes) -> int:
        """The rank of a candidate in its step."""
        if len(output) > self._length:
            self._begin_step(len(output))
        self._candidates += 1
        return self._candidates - 1

    def _begin_step(self, length: int) -> None:
        """Forget the texts of outputs that no live one goes on from."""
        if self._live:
            self._found = {
                text: found
                for text, found in self._found.items()
                if any(output.startswith(found) for output in self._live)
            } | self._ended
        self._length, self._candidates, self._live = length, 0, []
        self._others.clear()

    def lower(self, output: bytes, mask: NDArray[np.bool_], scores: NDArray[np.float32]) -> None:
        """Lower the scores of an output whose text another one spells, and of tokens that lead to
        such a text."""
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
