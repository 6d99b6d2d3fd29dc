"""The bytes of packed weights, and the number of their layout."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from builders.checkpoints import config_of
from onward import _core
from onward.load import architectures, loading

# The first half of a sha256 over names, dtypes and bytes, for layout 2.
LAYOUT = 2
FINGERPRINTS = {
    "f32": "fd413ef4a459a7b27ed3f42bec9a39ea",
    "f16": "38686c6e9437913590dadb8ee4dfda1b",
    "bf16": "243cac91a300a1b72b027eb5202e0401",
    "q8_0": "03aab16281f34d549ad1fc061190b280",
    "q4_0": "26b2fa5245ec6118f83bf761a17b40a1",
    "q4_1": "8de9b5a088ec4aa23ab79eb82ca2193a",
}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"])
def test_the_bytes_of_packed_weights_match_the_layout_number(dtype: str) -> None:
    """If this fails, raise kPackedLayout in csrc/cpu/tasks/panels.h: kept weights are wrong."""
    config = config_of(vocab_size=100, intermediate_size=96, attention_bias=True)
    spec = architectures.read_spec(config)
    builder = _core.ModelBuilder(loading.core_spec(spec), "f32", 1)
    for number, planned in enumerate(architectures.tensor_plan(spec)):
        arrays = [hashed_floats(shape, number + 100 * i) for i, shape in enumerate(planned.shapes)]
        parts = [(array.data, "F32", array.shape, None) for array in arrays]
        builder.add(planned.name, parts, dtype)
    found = hashlib.sha256()
    for name, packed_dtype, data in builder.finish().packed():
        found.update(f"{name} {packed_dtype} {data.nbytes} ".encode() + data)
    assert _core.packed_layout == LAYOUT
    assert found.hexdigest()[:32] == FINGERPRINTS[dtype]


def hashed_floats(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Multiples of 1/1024 from -1 to 1, the same on every machine."""
    numbers = np.arange(seed << 20, (seed << 20) + np.prod(shape), dtype=np.uint64)
    scattered = (numbers * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(53)
    return (scattered.astype(np.float32) / 1024 - 1).reshape(shape)
