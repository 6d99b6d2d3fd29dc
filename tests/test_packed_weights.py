"""Packed bytes as the core gives them out and takes them back."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.checkpoints import config_of, write_folder
from builders.core_engine import new_engine
from builders.packed_folders import PROMPT
from onward import _core
from onward.errors import InvalidArgument, WeightError
from onward.load import architectures, loading
from onward.load.hub import find_model
from onward.load.loading import LoadedModel, load_model


def load(model: Path, dtype: str) -> LoadedModel:
    return load_model(find_model(model), dtype, 2)


def logits(core: _core.Model) -> bytes:
    return np.asarray(new_engine(core).logits(PROMPT)).tobytes()


def builder_of(loaded: LoadedModel) -> Any:
    return _core.ModelBuilder(loading.core_spec(loaded.spec), loaded.dtypes.cache, 2)


def test_packed_bytes_make_the_same_model(tmp_path: Path) -> None:
    loaded = load(write_folder(tmp_path / "m"), "int8")
    weights = loaded.core.packed()
    builder = builder_of(loaded)
    for name, dtype, data in weights:
        assert data.readonly and data.contiguous and data.format == "B"
        builder.add_packed(name, data, dtype)
    expected = logits(loaded.core)
    rebuilt = builder.finish()
    del loaded
    assert logits(rebuilt) == expected
    assert sum(data.nbytes for _, _, data in weights) <= rebuilt.weight_bytes  # and still readable


def test_add_packed_refuses_what_does_not_fit(tmp_path: Path) -> None:
    loaded = load(write_folder(tmp_path / "m"), "int8")
    weights = {name: (dtype, data) for name, dtype, data in loaded.core.packed()}
    builder = builder_of(loaded)
    dtype, data = weights["embed"]
    for wrong in (data[:-1], bytes(data) + b"0", b""):
        message = f"'embed': .*found {len(wrong)}, expected {data.nbytes}"
        with pytest.raises(WeightError, match=message):
            builder.add_packed("embed", wrong, dtype)
    with pytest.raises(WeightError, match="expected"):
        builder.add_packed("embed", data, "f32")
    for other in ("q6_k", "int8"):
        with pytest.raises(InvalidArgument, match="dtype"):
            builder.add_packed("embed", data, other)
    with pytest.raises(InvalidArgument, match="strided"):
        builder.add_packed("embed", np.zeros((2, data.nbytes), np.uint8)[:, ::2], dtype)
    with pytest.raises(WeightError, match="'odd' is not a weight"):
        builder.add_packed("odd", data, dtype)
    with pytest.raises(WeightError, match=r"'norm': .*found 4, expected 128"):
        builder.add_packed("norm", bytes(4), "f32")
    builder.add_packed("embed", data, dtype)
    with pytest.raises(WeightError, match="twice"):
        builder.add_packed("embed", data, dtype)
    with pytest.raises(WeightError, match="missing"):
        builder.finish()


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
def test_the_layout_is_the_one_that_its_number_stands_for(dtype: str) -> None:
    """Where this fails, csrc/cpu/panels.h has to raise kPackedLayout, or kept weights are wrong."""
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
