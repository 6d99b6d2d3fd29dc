"""Arrays for the tests of the inner loops, and the comparison of their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onward_kernels
from numpy.typing import NDArray

kernels = onward_kernels
F32, U16 = NDArray[np.float32], NDArray[np.uint16]


def normal(seed: int, *shape: int, scale: float = 1.0) -> F32:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def to_bf16(x: F32) -> U16:
    """Round to bf16: to nearest, ties to even; no NaN."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widen(bits: U16) -> F32:
    """bf16 as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def raw(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of each row."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1)


def assert_bits(found: NDArray[Any], expected: NDArray[Any], where: str = "") -> None:
    """Equal bits; any NaN equals any other."""
    assert found.shape == expected.shape and found.dtype == expected.dtype, where
    different = found.view(f"u{found.itemsize}") != expected.view(f"u{found.itemsize}")
    if found.dtype.kind == "f":
        different &= ~(np.isnan(found) & np.isnan(expected))
    assert not different.any(), f"{different.sum()} of {different.size} differ {where}"
