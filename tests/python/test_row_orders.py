"""Orders of rows, compared with small orders written by hand and with rotations in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from onward.load.architectures.row_orders import (
    each_head,
    grouped,
    half_split_from_pairs,
    interleaved,
    partial_halves,
    partial_pairs,
    stacked,
)


def test_orders_of_one_head() -> None:
    assert half_split_from_pairs(6).tolist() == [0, 2, 4, 1, 3, 5]
    assert partial_pairs(8, 4).tolist() == [0, 2, 4, 5, 1, 3, 6, 7]
    assert partial_halves(8, 4).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert partial_halves(8, 2).tolist() == [0, 2, 3, 4, 1, 5, 6, 7]
    assert partial_halves(6, 6).tolist() == [0, 1, 2, 3, 4, 5]
    assert partial_halves(6, 0).tolist() == [0, 1, 2, 3, 4, 5]
    for order in (half_split_from_pairs(6), partial_pairs(8, 4), partial_halves(8, 2)):
        assert order.dtype == np.int32


def test_orders_of_several_heads() -> None:
    assert each_head(half_split_from_pairs(4), 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert each_head(half_split_from_pairs(4), 2, width=6).tolist() == [0, 2, 1, 3, 6, 8, 7, 9]


def test_parts_of_fused_tensors() -> None:
    assert stacked((4, 2, 2)) == [range(0, 4), range(4, 6), range(6, 8)]
    assert [rows.tolist() for rows in grouped(2, (2, 1, 1))] == [[0, 1, 4, 5], [2, 6], [3, 7]]
    assert interleaved(2, 3) == [range(0, 6, 2), range(1, 6, 2)]


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("rotated", [4, 12])
def test_scores_equal_the_other_rotation(pairs: bool, rotated: int) -> None:
    """q . k after the family's rotation equals q . k after the engine's, with reordered rows."""
    width, generator = 12, np.random.default_rng(0)
    q, k = generator.standard_normal((2, width))
    angles = generator.uniform(0, 3, (2, rotated // 2))  # of the positions of q and k

    def family(x: np.ndarray, angle: np.ndarray) -> np.ndarray:
        first = np.arange(0, rotated, 2) if pairs else np.arange(rotated // 2)
        second = first + (1 if pairs else rotated // 2)
        return rotate(x, first, second, angle)

    def engine(x: np.ndarray, angle: np.ndarray) -> np.ndarray:
        order = (partial_pairs if pairs else partial_halves)(width, rotated)
        padded = np.concatenate([angle, np.zeros((width - rotated) // 2)])
        return rotate(x[order], np.arange(width // 2), np.arange(width // 2, width), padded)

    expected = family(q, angles[0]) @ family(k, angles[1])
    assert engine(q, angles[0]) @ engine(k, angles[1]) == pytest.approx(expected, abs=1e-12)


def rotate(x: np.ndarray, first: np.ndarray, second: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """The plane of each pair of dimensions turned by its angle."""
    turned = x.copy()
    turned[first] = x[first] * np.cos(angle) - x[second] * np.sin(angle)
    turned[second] = x[second] * np.cos(angle) + x[first] * np.sin(angle)
    return turned
