"""Weights that follow from the names of tensors, the same on every machine.

A fixture of tests/fixtures/families holds the names, shapes and scales of a model's tensors, and
what transformers computes with these weights. scripts/check_families.py writes the fixtures.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of SplitMix64 (Steele et al. 2014)
_STEP = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Tensors:
    """The tensors of one name, in which each ``*`` counts from 0."""

    name: str
    counts: tuple[int, ...]
    shape: tuple[int, ...]
    centre: float
    spread: float

    def __iter__(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        for indices in itertools.product(*map(range, self.counts)):
            pieces = self.name.split("*")
            numbers = [*map(str, indices), ""]
            name = "".join(itertools.chain.from_iterable(zip(pieces, numbers, strict=True)))
            yield name, self.values(name)

    def values(self, name: str) -> NDArray[np.float32]:
        """Uniform around ``centre``, with the standard deviation ``spread``."""
        width = np.float64(self.spread * 12**0.5)
        values = self.centre + width * (uniform(zlib.crc32(name.encode()), prod(self.shape)) - 0.5)
        return values.astype(np.float32).reshape(self.shape)


def uniform(seed: int, count: int) -> NDArray[np.float64]:
    """Numbers from 0 to 1 (SplitMix64)."""
    with np.errstate(over="ignore"):
        state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_STEP)
        state += np.uint64(seed) * np.uint64(_MULTIPLIERS[0])
        for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
            state = (state ^ (state >> np.uint64(shift))) * np.uint64(multiplier)
        state ^= state >> np.uint64(31)
    return (state >> np.uint64(11)).astype(np.float64) / 2.0**53


def tensors_of(fixture: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    """The tensors of a fixture by name."""
    found: dict[str, NDArray[np.float32]] = {}
    for name, counts, shape, centre, spread in fixture["tensors"]:
        found |= dict(Tensors(name, tuple(counts), tuple(shape), centre, spread))
    return found
