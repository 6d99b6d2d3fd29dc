"""Bytes of one key or value, of a token and of a block of the cache.

A vector is the key or the value of one token at one kv head of one layer: head_dim numbers. Where
it is coded, D is head_dim rounded up to a multiple of 32:

    int8     D + 2                one byte per number, an f16 scale for the vector
    turbo4   D / 2 + 2            four bits per number, an f16 scale for the vector
    turbo3   3 D / 8 + 2          three bits per number, an f16 scale for the vector
    turbo2   D / 4 + 2            two bits per number, an f16 scale for the vector
    q4_0     D / 2 + 2 (D / 32)   four bits per number, an f16 scale for each 32

Where it is exact, a key is head_dim numbers, and a value is rounded up to a multiple of 16 numbers
(csrc/backend/cache_layout.h).
"""

from __future__ import annotations

from typing import Literal

from onward.options.kv_dtypes import CODES, KvDtypes
from onward.spec import DecoderSpec

BLOCK_TOKENS = 16
"""Consecutive tokens of a sequence that one block of the cache holds (kBlockTokens)."""
FLOAT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
_GROUP = 32
_SCALE_BYTES = 2
_VALUE_LANES = 16
# Bits of a number, and whether each group of 32 has a scale of its own rather than each vector.
_CODES = {
    "int8": (8, False),
    "q4_0": (4, True),
    "turbo4": (4, False),
    "turbo3": (3, False),
    "turbo2": (2, False),
}
assert set(_CODES) == set(CODES)


def vector_bytes(dtype: str, head_dim: int, side: Literal["keys", "values"]) -> int:
    """Bytes of one key or value in a float dtype or a code, as the module's head says."""
    if dtype in FLOAT_BYTES:
        numbers = head_dim if side == "keys" else padded(head_dim, _VALUE_LANES)
        return numbers * FLOAT_BYTES[dtype]
    bits, in_groups = _CODES[dtype]
    numbers = padded(head_dim, _GROUP)
    scales = numbers // _GROUP if in_groups else 1
    return numbers * bits // 8 + scales * _SCALE_BYTES


def pair_bytes(keys: str, values: str, head_dim: int) -> int:
    """A key and a value: one token at one kv head of one layer."""
    return vector_bytes(keys, head_dim, "keys") + vector_bytes(values, head_dim, "values")


def token_bytes(spec: DecoderSpec, dtypes: KvDtypes) -> int:
    """One token at all heads of all layers, in a block that is no longer exact."""
    pair = pair_bytes(dtypes.keys, dtypes.values, spec.head_dim)
    return spec.num_layers * spec.num_kv_heads * pair


def exact_token_bytes(spec: DecoderSpec, dtypes: KvDtypes) -> int:
    """One token at all heads of all layers, in an exact block."""
    pair = pair_bytes(dtypes.exact, dtypes.exact, spec.head_dim)
    return spec.num_layers * spec.num_kv_heads * pair


def padded(count: int, multiple: int) -> int:
    """The count rounded up to a multiple."""
    return -(-count // multiple) * multiple
