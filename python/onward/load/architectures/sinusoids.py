"""Matrices of positions that are computed and not learned: sines and cosines of falling frequencies
(Vaswani et al. 2017), in the layouts of the families that have them.

Each step is rounded to float32 as in the reference library.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from onward.load.architectures.parts import Computed, Shape

Floats = NDArray[np.float32]


def sines_then_cosines(first_position: int) -> Computed:
    """Rows for the positions from ``first_position`` on: all sines, then all cosines. The
    frequencies fall from 1 to 1 / 10000."""

    def values(shape: Shape) -> Floats:
        positions, width = shape
        half = width // 2
        step = np.float32(-math.log(10000) / max(half - 1, 1))
        exponents = np.arange(half, dtype=np.float32) * step
        frequencies = np.exp(exponents.astype(np.float64)).astype(np.float32)
        return _sines_and_cosines(first_position, positions, frequencies, frequencies)

    return values


def paired_sines_then_cosines(shape: Shape) -> Floats:
    """Rows for the positions from 0 on: all sines, then all cosines. Frequency i is
    10000 ** (-2i / width)."""
    positions, width = shape
    dimensions = np.arange(width, dtype=np.float32)
    exponents = (2 * (dimensions // 2)) / np.float32(width)
    powers = np.power(np.float64(10000), exponents.astype(np.float64)).astype(np.float32)
    frequencies = np.float32(1) / powers
    return _sines_and_cosines(0, positions, frequencies[0::2], frequencies[1::2])


def paired_sines_then_cosines_in_double(shape: Shape) -> Floats:
    """As ``paired_sines_then_cosines``, rounded to float32 once."""
    positions, width = shape
    frequencies = 1 / np.power(10000.0, np.arange(0, width, 2) / width)
    angles = np.arange(positions)[:, None] * frequencies
    return np.hstack([np.sin(angles), np.cos(angles)]).astype(np.float32)


def _sines_and_cosines(first: int, positions: int, sines: Floats, cosines: Floats) -> Floats:
    rows = np.arange(first, first + positions, dtype=np.float32)[:, None]
    angles = [(rows * frequencies).astype(np.float64) for frequencies in (sines, cosines)]
    return np.hstack([np.sin(angles[0]), np.cos(angles[1])]).astype(np.float32)
