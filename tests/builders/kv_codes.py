"""Coded keys and values in numpy: a second implementation of the rules of csrc/cpu/kernels.h.

Vectors are rows, (16, head_dim). float32 operations have the order of the rules, so codes and
scales are equal to the results of the kernels.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32, Codes, Raw = NDArray[np.float32], NDArray[np.uint8], NDArray[np.uint8]
Scales = NDArray[np.float16]

INTEGERS = {
    "int8": np.arange(-128, 128),
    "q4_0": np.arange(-8, 8),
    "turbo4": np.array([-127, -96, -75, -58, -44, -31, -18, -6]),
    "turbo3": np.array([-127, -79, -45, -14]),
    "turbo2": np.array([-127, -38]),
}
"""The values of the codes; for turbo only the negative half."""
for _name in ("turbo4", "turbo3", "turbo2"):
    INTEGERS[_name] = np.concatenate([INTEGERS[_name], -INTEGERS[_name][::-1]])
CODECS = list(INTEGERS)
BITS = {"int8": 8, "q4_0": 4, "turbo4": 4, "turbo3": 3, "turbo2": 2}
DEVIATION = {"turbo4": 46.476, "turbo3": 59.015, "turbo2": 84.083}
FACTORS = [0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3]
GROUP = 32
PI_WORDS = (
    "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 082efa98 ec4e6c89"
    " 452821e6 38d01377 be5466cf 34e90c6c c0ac29b7 c97c50dd 3f84d5b5 b5470917"
)


def grouped(codec: str) -> bool:
    return codec == "q4_0"


def rotated(codec: str) -> bool:
    return codec != "q4_0"


def coded_dim(head_dim: int) -> int:
    return -(-head_dim // GROUP) * GROUP


# --- rotation ---


def signs(n: int) -> F32:
    words = [int(word, 16) for word in PI_WORDS.split()]
    bits = [words[i // 32] >> (i % 32) & 1 for i in range(n)]
    return (1 - 2 * np.array(bits)).astype(np.float32)


def blocks_of(n: int) -> list[slice]:
    """The powers of two that n is a sum of, largest first."""
    begin, found = 0, []
    for size in (1 << bit for bit in reversed(range(n.bit_length()))):
        if n & size:
            found.append(slice(begin, begin + size))
            begin += size
    return found


def _butterflies(x: F32) -> F32:
    x = x.copy()
    for block in blocks_of(x.shape[-1]):
        part, size = x[..., block], block.stop - block.start
        step = 1
        while step < size:
            pairs = part.reshape(*part.shape[:-1], -1, 2, step)
            a, b = pairs[..., 0, :], pairs[..., 1, :]
            part = np.stack([a + b, a - b], axis=-2).reshape(part.shape)
            step *= 2
        x[..., block] = part * np.float32(1 / math.sqrt(size))
    return x


def hadamard(x: F32) -> F32:
    return _butterflies(x * signs(x.shape[-1]))


def inverse_hadamard(x: F32) -> F32:
    return _butterflies(x) * signs(x.shape[-1])


@functools.cache
def rotation(n: int) -> NDArray[np.float64]:
    """The matrix of ``hadamard``: a row x becomes x @ rotation."""
    return hadamard(np.eye(n, dtype=np.float32)).astype(np.float64)


# --- codes and scales: (16, D) and (groups, 16) ---


def key_centre(first_keys: F32, first_centred_pair: int = 0) -> F32:
    total = np.zeros(first_keys.shape[1], np.float32)
    for row in first_keys[4:]:
        total = total + row
    mean: F32 = total * (np.float32(1) / np.float32(12))
    for half in mean.reshape(2, -1):
        half[:first_centred_pair] = 0
    return mean


def prepare(x: F32, codec: str, first_keys: F32 | None = None, first_centred_pair: int = 0) -> F32:
    """The vectors to encode: padded, minus the centre, rotated."""
    if first_keys is not None and rotated(codec):
        x = x - key_centre(first_keys, first_centred_pair)
    padded = np.zeros((len(x), coded_dim(x.shape[1])), np.float32)
    padded[:, : x.shape[1]] = x
    return hadamard(padded) if rotated(codec) else padded


def _encode_int8(x: F32) -> tuple[Codes, F32]:
    scale = np.abs(x).max(axis=1) / np.float32(127)
    scale[~np.isfinite(x).all(axis=1)] = np.nan
    stored = scale.astype(np.float16).astype(np.float32)[:, None]
    codes = np.where(stored > 0, np.rint(np.clip(x / stored, -127, 127)), 0)
    return (codes + 128).astype(np.uint8), scale[None]


def _encode_q4_0(x: F32) -> tuple[Codes, F32]:
    groups = x.reshape(len(x), -1, GROUP)
    bad = ~np.isfinite(groups).all(axis=-1)
    place = np.abs(groups).argmax(axis=-1)  # the first one if several are equal
    extreme = np.take_along_axis(groups, place[..., None], axis=-1)[..., 0]
    scale = np.where(np.abs(extreme) < np.float32(2.0**-120), 0, extreme / np.float32(-8))
    scale = scale.astype(np.float32)
    inverse = np.where(scale == 0, 0, np.float32(1) / scale).astype(np.float32)
    codes = np.minimum(15, np.floor(groups * inverse[..., None] + np.float32(8.5)))
    codes[bad], scale[bad] = 8, np.nan
    return codes.reshape(x.shape).astype(np.uint8), scale.T


def _chain(terms: F32) -> F32:
    """The sums of rows in ascending order."""
    total = np.zeros(len(terms), np.float32)
    for column in terms.T:
        total = total + column
    return total


def _encode_turbo(x: F32, codec: str, keys: bool) -> tuple[Codes, F32]:
    integers = INTEGERS[codec].astype(np.float32)
    half = len(integers) // 2
    levels = integers[half:]
    midpoints = (levels[1:] + levels[:-1]) / np.float32(2)
    size, norm = np.abs(x), _chain(x * x)
    unit = np.sqrt(norm / np.float32(x.shape[1])) / np.float32(DEVIATION[codec])
    tried = []
    for factor in FACTORS:
        thresholds = midpoints * (unit * np.float32(factor))[:, None]
        level = (thresholds[:, None, :] < size[:, :, None]).sum(axis=-1)
        product = _chain(size * levels[level])
        square = (levels[level] ** 2).sum(axis=1)
        tried.append((product / square * product, product, square, level))
    gains = np.array([gain for gain, *_ in tried])
    best = np.where(np.isnan(gains).any(axis=0), 0, gains.argmax(axis=0))
    codes, scale = np.zeros(x.shape, np.uint8), np.zeros(len(x), np.float32)
    for t, factor in enumerate(best):
        _, product, square, level = tried[factor]
        codes[t] = np.where(x[t] < 0, half - 1 - level[t], half + level[t])
        scale[t] = norm[t] / product[t] if keys else product[t] / square[t]
    scale[norm == 0] = 0
    scale[~np.isfinite(norm)] = np.nan
    return codes, scale[None]


def encode(x: F32, codec: str, keys: bool) -> tuple[Codes, Scales]:
    """Codes (16, D) and scales (groups, 16) of the result of `prepare`."""
    with np.errstate(all="ignore"):
        if codec == "int8":
            codes, scale = _encode_int8(x)
        elif codec == "q4_0":
            codes, scale = _encode_q4_0(x)
        else:
            codes, scale = _encode_turbo(x, codec, keys)
        stored = scale.astype(np.float16)
    stored[np.isnan(stored)] = np.nan
    return codes, stored


def decode(codes: Codes, scales: Scales, codec: str) -> F32:
    """The values of the codes (16, D), still rotated and minus the centre."""
    integers = INTEGERS[codec].astype(np.float32)[codes]
    wide = scales.astype(np.float32).T.repeat(GROUP if grouped(codec) else codes.shape[1], axis=1)
    with np.errstate(invalid="ignore"):
        product: F32 = integers * wide
    return product


# --- layouts ---


def registers_of(codes: Codes, keys: bool) -> Codes:
    """Registers (D / 4, 64 bytes) of codes (16, D)."""
    dims = codes.shape[1]
    if keys:  # byte j of lane t of register r: coordinate 4 r + j of token t
        return codes.reshape(16, dims // 4, 4).transpose(1, 0, 2).reshape(-1, 64)
    # byte j of lane i of register q * (D / 16) + v: coordinate 16 v + i of token 4 q + j
    return codes.reshape(4, 4, dims).transpose(0, 2, 1).reshape(-1, 64)


def pack(codes: Codes, codec: str, keys: bool) -> Raw:
    """The bytes of codes (16, D) in a block."""
    registers = registers_of(codes, keys)

    def joined(parts: NDArray[Any], count: int, bits: int) -> NDArray[Any]:
        rows = [
            sum(parts[i + j].astype(int) << (bits * j) for j in range(count))
            for i in range(0, len(parts), count)
        ]
        return np.array(rows, np.uint8)

    if BITS[codec] == 8:
        stored = registers if keys else registers ^ 0x80
    elif BITS[codec] == 4:
        stored = joined(registers, 2, 4)
    elif BITS[codec] == 2:
        stored = joined(registers, 4, 2)
    else:
        stored = np.concatenate([joined(registers & 3, 4, 2), joined(registers >> 2, 8, 1)])
    return stored.reshape(-1)


def unpack(stored: Raw, codec: str, keys: bool, dims: int) -> Codes:
    """The codes (16, D) of a block's bytes."""
    rows = stored.reshape(-1, 64)
    count = dims // 4

    def apart(parts: Codes, bits: int) -> Codes:
        """The codes of ``bits`` bits that are packed in bytes."""
        shifts = range(0, 8, bits)
        together = [parts >> shift & ((1 << bits) - 1) for shift in shifts]
        return np.stack(together, axis=1).reshape(-1, 64)

    if BITS[codec] == 8:
        registers = rows if keys else rows ^ 0x80
    elif BITS[codec] == 3:
        low, high = rows[: count // 4], rows[count // 4 :]
        registers = apart(low, 2) | apart(high, 1) << 2
    else:
        registers = apart(rows, BITS[codec])
    lanes = registers.reshape(count, 16, 4)
    if keys:
        return lanes.transpose(1, 0, 2).reshape(16, dims)
    return lanes.reshape(4, dims, 4).transpose(0, 2, 1).reshape(16, dims)
