"""Explains why two sides diverge: where their most likely tokens first differ, and whether rounding
is the reason.

At such a position A prefers token i by a margin m = a_i - a_j, and B prefers j. With s the standard
deviation over the vocabulary of b - a at that position, two logits with independent noise differ
by sqrt(2) s. Over the other positions the same is measured on A's own two most likely tokens. The
larger of both is the noise, limited by the noise expected from the dtypes. A margin within
FLIP_FACTOR times the noise is a coin flip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from onward.lab.compare.agreement import Positions, root_mean_square
from onward.lab.compare.noise import LEVEL_FACTOR, PEAK_FACTOR
from onward.lab.compare.side import Logits, Text

FLIP_FACTOR = 5.0
Verdict = Literal["bit-identical", "agreement", "coin flip", "suspected fault"]
_GROWN = 2.0
_GROWTH_TOKENS = 16
"""The least number of positions for ``growth``, which compares the halves."""


@dataclass(frozen=True)
class Divergence:
    """The first position of a text at which the most likely tokens differ."""

    text: int
    position: int
    """Tokens of prompt and output before it."""
    written: int
    """Tokens of output before it."""
    token_a: int
    token_b: int
    margin_a: float
    """a_i - a_j in A's logits: how much A prefers its token to B's."""
    margin_b: float
    """b_j - b_i."""
    rank_b_in_a: int
    """Number of tokens that A finds more likely than B's token; 1: B's token is second."""
    noise: float
    """Noise of a difference of two logits, in logits, to compare the margin with."""
    times: float
    """margin_a over noise; infinite if the noise is 0."""

    @property
    def coin_flip(self) -> bool:
        return self.times <= FLIP_FACTOR


@dataclass(frozen=True)
class Judgement:
    verdict: Verdict
    reasons: tuple[str, ...]
    """One sentence each. A suspected fault has all its reasons."""
    expected_noise: float
    """Relative noise; 0: the bits must be equal."""
    worst_text_noise: float
    """Root mean square over the positions of the worst text."""
    worst_position_noise: float
    growth: float | None
    """Noise of the later half of all positions over the noise of the earlier half. None if there
    are too few positions, or if the earlier half has no noise."""
    divergences: tuple[Divergence, ...]
    """The first divergence of each text that has one."""

    @property
    def fault(self) -> bool:
        return self.verdict == "suspected fault"


def judge(
    texts: Sequence[Text],
    a: Sequence[Logits],
    b: Sequence[Logits],
    found: Sequence[Positions],
    expected: float,
) -> Judgement:
    """The verdict over all texts. ``expected``: the relative noise by ``noise.expected``."""
    levels = [root_mean_square(part.noise) for part in found]
    peak = max(float(part.noise.max()) for part in found)
    if all(part.identical for part in found):
        reason = f"all {sum(len(part.same) for part in found)} rows of logits have the same bits"
        return Judgement("bit-identical", (reason,), expected, 0.0, 0.0, None, ())
    divergences = _divergences(texts, a, b, found, expected)
    growth = _growth(texts, found)
    faults = _faults(levels, peak, expected, divergences)
    if faults:
        if growth is not None and growth > _GROWN:
            faults.append(
                f"the noise of later positions is {growth:.1f} times the noise of earlier ones, "
                "which suggests a fault of rotary positions or of the cache"
            )
        return Judgement(
            "suspected fault", tuple(faults), expected, max(levels), peak, growth, divergences
        )
    verdict: Verdict = "coin flip" if divergences else "agreement"
    reasons = tuple(map(_flip_sentence, divergences)) or (
        f"the most likely token is always the same, and the noise of {max(levels):.2g} in the "
        f"worst text is within {LEVEL_FACTOR:g} times the {expected:.2g} expected",
    )
    return Judgement(verdict, reasons, expected, max(levels), peak, growth, divergences)


def _faults(
    levels: Sequence[float], peak: float, expected: float, divergences: Sequence[Divergence]
) -> list[str]:
    if expected == 0:
        return ["logits differ, but the same core, model, device and dtype promise the same bits"]
    faults = []
    worst = max(range(len(levels)), key=levels.__getitem__)
    if levels[worst] > LEVEL_FACTOR * expected:
        faults.append(
            f"text {worst + 1}: noise {levels[worst]:.2g} is {levels[worst] / expected:.3g} times "
            f"the {expected:.2g} measured for these dtypes, expected at most {LEVEL_FACTOR:g} times"
        )
    if peak > PEAK_FACTOR * expected:
        faults.append(
            f"one position: noise {peak:.2g} is {peak / expected:.3g} times the {expected:.2g} "
            f"measured for these dtypes, expected at most {PEAK_FACTOR:g} times"
        )
    for divergence in divergences:
        if not divergence.coin_flip:
            faults.append(
                f"{_where(divergence)}: A's margin of {divergence.margin_a:.3g} is "
                f"{divergence.times:.3g} times the noise of {divergence.noise:.2g}, far above it"
            )
    return faults


def _flip_sentence(divergence: Divergence) -> str:
    return (
        f"{_where(divergence)}: A's margin of {divergence.margin_a:.3g} is "
        f"{divergence.times:.2g} times the noise of {divergence.noise:.2g}: a coin flip, not a "
        "fault"
    )


def _where(divergence: Divergence) -> str:
    return f"text {divergence.text + 1}, written token {divergence.written + 1}"


def _divergences(
    texts: Sequence[Text],
    a: Sequence[Logits],
    b: Sequence[Logits],
    found: Sequence[Positions],
    expected: float,
) -> tuple[Divergence, ...]:
    elsewhere = [_top_two_changes(x, y) for x, y in zip(a, b, strict=True)]
    firsts = []
    for index, part in enumerate(found):
        if part.same.all():
            continue
        row = int(np.argmin(part.same))
        others = np.concatenate(
            [np.delete(e, row) if i == index else e for i, e in enumerate(elsewhere)]
        )
        firsts.append(_explained(texts[index], index, row, a[index], b[index], others, expected))
    return tuple(firsts)


def _explained(
    text: Text,
    index: int,
    row: int,
    a: Logits,
    b: Logits,
    others: NDArray[np.float64],
    expected: float,
) -> Divergence:
    of_a, of_b = a[row].astype(np.float64), b[row].astype(np.float64)
    i, j = int(of_a.argmax()), int(of_b.argmax())
    spread = float(of_a.std())
    here = math.sqrt(2) * float((of_b - of_a).std())
    around = root_mean_square(others) * spread if len(others) else 0.0
    noise = min(max(here, around), math.sqrt(2) * PEAK_FACTOR * expected * spread)
    margin = float(of_a[i] - of_a[j])
    # With equal logits A has no preference, whatever the noise is.
    times = 0.0 if margin == 0 else margin / noise if noise > 0 else math.inf
    return Divergence(
        text=index,
        position=len(text.prompt) + row,
        written=row,
        token_a=i,
        token_b=j,
        margin_a=margin,
        margin_b=float(of_b[j] - of_b[i]),
        rank_b_in_a=int((of_a > of_a[j]).sum()),
        noise=noise,
        times=times,
    )


def _top_two_changes(a: Logits, b: Logits) -> NDArray[np.float64]:
    """(tokens): the change, from A to B, of the difference of A's two most likely tokens, in
    standard deviations of A's logits."""
    if a.shape[1] < 2:
        return np.zeros(len(a))
    top = np.argpartition(a, -2, axis=-1)[:, -2:]
    pair_a = np.take_along_axis(a, top, axis=-1).astype(np.float64)
    pair_b = np.take_along_axis(b, top, axis=-1).astype(np.float64)
    change = (pair_b[:, 1] - pair_b[:, 0]) - (pair_a[:, 1] - pair_a[:, 0])
    spread = a.std(axis=-1, dtype=np.float64)
    scaled: NDArray[np.float64] = change / np.where(spread > 0, spread, 1)
    return scaled


def _growth(texts: Sequence[Text], found: Sequence[Positions]) -> float | None:
    depths = np.concatenate(
        [len(text.prompt) + np.arange(len(text.written)) for text in texts], dtype=np.int64
    )
    noise = np.concatenate([part.noise for part in found])
    if len(depths) < _GROWTH_TOKENS:
        return None
    order = np.argsort(depths, kind="stable")
    half = len(order) // 2
    early = root_mean_square(noise[order[:half]])
    return root_mean_square(noise[order[half:]]) / early if early > 0 else None
