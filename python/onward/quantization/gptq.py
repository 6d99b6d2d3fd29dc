"""GPTQ: rounds one column after the other and corrects the error in the columns that follow.

Method: Frantar, Ashkboos, Hoefler, Alistarh, "GPTQ: Accurate Post-Training Quantization for
Generative Pre-trained Transformers" (2022, arXiv:2210.17323), with the blocks of GGUF. The scale of
a block is chosen when its first column is reached, from weights that already carry the corrections.
Blocks, and the columns within a block, are ordered by how much their inputs vary, so that the
columns that matter most are rounded while most columns are left for corrections. A block is never
split.
"""

from __future__ import annotations

import contextlib

import numpy as np
from numpy.typing import NDArray

from onward.quantization.block_formats import BLOCK, F32, BlockFormat, Blocks
from onward.quantization.scale_search import candidates, cheapest, codes_of

DAMPING = 0.01
"""Added to the diagonal of the second moment, as a share of its mean."""
DAMPING_TRIES = 5
"""Number of attempts, each with ten times as much damping, if rounding left the moment without a
Cholesky factor."""
KEPT = 4
"""Number of scales from the search that are tried with the corrections within the block."""

F64 = NDArray[np.float64]


def damped(moment: F64, damping: float = DAMPING) -> F64:
    """The second moment (columns, columns) with a damped diagonal, so that it can be inverted."""
    mean = float(np.diag(moment).mean())
    return moment + np.eye(len(moment)) * (damping * mean if mean > 0 else 1.0)


def quantised(
    weights: F32, moment: F64, format_: BlockFormat, damping: float = DAMPING, kept: int = KEPT
) -> Blocks:
    """Blocks for ``weights`` (rows, columns), chosen for a small error of the outputs.

    ``moment`` (columns, columns) is the sum of x x^T over the inputs x.

    Raises:
        LinAlgError: the moment is not positive definite with any damping.
    """
    rows, columns = weights.shape
    order = _order(np.diag(moment))
    factor = _damped_factor(moment[np.ix_(order, order)], damping)
    left = np.ascontiguousarray(weights.T[order])  # (columns, rows): what is still to be rounded
    codes = np.empty((columns, rows), np.int8)
    scales = np.empty((columns // BLOCK, rows), np.float32)
    minima = np.empty_like(scales)
    for begin in range(0, columns, BLOCK):
        end = begin + BLOCK
        block = order[begin] // BLOCK
        corner = factor[begin:end, begin:end]
        values = left[begin:end]
        costs = (1 / np.square(np.diag(corner))).astype(np.float32)
        tries = candidates(values, costs, format_)
        scale, minimum = cheapest(values, costs, format_, tries, kept)  # (kept, rows)
        chosen, errors, best = _within_block(values, corner, scale, minimum, format_)
        codes[order[begin:end]] = chosen
        pick = np.arange(rows)
        scales[block], minima[block] = scale[best, pick], minimum[best, pick]
        left[end:] -= factor[begin:end, end:].T @ errors
    return Blocks(
        format_,
        np.ascontiguousarray(codes.T),
        np.ascontiguousarray(scales.T),
        np.ascontiguousarray(minima.T),
    )


def output_error(difference: F32, weights: F32, moment: F64) -> float:
    """The error of the outputs as a share of the outputs, both as root mean squares."""
    return float(np.sqrt(_power(difference, moment) / max(_power(weights, moment), 1e-300)))


def _power(weights: F32, moment: F64) -> float:
    """The sum of the squared outputs: trace(W H W^T)."""
    return float(np.sum((weights @ moment.astype(np.float32)) * weights, dtype=np.float64))


def _order(diagonal: F64) -> NDArray[np.intp]:
    """The order of the columns: blocks by the falling sum of their diagonal, then the columns
    within each block by the falling diagonal."""
    blocks = diagonal.reshape(-1, BLOCK)
    inside = np.argsort(-blocks, axis=1, kind="stable")  # (blocks, 32)
    first = np.argsort(-blocks.sum(axis=1), kind="stable")
    return (first[:, None] * BLOCK + inside[first]).reshape(-1)


def _damped_factor(moment: F64, damping: float) -> F32:
    for more in range(DAMPING_TRIES - 1):
        with contextlib.suppress(np.linalg.LinAlgError):
            return _correction_factor(damped(moment, damping * 10**more))
    return _correction_factor(damped(moment, damping * 10 ** (DAMPING_TRIES - 1)))


def _correction_factor(moment: F64) -> F32:
    """U, upper triangular, with inverse(moment) = U^T U. Row j gives the corrections of the
    columns after j for an error in column j."""
    # moment = R R^T with R upper triangular, from the Cholesky factor of the reversed matrix; then
    # U is the inverse of R, and the inverse of the moment itself is never formed.
    reverse = np.linalg.cholesky(moment[::-1, ::-1])[::-1, ::-1]
    return np.triu(np.linalg.inv(reverse)).astype(np.float32)


def _within_block(
    values: F32, corner: F32, scales: F32, minima: F32, format_: BlockFormat
) -> tuple[NDArray[np.int8], F32, NDArray[np.intp]]:
    """Round the columns of one block in turn, with each of the tried scales, and keep the best.

    values (32, rows), corner (32, 32), scales and minima (tries, rows). Returns the codes and
    errors (32, rows), and the index of the best try (rows).
    """
    left = np.repeat(values[:, None], len(scales), axis=1)  # (32, tries, rows)
    codes = np.empty(left.shape, np.int8)
    errors = np.empty_like(left)
    for column in range(BLOCK):
        code = codes_of(left[column], scales, minima, format_)
        codes[column] = code
        error = (left[column] - (scales * code + minima)) / corner[column, column]
        errors[column] = error
        later = corner[column, column + 1 :]
        left[column + 1 :] -= later[:, None, None] * error
    best = np.square(errors).sum(axis=0).argmin(axis=0)  # (rows)
    pick = best[None, None, :]
    return (
        np.take_along_axis(codes, pick, 1)[:, 0],
        np.take_along_axis(errors, pick, 1)[:, 0],
        best,
    )
