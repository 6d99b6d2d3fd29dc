"""GGUF's block formats: their range, plain rounding, and their bytes.

A block is 32 neighbouring values of a row: integer codes, a scale and, in Q4_1, a minimum, both
float16. A value is ``scale * code + minimum``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onward import _core
from onward.load.weights.checkpoint import STORAGE, Tensor, float_values

BLOCK = 32
_COARSE_STEPS = 128
F32 = NDArray[np.float32]


@dataclass(frozen=True)
class BlockFormat:
    """One format: its name on the command line, in files, and the range of its codes."""

    name: str
    dtype: str  # a key of STORAGE
    low: int
    high: int
    has_minimum: bool = False


FORMATS = {
    "int4": BlockFormat("int4", "Q4_0", -8, 7),
    "int4-min": BlockFormat("int4-min", "Q4_1", 0, 15, has_minimum=True),
    "int8": BlockFormat("int8", "Q8_0", -127, 127),
}


@dataclass(frozen=True)
class Blocks:
    """A matrix of (rows, blocks * 32) values in one format."""

    format: BlockFormat
    codes: NDArray[np.int8]  # (rows, blocks * 32)
    scales: F32  # (rows, blocks), each a float16
    minima: F32  # (rows, blocks), each a float16; zeros where the format has none

    def values(self) -> F32:
        """The values of the blocks, (rows, blocks * 32), in float32 as the engine computes them."""
        rows, blocks = self.scales.shape
        codes = self.codes.reshape(rows, blocks, BLOCK).astype(np.float32)
        values = self.scales[:, :, None] * codes + self.minima[:, :, None]
        return np.asarray(values.reshape(rows, blocks * BLOCK), np.float32)

    def to_tensor(self) -> Tensor:
        """The matrix as a tensor of a checkpoint."""
        return Tensor(self.to_bytes().reshape(-1).data, self.format.dtype, self.codes.shape)

    def to_bytes(self) -> NDArray[np.uint8]:
        """The bytes of a file: (rows, blocks * bytes of a block)."""
        rows, blocks = self.scales.shape
        parts = [_halves(self.scales)]
        codes = self.codes.reshape(rows, blocks, BLOCK)
        if self.format.dtype == "Q8_0":
            parts.append(codes.astype(np.uint8))  # the same bits
        else:
            if self.format.has_minimum:
                parts.append(_halves(self.minima))
            nibbles = (codes - self.format.low).astype(np.uint8)
            # The first 16 values of a block are the low halves of its bytes.
            parts.append(nibbles[:, :, :16] | nibbles[:, :, 16:] << np.uint8(4))
        return np.concatenate(parts, axis=2).reshape(rows, -1)


def rounded_plainly(values: F32, format_: BlockFormat) -> Blocks:
    """Round every value to the nearest code, with the scale from the largest value of each
    block, as the converters of GGUF files do. values: (rows, blocks * 32)."""
    rows, columns = values.shape
    blocks = values.reshape(rows, columns // BLOCK, BLOCK)
    minima = np.zeros(blocks.shape[:2], np.float32)
    if format_.has_minimum:
        minima = blocks.min(axis=2)
        scales = (blocks.max(axis=2) - minima) / np.float32(format_.high)
    else:
        peaks = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[:, :, None], axis=2)
        # The codes of 4 bits reach one step further down than up: the largest value takes the
        # lowest code.
        scales = peaks[:, :, 0] / np.float32(format_.low)
        scales = scales if format_.low + format_.high else np.abs(scales)
    # The codes are computed from the scale before it is rounded to float16, as the converters do,
    # but.
    # From the rounded scale where float16 has few digits. Ties are rounded away from zero, counted
    # from.
    # the lowest code.
    kept = as_scale(scales)
    used = np.where(np.abs(scales) < np.finfo(np.float16).smallest_normal, kept, scales)
    with np.errstate(divide="ignore"):
        inverse = np.where(used == 0, np.float32(0), np.float32(1) / used)
    exact = (blocks - minima[:, :, None]).astype(np.float64) * inverse[:, :, None]
    if format_.dtype == "Q8_0":
        codes = np.trunc(exact + np.copysign(0.5, exact))
    else:
        codes = np.trunc(exact + (0.5 - format_.low)) + format_.low
    codes = codes.clip(format_.low, format_.high).astype(np.int8).reshape(rows, columns)
    return Blocks(format_, codes, kept, as_half(minima))


def as_half(values: F32) -> F32:
    """Round to the nearest float16; returns float32."""
    limit = np.float32(np.finfo(np.float16).max)
    return values.clip(-limit, limit).astype(np.float16).astype(np.float32)


def as_scale(values: F32) -> F32:
    """Round to the nearest float16, but to the next one away from zero where the steps of
    float16 are coarse. The core rounds scales in the same way (csrc/formats/weight_blocks.cpp)."""
    step = np.float32(np.finfo(np.float16).smallest_subnormal)
    raised = np.copysign(np.ceil(np.abs(values) / step) * step, values)
    return np.where(np.abs(values) < _COARSE_STEPS * step, raised, as_half(values))


def check_range(values: F32, format_: BlockFormat) -> str | None:
    """Why the format cannot hold the values of a matrix, by the rule of the core; None where it
    can."""
    if not np.isfinite(values).all():
        return "has values that are not finite, expected finite ones"
    low, high = _core.kernels.weight_range(format_.dtype.lower())
    largest = float(np.abs(values).max(initial=0))
    if largest > high:
        return f"has values up to {largest:.3g}, expected at most {high:.3g}"
    if 0 < largest < low:
        return f"has no value above {largest:.3g}, expected one of at least {low:.3g}"
    return None


def values_of(tensor: Tensor) -> F32:
    """A stored tensor as float32, with its rows in the order of the file. The matrices of three
    dimensions are stacked along the rows."""
    raw = np.frombuffer(tensor.buffer, np.uint8)
    shape = tensor.shape
    if len(shape) == 3:
        shape = (shape[0] * shape[1], shape[2])
    return decoded(raw, tensor.dtype, shape)


def rows_of(tensor: Tensor, rows: NDArray[np.int32]) -> F32:
    """Some rows of a stored matrix, by their index in the file: (rows, columns) float32."""
    raw = np.frombuffer(tensor.buffer, np.uint8).reshape(tensor.shape[0], -1)
    return decoded(raw[rows], tensor.dtype, (len(rows), tensor.shape[1]))


def decoded(raw: NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> F32:
    """Converts bytes of a dtype of STORAGE to float32 of the given shape. Block formats need a
    matrix."""
    if STORAGE[dtype][0] == 1:
        return float_values(raw.reshape(-1), dtype).reshape(shape)
    # The core reads every block format and returns float32.
    return _core.kernels.repacked(raw.reshape(shape[0], -1), dtype.lower(), "f32")


def _halves(values: F32) -> NDArray[np.uint8]:
    """The bytes of float16 values: (rows, blocks) -> (rows, blocks, 2)."""
    return values.astype("<f2").view(np.uint8).reshape(*values.shape, 2)
