"""Every block format of GGUF: the core reads the same values as the gguf package, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.checkpoints import (
    BLOCKS,
    GGUF_TYPES,
    TINY_GGUF,
    Stored,
    config_of,
    gguf_bytes,
    gguf_name,
    random_blocks,
    random_weights,
    stored,
    write_folder,
)
from builders.core_engine import Shape, new_engine, spec_of, weight_shapes
from onward import _core
from onward.errors import InvalidArgument, WeightError
from onward.load.architectures.row_orders import each_head, half_split_from_pairs
from onward.load.hub import find_model
from onward.load.loading import load_model
from onward.load.weights.checkpoint import STORAGE

gguf = pytest.importorskip("gguf")

COLUMNS = 1024
"""Four of the largest blocks; a power of four, so that the norm of a one-hot row is exact."""
MIXES = {  # the formats of a model's matrices, in turn
    **{dtype: (dtype,) for dtype in BLOCKS},
    "K, mixed as files are": ("Q4_K", "Q6_K", "Q4_K", "Q5_K", "F16"),
    "all": tuple(BLOCKS),
}


def dequantised(tensor: Stored) -> NDArray[np.float32]:
    """The values by the gguf package."""
    raw = np.frombuffer(tensor.data, np.uint8).reshape(tensor.shape[0], -1)
    if tensor.dtype == "F16":
        raw = raw.view(np.float16)
    return np.asarray(gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[tensor.dtype]))


def head_as_read(head: Stored) -> NDArray[np.float32]:
    """A matrix (n, COLUMNS) as read by the core, in float32: the logits of a model with this head.

    Attention and MLP are zero and the embeddings one-hot, so that the logits after token ``i`` are
    column ``i``.
    """
    rows = head.shape[0]
    shape = Shape(
        vocab_size=COLUMNS,
        hidden_size=COLUMNS,
        intermediate_size=16,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=16,
        qkv_bias=False,
        qk_norm=False,
    )
    padded = Stored(head.dtype, (COLUMNS, COLUMNS), head.data * (COLUMNS // rows))
    builder = _core.ModelBuilder(spec_of(shape, norm_eps=1e-12), "f32", 2)
    for name, shapes in weight_shapes(shape).items():
        if name == "head":
            parts: list[Any] = [(padded.data, padded.dtype, padded.shape, None)]
        elif name == "embed":
            parts = [(np.eye(COLUMNS, dtype=np.float32), "F32", shapes[0], None)]
        elif name == "norm":
            parts = [(np.full(COLUMNS, COLUMNS**-0.5, np.float32), "F32", shapes[0], None)]
        else:
            parts = [(np.zeros(part, np.float32), "F32", part, None) for part in shapes]
        builder.add(name, parts, dtype="f32")
    logits = new_engine(builder.finish()).logits(np.arange(COLUMNS, dtype=np.int32))
    return np.asarray(logits).T[:rows]


def test_the_formats_equal_the_package() -> None:
    assert {dtype for dtype, (values, _) in STORAGE.items() if values > 1} == set(BLOCKS)
    for dtype, number in GGUF_TYPES.items():
        kind = gguf.GGMLQuantizationType(number)
        assert kind.name == dtype
        if dtype in STORAGE:
            assert gguf.GGML_QUANT_SIZES[kind] == STORAGE[dtype]


@pytest.mark.parametrize("dtype", BLOCKS)
def test_every_value_equals_the_package(dtype: str) -> None:
    """All bytes of the blocks are random, so that every field of the layout has an effect."""
    head = random_blocks(dtype, (64, COLUMNS), np.random.default_rng(1))
    expected = dequantised(head)
    assert np.isfinite(expected).all()
    assert len(np.unique(expected)) > {"MXFP4": 25, "TQ1_0": 300, "TQ2_0": 300}.get(dtype, 1000)
    assert np.array_equal(head_as_read(head), expected)


@pytest.mark.parametrize("dtype", BLOCKS)
def test_scales_at_the_ends_of_their_range(dtype: str) -> None:
    """Zero, the smallest and the largest f16, with either sign."""
    head = random_blocks(dtype, (64, COLUMNS), np.random.default_rng(2))
    blocks = np.frombuffer(bytearray(head.data), np.uint8).reshape(-1, STORAGE[dtype][1])
    extremes = np.array([0, 1, 0x3FF, 0x400, 0x7BFF], np.uint16)
    bits = np.concatenate([extremes, extremes | 0x8000])
    for number, offset in enumerate(BLOCKS[dtype]):
        chosen = bits[(np.arange(len(blocks)) // len(bits) ** number) % len(bits)]
        blocks[:, offset : offset + 2] = chosen[:, None].view(np.uint8)
    changed = head._replace(data=blocks.tobytes())
    assert np.array_equal(head_as_read(changed), dequantised(changed))


def test_every_exponent_and_code_of_mxfp4() -> None:
    """From float32 subnormals to an overflow of the largest codes."""
    codes = np.tile(np.arange(16, dtype=np.uint8) * 17, (256, 1))
    exponents = np.arange(256, dtype=np.uint8)[:, None]
    blocks = np.concatenate([exponents, codes], axis=1)
    found = _core.kernels.repacked(blocks, "mxfp4", "f32")
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    values = np.array(values + [-value for value in values], np.float64)
    with np.errstate(over="ignore"):
        scales = 2.0 ** (np.arange(256.0)[:, None] - 127)
        assert np.array_equal(found[:, :16], (scales * values).astype(np.float32))
    assert np.array_equal(found[:, :16], found[:, 16:])
    assert np.array_equal(found, dequantised(Stored("MXFP4", (256, 32), blocks.tobytes())))


def llama_of(
    mix: tuple[str, ...],
) -> tuple[dict[str, Any], dict[str, Stored], dict[str, NDArray[np.float32]]]:
    """The config, the tensors of a GGUF file, and the float32 weights of the same model in a
    folder."""
    config = config_of(hidden_size=256, intermediate_size=512, vocab_size=48, rope_theta=500.0)
    generator = np.random.default_rng(3)
    tensors: dict[str, Stored] = {}
    weights: dict[str, NDArray[np.float32]] = {}
    for name, array in random_weights(config).items():
        if array.ndim == 1:
            tensors[gguf_name(name)], weights[name] = stored(array), array
            continue
        dtype = mix[len(tensors) % len(mix)]
        if dtype in BLOCKS:
            tensor = random_blocks(dtype, array.shape, generator)
        else:
            tensor = stored(array / 16, dtype)
        tensors[gguf_name(name)], weights[name] = tensor, dequantised(tensor)
        heads = {"q_proj": 2, "k_proj": 1}.get(name.split(".")[-2])
        if heads is not None:  # a GGUF file has another order of rows
            weights[name] = weights[name][
                each_head(half_split_from_pairs(array.shape[0] // heads), heads)
            ]
    return config, tensors, weights


@pytest.mark.parametrize(
    ("mix", "dtype"),
    [
        *((mix, ("f32", "f16", "bf16")[number % 3]) for number, mix in enumerate(MIXES)),
        *(("all", dtype) for dtype in ("f32", "f16", "bf16")),
    ],
)
def test_a_model_equals_a_model_of_its_dequantised_weights(
    tmp_path: Path, mix: str, dtype: str
) -> None:
    """Every format with one dtype, in turn, and all formats together with every dtype."""
    config, tensors, weights = llama_of(MIXES[mix])
    path = tmp_path / "blocks.gguf"
    sizes = {"llama.embedding_length": 256, "llama.feed_forward_length": 512}
    path.write_bytes(gguf_bytes({**TINY_GGUF, **sizes}, tensors))
    folder = write_folder(tmp_path / "dequantised", config, weights)
    prompt = np.arange(0, 48, 5, dtype=np.int32)
    logits = [
        np.asarray(new_engine(load_model(find_model(model), dtype, 2).core).logits(prompt))
        for model in (path, folder)
    ]
    assert np.isfinite(logits[1]).all() and logits[1].std() > 0.01
    assert np.array_equal(*logits)


def test_the_core_refuses_rows_that_are_not_whole_blocks() -> None:
    shape = Shape(hidden_size=96)
    columns, rows = shape.hidden_size, shape.vocab_size
    builder = _core.ModelBuilder(spec_of(shape), "f32", 1)
    for dtype in (name for name in BLOCKS if STORAGE[name][0] == 256):
        part = (bytes(1 << 20), dtype, (rows, columns), None)
        with pytest.raises(WeightError, match=f"rows of {dtype.lower()} blocks of 256"):
            builder.add("embed", [part], dtype="f32")
    builder = _core.ModelBuilder(spec_of(Shape(hidden_size=512)), "f32", 1)
    for dtype in BLOCKS:
        values, size = STORAGE[dtype]
        row = 512 // values * size
        part = (bytes(rows * row - 1), dtype, (rows, 512), None)
        with pytest.raises(WeightError, match=f"expected {rows} rows of {row}"):
            builder.add("embed", [part], dtype="f32")
    with pytest.raises(InvalidArgument, match=r"'IQ1_S', expected one of f32, .*, iq3_xxs, iq3_s$"):
        builder.add("embed", [(b"", "IQ1_S", (rows, 512), None)], dtype="f32")
