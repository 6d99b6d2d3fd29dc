"""Bytes of one key or value and of a token of the cache, as the core lays them out.

A vector is the key or the value of one token at one kv head of one layer: head_dim numbers.
A coded vector has head_dim rounded up to a multiple of 32 codes and its scales (f16). An exact key
has head_dim numbers; an exact value has head_dim rounded up to a multiple of 16. The layout is
described in csrc/backend/cache_layout.h.
"""

from __future__ import annotations

from typing import Literal

from onward import _core
from onward.options.kv_dtypes import KvDtypes
from onward.spec import DecoderSpec

BLOCK_TOKENS = _core.kv_block_tokens
"""Consecutive tokens of a sequence that one block of the cache holds."""
FLOAT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}


def vector_bytes(dtype: str, head_dim: int, side: Literal["keys", "values"]) -> int:
    """Bytes of one key or value in a float dtype or a codec, its scales included."""
    return _core.kv_vector_bytes(dtype, head_dim, side == "keys")


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
