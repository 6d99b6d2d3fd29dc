"""Runs kernels on an instruction set of the CPU or on a device. Both have the same calls, so a test
of an instruction set is also a test of a device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders import kv_codes
from builders.instruction_sets import ISAS, distinct
from builders.kernel_arrays import F32, kernels
from onward import _core

CUDA_HOST = "cuda-host"
"""The CUDA kernels, compiled for the CPU."""
PLACES = ("instruction sets", CUDA_HOST)
"""For tests that compare kernels with generic; see ``beside_generic``."""

Raw = NDArray[np.uint8]


def beside_generic(place: str, made_of: str) -> list[str]:
    """The place for the kernels of one of PLACES; skips the test if this machine lacks it."""
    if place == CUDA_HOST:
        return [need(CUDA_HOST)]
    return distinct(made_of) or pytest.skip("this processor runs no instruction set but generic")


def need(place: str) -> str:
    """Skip the test if there is no such device."""
    ready = {name for name, _, why_not in _core.devices() if not why_not}
    if place == CUDA_HOST and CUDA_HOST not in ready:
        pytest.skip("the CUDA kernels are not built for the processor: no libonward_cuda_host.so")
    return place


def encode_block(
    place: str,
    keys: NDArray[Any],
    values: NDArray[Any],
    key_codec: str,
    value_codec: str,
    first_keys: NDArray[Any] | None = None,
    first_centred_pair: int = 0,
) -> tuple[Raw, Raw, Raw, Raw]:
    """Like ``kernels.encode_block``, (16, head_dim) of one head."""
    if place in ISAS:
        return kernels.encode_block(
            place, keys, values, key_codec, value_codec, first_keys, first_centred_pair
        )
    first = None if first_keys is None else first_keys[None, None]
    block = kernels.encode_blocks(
        keys[None, None, None],
        values[None, None, None],
        key_codec,
        value_codec,
        [0],
        first,
        threads=2,
        first_centred_pair=first_centred_pair,
        device=place,
    )[0][0]
    head_dim, size = keys.shape[1], keys.itemsize
    exact = {True: 16 * head_dim * size, False: 16 * (-(-head_dim // 16) * 16) * size}
    dims, codes, scales = kv_codes.coded_dim(head_dim), [], []
    for is_key, codec in ((True, key_codec), (False, value_codec)):
        coded = codec != "exact"
        codes.append(16 * dims * kv_codes.BITS[codec] // 8 if coded else exact[is_key])
        groups = dims // 32 if kv_codes.grouped(codec) else 1
        scales.append(32 * groups if coded else 0)
    ends = np.cumsum([*codes, *scales])
    assert (block[ends[-1] :] == ord("u")).all()
    key_codes, value_codes, key_scales, value_scales = np.split(block[: ends[-1]], ends[:-1])
    return key_codes, key_scales, value_codes, value_scales


def attend(
    place: str,
    q: F32,
    keys: NDArray[Any],
    values: NDArray[Any],
    first_position: int,
    window: int,
    scale: float,
) -> F32:
    """Like ``kernels.attend``: q (tokens, group, head_dim); keys, values (positions, head_dim)."""
    if place in ISAS:
        return kernels.attend(place, q, keys, values, first_position, window, scale)
    positions, head_dim = keys.shape
    blocks: list[Raw | None] = []
    for begin in range(0, positions, 16):
        part = slice(begin, min(begin + 16, positions))
        block_keys = np.zeros((head_dim, 16), keys.dtype)
        block_values = np.zeros((16, -(-head_dim // 16) * 16), values.dtype)
        block_keys[:, : part.stop - begin] = keys[part].T
        block_values[: part.stop - begin, :head_dim] = values[part]
        blocks.append(
            np.concatenate([x.view(np.uint8).reshape(-1) for x in (block_keys, block_values)])
        )
    dtype = {"float32": "f32", "float16": "f16", "uint16": "bf16"}[keys.dtype.name]
    return kernels.attend_layer(
        q,
        [(first_position, len(q), blocks, [])],
        kv_heads=1,
        dtype=dtype,
        key_codec="exact",
        value_codec="exact",
        layers=1,
        layer=0,
        scale=scale,
        threads=2,
        window=window,
        device=place,
    )
