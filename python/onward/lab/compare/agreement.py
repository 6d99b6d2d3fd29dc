"""Measures the distances between the next-token distributions of two sides.

All sums are in float64, a few rows at a time, because a whole vocabulary in float64 is large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onward.errors import InvalidArgument, NumericsError
from onward.lab.compare.side import Logits

_ROWS = 8  # computed together, so that they fit into the processor's cache
_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Positions:
    """One figure for each position at which a token was chosen; arrays of (positions)."""

    largest: _Floats
    """max |b - a| over the vocabulary, in logits."""
    squares: _Floats
    """Mean over the vocabulary of (b - a) squared."""
    noise: _Floats
    """Standard deviation over the vocabulary of b - a, in standard deviations of a."""
    divergence: _Floats
    """KL(A || B) in nats."""
    same: NDArray[np.bool_]
    """Whether both have the same most likely token."""
    loss_a: _Floats
    """-ln of the probability that A gives the written token."""
    loss_b: _Floats
    identical: bool
    """Whether every logit has the same bits."""


def positions(a: Logits, b: Logits, written: Sequence[int]) -> Positions:
    """The figures of each position. ``a`` and ``b`` are (tokens, vocab_size); ``written`` holds the
    token that was generated at each position.

    Raises InvalidArgument for shapes that differ, NumericsError for logits that are not finite.
    """
    if a.shape != b.shape or len(a) != len(written):
        raise InvalidArgument(
            f"logits: are {b.shape} against {a.shape} for {len(written)} tokens, "
            "expected the same number of tokens and the same vocabulary"
        )
    for name, logits in (("A", a), ("B", b)):
        if not np.isfinite(logits).all():
            raise NumericsError(f"logits: of {name} are not all finite, expected numbers")
    ids = np.asarray(written, np.int64)
    parts = [
        _rows(a[begin : begin + _ROWS], b[begin : begin + _ROWS], ids[begin : begin + _ROWS])
        for begin in range(0, len(ids), _ROWS)
    ]
    largest, squares, noise, divergence, loss_a, loss_b = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return Positions(
        largest=largest,
        squares=squares,
        noise=noise,
        divergence=divergence,
        same=a.argmax(axis=-1) == b.argmax(axis=-1),
        loss_a=loss_a,
        loss_b=loss_b,
        identical=a.tobytes() == b.tobytes(),
    )


def joined(parts: Sequence[Positions]) -> Positions:
    """The positions of several texts as one, in order."""
    names = ("largest", "squares", "noise", "divergence", "same", "loss_a", "loss_b")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Positions(**columns, identical=all(part.identical for part in parts))


@dataclass(frozen=True)
class Agreement:
    """The figures over all positions of all texts."""

    tokens: int
    identical: bool
    max_difference: float
    """Largest |b - a| of any logit."""
    rms_difference: float
    """Root mean square of b - a over all logits."""
    noise: float
    """Root mean square over positions of the relative noise."""
    kl_mean: float
    """Nats per token."""
    kl_error: float
    """Standard error of the mean, for independent positions."""
    kl_p99_9: float
    """The 99.9th percentile. With few positions it is close to the largest."""
    kl_max: float
    top1: float
    """Share of positions with the same most likely token."""
    top1_error: float
    """Its binomial standard error, sqrt(p (1 - p) / tokens), or 1 / tokens if all positions agree
    or none does."""
    perplexity_a: float
    """Perplexity of the generated tokens by A."""
    perplexity_b: float
    perplexity_ratio: float
    """Perplexity of B over that of A."""


def summary(found: Positions) -> Agreement:
    count = len(found.same)
    top1 = float(found.same.mean())
    error = math.sqrt(top1 * (1 - top1) / count)
    loss_a, loss_b = float(found.loss_a.mean()), float(found.loss_b.mean())
    return Agreement(
        tokens=count,
        identical=found.identical,
        max_difference=float(found.largest.max()),
        rms_difference=math.sqrt(float(found.squares.mean())),
        noise=root_mean_square(found.noise),
        kl_mean=float(found.divergence.mean()),
        kl_error=float(found.divergence.std()) / math.sqrt(count),
        kl_p99_9=float(np.quantile(found.divergence, 0.999)),
        kl_max=float(found.divergence.max()),
        top1=top1,
        top1_error=error if 0 < top1 < 1 else 1 / count,
        perplexity_a=math.exp(loss_a),
        perplexity_b=math.exp(loss_b),
        perplexity_ratio=math.exp(loss_b - loss_a),
    )


def root_mean_square(numbers: _Floats) -> float:
    return math.sqrt(float(np.square(numbers).mean()))


def _rows(a32: Logits, b32: Logits, ids: NDArray[np.int64]) -> tuple[_Floats, ...]:
    a, b = a32.astype(np.float64), b32.astype(np.float64)
    difference = b - a
    largest = np.abs(difference).max(axis=-1)
    squares = np.square(difference).mean(axis=-1)
    spread = a.std(axis=-1)
    # If all logits of a are equal, its standard deviation is 0 and cannot be a divisor.
    noise = difference.std(axis=-1) / np.where(spread > 0, spread, 1)
    a -= _log_sum(a)
    b -= _log_sum(b)
    at = ids[:, None]
    loss_a, loss_b = (-np.take_along_axis(x, at, axis=-1)[:, 0] for x in (a, b))
    np.subtract(a, b, out=b)
    np.exp(a, out=a)
    b *= a
    # Only rounding can make it negative.
    return largest, squares, noise, np.maximum(b.sum(axis=-1), 0), loss_a, loss_b


def _log_sum(x: _Floats) -> _Floats:
    most = x.max(axis=-1, keepdims=True)
    found: _Floats = most + np.log(np.exp(x - most).sum(axis=-1, keepdims=True))
    return found
