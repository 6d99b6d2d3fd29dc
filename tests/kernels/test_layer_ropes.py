"""Layers that do not rotate q and k (``layer_ropes``), on the processor and on the CUDA kernels.

A rotation by frequency 0 leaves q and k as they are, so a model whose frequencies are all 0 is the
oracle of one whose layers do not rotate. tests/core/test_reference_models.py compares SmolLM3 with
transformers.
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

SHAPE = Shape(num_layers=2, num_heads=4, num_kv_heads=2, head_dim=32)
STILL = [0.0] * 16
CACHES: dict[str, dict[str, Any]] = {
    "exact": {},
    "codes": {"kv_keys": "turbo4", "kv_values": "int8", "kv_window_tokens": 16},
    "sinks": {"attention_window": 24},
    "sinks and codes": {"kv_keys": "int8", "kv_values": "int8", "attention_window": 48},
}


@functools.cache
def model(ropes: tuple[int, ...], still: bool = False, device: str = "cpu") -> _core.Model:
    changes = {"rope_inv_freq": STILL} if still else {}
    return seeded_model("f32", SHAPE, device=device, layer_ropes=ropes, **changes)


def logits(
    ropes: tuple[int, ...], cache: str = "exact", *, still: bool = False, device: str = "cpu"
) -> NDArray[np.float32]:
    engine = _core.Engine(
        model(ropes, still, device), threads=2, prefill_chunk_tokens=37, **CACHES[cache]
    )
    prompt = random_prompt(100)
    (tokens,) = complete(engine, [prompt], max_new_tokens=12)
    return engine.logits(np.concatenate([prompt, np.array(tokens, np.int32)]))


def same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    return a.shape == b.shape and bool((a == b).all())


@pytest.mark.parametrize("device", ["cpu", "cuda-host"])
class TestNoLayerRotates:
    @pytest.mark.parametrize("cache", ["exact", "sinks"])
    def test_a_model_without_rotation_equals_frequency_0(self, device: str, cache: str) -> None:
        where = "cpu" if device == "cpu" else need(CUDA_HOST)
        found = logits((-1, -1), cache, device=where)
        assert same_bits(found, logits((), cache, still=True))
        assert not same_bits(found, logits((), cache))


class TestSomeLayersRotate:
    def test_an_empty_list_and_zeros_mean_that_all_do(self) -> None:
        assert same_bits(logits(()), logits((0, 0)))

    def test_each_layer_follows_its_own_entry(self) -> None:
        found = [logits(ropes) for ropes in ((0, 0), (-1, 0), (0, -1), (-1, -1))]
        for i, one in enumerate(found):
            assert np.isfinite(one).all()
            assert not any(same_bits(one, other) for other in found[i + 1 :])

    @pytest.mark.parametrize("cache", CACHES)
    def test_the_cuda_kernels_give_the_bits_of_the_processor(self, cache: str) -> None:
        device = need(CUDA_HOST)
        assert same_bits(logits((0, -1), cache, device=device), logits((0, -1), cache))


class TestFaults:
    @pytest.mark.parametrize(
        ("ropes", "message"),
        [
            ((0,), "layer_ropes length is 1, expected 2"),
            ((0, -2), "layer_ropes is -2, expected -1 to 0"),
            ((0, 1), "layer_ropes is 1, expected -1 to 0"),
        ],
    )
    def test_the_field_is_named(self, ropes: tuple[int, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            model(ropes)
