"""The distance of one run from a reference: KL divergence of the distributions over the next token,
top-1 agreement, and perplexity.

All sums are in float64. A few rows are processed at a time, because a row of float64 is large.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

_ROWS = 8  # in one pass; they fit in the CPU cache
_THREADS = 2


class Agreement:
    """Sums over all windows so far."""

    def __init__(self) -> None:
        self._divergences: list[NDArray[np.float64]] = []
        self._losses: list[NDArray[np.float64]] = []
        self._same = 0

    def add(
        self,
        reference: NDArray[np.float32],
        other: NDArray[np.float32],
        next_ids: NDArray[np.int64],
    ) -> None:
        """Add the logits of a window, (tokens, vocab) each; next_ids are the tokens that follow."""
        begins = range(0, len(next_ids), _ROWS)

        def one(begin: int) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
            rows = slice(begin, begin + _ROWS)
            return _compare(reference[rows], other[rows], next_ids[rows])

        with ThreadPoolExecutor(_THREADS) as pool:
            for divergence, loss, same in pool.map(one, begins):
                self._divergences.append(divergence)
                self._losses.append(loss)
                self._same += same

    def figures(self) -> dict[str, float]:
        divergence, loss = np.concatenate(self._divergences), np.concatenate(self._losses)
        return {
            "tokens": len(loss),
            "kl_mean": float(divergence.mean()),
            # Standard error of the mean, as if positions were independent.
            "kl_error": float(divergence.std() / np.sqrt(len(loss))),
            "kl_p99": float(np.quantile(divergence, 0.99)),
            "kl_p99_9": float(np.quantile(divergence, 0.999)),
            "top1_agreement": self._same / len(loss),
            "perplexity": float(np.exp(loss.mean())),
        }


def _compare(
    reference: NDArray[np.float32], other: NDArray[np.float32], next_ids: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """For each row: the divergence of `other` from `reference`, and -log q(next); and the number of
    rows with equal top-1 token."""
    a, b = reference.astype(np.float64), other.astype(np.float64)
    if not np.isfinite(b).all():
        raise SystemExit("logits: not all are finite")
    same = int((a.argmax(axis=-1) == b.argmax(axis=-1)).sum())
    a -= _log_sum(a)  # log p
    b -= _log_sum(b)  # log q
    loss = -np.take_along_axis(b, next_ids[:, None], axis=-1)[:, 0]
    np.subtract(a, b, out=b)
    np.exp(a, out=a)
    b *= a
    return b.sum(axis=-1), loss, same


def _log_sum(x: NDArray[np.float64]) -> NDArray[np.float64]:
    most = x.max(axis=-1, keepdims=True)
    shifted = x - most
    np.exp(shifted, out=shifted)
    result: NDArray[np.float64] = most + np.log(shifted.sum(axis=-1, keepdims=True))
    return result
