"""Calculates the bytes of a key, of a value and of a token of the cache.

A vector is the key or the value of one token at one kv head of one layer: head_dim numbers. In some
models a value has a different size, value_dim. A coded vector has head_dim rounded up to a multiple
of 32 codes and its scales (f16). An exact key has head_dim numbers; an exact value has value_dim
rounded up to a multiple of 16. The layout is described in csrc/backend/cache_layout.h.
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
    """The bytes of one key or value in a float dtype or a codec, with its scales."""
    return _core.kv_vector_bytes(dtype, head_dim, side == "keys")


def pair_bytes(keys: str, values: str, head_dim: int, value_dim: int | None = None) -> int:
    """The bytes of a key and a value of one token at one kv head of one layer. ``value_dim`` None:
    head_dim."""
    if value_dim is None:
        value_dim = head_dim
    return vector_bytes(keys, head_dim, "keys") + vector_bytes(values, value_dim, "values")


def layer_bytes(spec: DecoderSpec, layer: int, keys: str, values: str) -> int:
    """The bytes of the keys and values of one token at all kv heads of a layer."""
    pair = pair_bytes(keys, values, spec.head_dim_of(layer), spec.value_dim_of(layer))
    return spec.kv_heads_of(layer) * pair


def token_bytes(spec: DecoderSpec, dtypes: KvDtypes) -> int:
    """The bytes of one token at all heads of all layers, in a block that is not exact."""
    return _token_bytes(spec, dtypes.keys, dtypes.values)


def exact_token_bytes(spec: DecoderSpec, dtypes: KvDtypes) -> int:
    """The bytes of one token at all heads of all layers, in an exact block."""
    return _token_bytes(spec, dtypes.exact, dtypes.exact)


def _token_bytes(spec: DecoderSpec, keys: str, values: str) -> int:
    return sum(layer_bytes(spec, layer, keys, values) for layer in range(spec.num_layers))


def padded(count: int, multiple: int) -> int:
    """The count rounded up to a multiple."""
    return -(-count // multiple) * multiple
