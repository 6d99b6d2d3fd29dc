"""Coded caches and attention sinks on the CUDA kernels: in float32 an engine gives the same bits of
logits and the same tokens as on the processor. Tests of single kernels: test_kv_encode.py,
test_attend_codes.py, test_attend_sinks.py.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.core_engine import Shape, complete, random_prompt, seeded_model
from builders.kernel_places import CUDA_HOST, need
from onward import _core

CACHES: dict[str, dict[str, Any]] = {
    "turbo4": {"kv_keys": "turbo4", "kv_values": "turbo4"},
    "int8": {"kv_keys": "int8", "kv_values": "int8"},
    "q4_0": {"kv_keys": "q4_0", "kv_values": "q4_0"},
    "int8 and turbo4": {"kv_keys": "int8", "kv_values": "turbo4"},
    "exact and turbo3": {"kv_keys": "exact", "kv_values": "turbo3"},
    "turbo2, first block coded": {"kv_keys": "turbo2", "kv_values": "turbo2", "kv_sinks": False},
    "sinks": {"attention_window": 48},
    "sinks and turbo4": {"kv_keys": "turbo4", "kv_values": "turbo4", "attention_window": 80},
}
PROMPT, NEW_TOKENS = 105, 12


@functools.cache
def model(device: str, windows: tuple[int, ...] = ()) -> _core.Model:
    shape = Shape(num_layers=2, num_heads=6, num_kv_heads=1, head_dim=40, windows=windows)
    return seeded_model("f32", shape, device=device)


def new_engine(
    device: str, cache: dict[str, Any], chunk: int, windows: tuple[int, ...] = ()
) -> _core.Engine:
    options = {"kv_window_tokens": 32, **cache}
    return _core.Engine(model(device, windows), threads=2, prefill_chunk_tokens=chunk, **options)


def assert_same(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert np.isfinite(expected).all()
    assert (found.view(np.uint32) == expected.view(np.uint32)).all()


@pytest.mark.parametrize("cache", CACHES)
def test_an_engine_gives_the_bits_of_the_processor(cache: str) -> None:
    """Prompts in several steps, and decoding side by side."""
    device = need(CUDA_HOST)
    prompts = [random_prompt(length, seed=length) for length in (PROMPT, 3, 70)]
    expected, found = (new_engine(where, CACHES[cache], 37) for where in ("cpu", device))
    tokens = complete(expected, prompts, max_new_tokens=NEW_TOKENS)
    assert complete(found, prompts, max_new_tokens=NEW_TOKENS) == tokens
    whole = np.concatenate([prompts[0], np.array(tokens[0], np.int32)])
    assert_same(found.logits(whole), expected.logits(whole))


def test_layers_with_different_windows() -> None:
    """Two groups of layers, each with its own codes."""
    device, windows = need(CUDA_HOST), (48, 0)
    expected, found = (
        new_engine(where, CACHES["turbo4"], 64, windows) for where in ("cpu", device)
    )
    prompt = random_prompt(PROMPT)
    tokens = complete(expected, [prompt], max_new_tokens=NEW_TOKENS)
    assert complete(found, [prompt], max_new_tokens=NEW_TOKENS) == tokens
    assert_same(found.logits(prompt), expected.logits(prompt))


def test_a_long_context_is_cut_and_decoding_is_replayed() -> None:
    """Rows of several spans, computed by different blocks; steps of one shape, whose launches are
    recorded while blocks are encoded between them; and a longer prompt in the middle."""
    device = need(CUDA_HOST)
    expected, found = (
        new_engine(where, CACHES["int8 and turbo4"], 512) for where in ("cpu", device)
    )
    for length in (30, 700, 40):
        prompt = random_prompt(length, seed=length)
        tokens = complete(expected, [prompt], max_new_tokens=24)
        assert complete(found, [prompt], max_new_tokens=24) == tokens
