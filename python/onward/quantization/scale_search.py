"""Finds the scale, and the minimum, of one block of every row: a small search, then least
squares."""

from __future__ import annotations

import numpy as np

from onward.quantization.block_formats import F32, BlockFormat, as_half, as_scale

SHRINKS = np.linspace(0.58, 1.03, 16, dtype=np.float32)  # 1 is among them
"""Tried scales, relative to the scale whose codes just reach the largest value."""
REFINEMENTS = 2


def codes_of(values: F32, scales: F32, minima: F32, format_: BlockFormat) -> F32:
    """The nearest codes, as whole numbers in float32. values (columns, rows), scales (rows)."""
    inverse = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales != 0)
    codes: F32 = np.rint((values - minima) * inverse)
    return codes.clip(format_.low, format_.high, out=codes)


def candidates(values: F32, costs: F32, format_: BlockFormat) -> list[tuple[F32, F32]]:
    """Scales and minima (rows) to try, each refined and rounded to float16.

    values (32, rows): one block of every row; costs (32): the cost of a squared error in each
    column.
    """
    found = []
    for scales, minima in _first_guesses(values, format_):
        for _ in range(REFINEMENTS):
            scales, minima = as_scale(scales), as_half(minima)
            codes = codes_of(values, scales, minima, format_)
            scales, minima = _least_squares(values, codes, costs, scales, minima, format_)
        found.append((as_scale(scales), as_half(minima)))
    return found


def cheapest(
    values: F32, costs: F32, format_: BlockFormat, tries: list[tuple[F32, F32]], keep: int = 1
) -> tuple[F32, F32]:
    """For each row, the ``keep`` tries with the least weighted squared error, best first: scales
    and minima (keep, rows)."""
    losses = np.stack(
        [costs @ np.square(codes_of(values, s, m, format_) * s + m - values) for s, m in tries]
    )  # (tries, rows)
    best = np.argsort(losses, axis=0, kind="stable")[:keep]
    scales = np.stack([s for s, _ in tries])
    minima = np.stack([m for _, m in tries])
    return np.take_along_axis(scales, best, 0), np.take_along_axis(minima, best, 0)


def _first_guesses(values: F32, format_: BlockFormat) -> list[tuple[F32, F32]]:
    lowest, highest = values.min(axis=0), values.max(axis=0)
    steps = format_.high - format_.low
    if format_.has_minimum:
        middle, spread = (lowest + highest) / 2, highest - lowest
        return [(spread * shrink / steps, middle - spread * shrink / 2) for shrink in SHRINKS]
    zeros = np.zeros_like(lowest)
    if format_.low + format_.high == 0:
        peak = np.maximum(highest, -lowest) / format_.high
        return [(peak * shrink, zeros) for shrink in SHRINKS]
    # There is one more code below zero than above. It is tried on the larger side and the other.
    peak = np.where(highest > -lowest, highest, lowest)
    return [
        (peak * shrink / end, zeros) for end in (format_.low, format_.high) for shrink in SHRINKS
    ]


def _least_squares(
    values: F32, codes: F32, costs: F32, scales: F32, minima: F32, format_: BlockFormat
) -> tuple[F32, F32]:
    """The scale and minimum that fit these codes best; unchanged where no fit is unique."""
    if not format_.has_minimum:
        power = costs @ np.square(codes)
        fit = np.divide(costs @ (codes * values), power, out=scales.copy(), where=power > 0)
        return np.where(fit == 0, scales, fit), minima
    total = costs.sum()
    code_sum, value_sum = costs @ codes, costs @ values
    power, product = costs @ np.square(codes), costs @ (codes * values)
    determinant = total * power - code_sum * code_sum
    # Below this all codes of a row are the same, up to rounding.
    where = determinant > 1e-6 * total * np.maximum(power, 1e-30)
    scale = np.divide(
        total * product - code_sum * value_sum, determinant, out=scales.copy(), where=where
    )
    minimum = np.divide(value_sum - scale * code_sum, total, out=minima.copy(), where=where)
    return scale, minimum
