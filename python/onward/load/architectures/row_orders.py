"""Orders of rows: where a file keeps the rows of a weight that the engine wants in another order.

An order is an int32 array: row ``r`` of the weight is row ``order[r]`` of the tensor. The engine
rotates the pairs (i, i + head_dim / 2) of a head. A family that rotates other pairs gets the same
scores from reordered rows of q and k, because a score does not depend on the order of the
dimensions of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onward.load.architectures.parts import RowOrder


def half_split_from_pairs(head_dim: int) -> RowOrder:
    """The rows of a head (head_dim) whose neighbours (2i, 2i + 1) rotate together."""
    return partial_pairs(head_dim, head_dim)


def partial_pairs(head_dim: int, rotated: int) -> RowOrder:
    """The rows of a head (head_dim) of which the first ``rotated`` rotate, as neighbours
    (2i, 2i + 1). See ``partial_halves``."""
    return _spread(head_dim, np.arange(rotated).reshape(-1, 2).T)


def partial_halves(head_dim: int, rotated: int) -> RowOrder:
    """The rows of a head (head_dim) of which the first ``rotated`` rotate, in the pairs
    (i, i + rotated / 2).

    Pair i goes to (i, i + head_dim / 2). The other rows fill the places between, which have the
    frequency 0.
    """
    return _spread(head_dim, np.arange(rotated).reshape(2, -1))


def swapped_halves(head_dim: int) -> RowOrder:
    """The rows of a head (head_dim) that rotates whole and the other way. Turning the pair (a, b)
    back is turning (b, a) forward."""
    return np.roll(np.arange(head_dim, dtype=np.int32), head_dim // 2)


def _spread(head_dim: int, pairs: NDArray[np.int_]) -> RowOrder:
    """pairs (2, rotated / 2): the first and the second row of each pair."""
    half, count = head_dim // 2, pairs.shape[1]
    order = np.empty((2, half), np.int32)
    order[:, :count] = pairs
    order[:, count:] = np.arange(2 * count, head_dim).reshape(2, half - count)
    return order.reshape(-1)


def each_head(order: RowOrder, heads: int, width: int | None = None) -> RowOrder:
    """The order of one head for all of them: (heads * len(order)).

    Heads are ``width`` rows apart in the tensor: by default the length of the order.
    """
    starts = np.arange(heads, dtype=np.int32) * (len(order) if width is None else width)
    return (starts[:, None] + order).reshape(-1)


def stacked(sizes: Sequence[int]) -> list[range]:
    """The rows of each part of a tensor that holds them one after the other."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def grouped(groups: int, sizes: Sequence[int]) -> list[RowOrder]:
    """The rows of each part of a tensor of groups, each with ``sizes`` rows of the parts.

    For example (heads, [head_dim] * 3) for q, k and v head by head. Part i has groups * sizes[i]
    rows.
    """
    width = sum(sizes)
    return [
        each_head(np.arange(rows.start, rows.stop, dtype=np.int32), groups, width)
        for rows in stacked(sizes)
    ]


def interleaved(parts: int, rows: int) -> list[range]:
    """The rows of each part of a tensor that holds them in turns: row i of part p is row
    ``parts * i + p``."""
    return [range(part, parts * rows, parts) for part in range(parts)]
