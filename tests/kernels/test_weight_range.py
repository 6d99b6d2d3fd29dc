"""Weights that a dtype cannot hold: exact to the format, or an error that names the tensor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onward
from builders.checkpoints import (
    BLOCKS,
    TINY,
    TINY_GGUF,
    gguf_bytes,
    random_blocks,
    random_weights,
    stored,
    tiny_gguf_tensors,
    write_folder,
)
from closed_form import base_config, chain, table_tensors
from closed_form import write_folder as write_model
from onward._core import kernels
from onward.errors import WeightError
from onward.load.hub import find_model
from onward.load.loading import load_model
from onward.load.packing import pack_model
from onward.load.weights import open_checkpoint
from onward.load.weights.checkpoint import STORAGE
from onward.load.weights.finite import is_finite

OpenLLM = Callable[..., Any]
VOCAB = 64
SAID = [3, 9, 40, 2]
STEPS = {1: 3, 3: 9, 9: 40, 40: 2}
HEAD, EMBED = "lm_head.weight", "model.embed_tokens.weight"
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
NORM = "model.norm.weight"


def write_scaled(folder: Path, **scales: float) -> Path:
    """The model that says 3, 9, 40 after 1, its head or embedding times a factor: greedy decoding
    does not depend on it."""
    config = base_config(vocab_size=VOCAB, hidden_size=VOCAB, intermediate_size=VOCAB)
    tensors = table_tensors(config, chain(VOCAB, STEPS) / 100)  # values 0 and -1
    for name, scale in scales.items():
        tensors[{"head": HEAD, "embed": EMBED}[name]] *= np.float32(scale)
    return write_model(folder, config, tensors)


def says(llm: Any) -> list[int]:
    return list(llm.generate([1], max_new_tokens=8).token_ids)


class TestSmall:
    @pytest.mark.parametrize("dtype", ["f32", "bf16", "int4"])
    @pytest.mark.parametrize("part", ["head", "embed"])
    def test_the_right_token(
        self, tmp_path: Path, open_llm: OpenLLM, part: str, dtype: str
    ) -> None:
        folder = write_scaled(tmp_path / "m", **{part: 2e-6})
        assert says(open_llm(folder, dtype=dtype, head_dtype=dtype)) == SAID

    @pytest.mark.parametrize(("part", "tensor"), [("head", HEAD), ("embed", EMBED)])
    @pytest.mark.parametrize("dtype", ["f16", "int8", "int4"])
    def test_small_weights_are_refused_with_the_tensor_and_the_next_step(
        self, tmp_path: Path, part: str, tensor: str, dtype: str
    ) -> None:
        """int4 has an int8 head by default."""
        folder = write_scaled(tmp_path / "m", **{part: 2e-6})
        with pytest.raises(
            WeightError,
            match=rf"^model\.safetensors: tensor {tensor} has no value above 2e-06, expected one "
            r"of at least 7\.57e-06 for \w+; load the model with dtype='bf16' or dtype='f32'",
        ):
            onward.LLM(folder, dtype=dtype)

    @pytest.mark.parametrize("dtype", ["f16", "int8", "int4"])
    def test_weights_just_within_the_range_are_accepted(
        self, tmp_path: Path, open_llm: OpenLLM, dtype: str
    ) -> None:
        folder = write_scaled(tmp_path / "m", head=7.6e-6)
        assert says(open_llm(folder, dtype=dtype)) == SAID

    @pytest.mark.parametrize("dtype", ["f16", "int8", "int4"])
    def test_small_rows_with_normal_rows_keep_their_direction(
        self, tmp_path: Path, open_llm: OpenLLM, dtype: str
    ) -> None:
        config = base_config(vocab_size=VOCAB, hidden_size=VOCAB, intermediate_size=VOCAB)
        tensors = table_tensors(config, chain(VOCAB, STEPS) / 100)
        tensors[EMBED][[3, 9]] *= np.float32(2e-6)
        folder = write_model(tmp_path / "m", config, tensors)
        assert says(open_llm(folder, dtype=dtype)) == SAID


class TestLarge:
    @pytest.mark.parametrize(
        ("dtype", "scale", "limit"),
        [("f16", 65521, 65504), ("int8", 8.4e6, 8319008), ("int4", 5.3e5, 524032)],
    )
    def test_weights_just_above_the_limit_are_refused(
        self, tmp_path: Path, open_llm: OpenLLM, dtype: str, scale: float, limit: float
    ) -> None:
        folder = write_scaled(tmp_path / "m", head=scale)
        with pytest.raises(WeightError, match=rf"tensor {HEAD} has values up to .*at most"):
            onward.LLM(folder, dtype=dtype, head_dtype=dtype)
        assert kernels.weight_range({"int8": "q8_0", "int4": "q4_0"}.get(dtype, dtype))[1] == limit
        for held in (dtype, "f32", "bf16"):
            scaled = write_scaled(tmp_path / held, head=limit * 0.99)
            assert says(open_llm(scaled, dtype=held, head_dtype=held)) == SAID

    @pytest.mark.parametrize("dtype", ["f32", "bf16"])
    def test_a_hundred_million(self, tmp_path: Path, open_llm: OpenLLM, dtype: str) -> None:
        assert says(open_llm(write_scaled(tmp_path / "m", head=1e8), dtype=dtype)) == SAID

    def test_four_bits_with_a_minimum(self) -> None:
        assert kernels.weight_range("q4_1")[1] == 65504
        assert kernels.weight_range("f32") == (0, np.inf)


@pytest.mark.parametrize(("factor", "found"), [(1e8, "has values up to"), (1e-9, "has no value")])
@pytest.mark.parametrize("dtype", ["f16", "int8", "int4"])
def test_a_gguf_file(tmp_path: Path, dtype: str, factor: float, found: str) -> None:
    """The second of three parts of one product is named, as in the file."""
    tensors = tiny_gguf_tensors()
    key = "blk.1.attn_k.weight"
    array = np.frombuffer(tensors[key].data, "<f4").reshape(tensors[key].shape)
    tensors[key] = stored(array * np.float32(factor))
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(TINY_GGUF, tensors))
    with pytest.raises(WeightError, match=rf"m\.gguf: tensor blk\.1\.attn_k\.weight {found}"):
        load_model(find_model(path), dtype, 1)
    load_model(find_model(path), "f32", 1)


def write_one(folder: Path, tensor: str, value: float) -> Path:
    """A random model; the last value of one tensor is replaced."""
    weights = random_weights(TINY)
    weights[tensor].reshape(-1)[-1] = value
    return write_folder(folder, weights=weights)


@pytest.mark.parametrize("dtype", BLOCKS)
def test_each_scale_of_a_block_counts(dtype: str) -> None:
    """The answer is that of the values which the core reads."""
    size = STORAGE[dtype][1]
    good = random_blocks(dtype, (1, 4 * STORAGE[dtype][0]), np.random.default_rng(0)).data
    cases = [good]
    for at in [size * 2 + offset for offset in BLOCKS[dtype]]:
        cases += [good[:at] + half + good[at + 2 :] for half in (b"\x00\x7c", b"\x01\xfe")]
    if dtype == "MXFP4":
        at = 2 * size
        cases += [good[:at] + bytes([e]) + good[at + 1 :] for e in range(250, 256)]
    for data in cases:
        raw = np.frombuffer(data, np.uint8)
        values = kernels.repacked(raw[None], dtype.lower(), "f32")
        assert is_finite(raw, dtype) == bool(np.isfinite(values).all())
        assert is_finite(raw, dtype) or data is not good


class TestPack:
    @pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "int8", "int4"])
    @pytest.mark.parametrize("tensor", [EMBED, Q_PROJ, NORM])
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_values_that_are_not_finite(
        self, tmp_path: Path, dtype: str, tensor: str, value: float
    ) -> None:
        folder = write_one(tmp_path / "m", tensor, value)
        with pytest.raises(
            WeightError, match=rf"^model\.safetensors: tensor {tensor} .*not finite"
        ):
            pack_model(folder, tmp_path / "m.onward", dtype=dtype, threads=1)
        assert [path.name for path in tmp_path.iterdir()] == ["m"]

    @pytest.mark.parametrize("stored_as", ["F16", "BF16", "Q8_0", "Q4_0"])
    def test_of_a_gguf_file_in_its_own_dtype(self, tmp_path: Path, stored_as: str) -> None:
        """The last two bytes of a float, or the scale of the last block."""
        tensors = tiny_gguf_tensors()
        key = "blk.1.attn_q.weight"
        generator = np.random.default_rng(0)
        if STORAGE[stored_as][0] == 1:
            good = stored(generator.standard_normal(tensors[key].shape, np.float32), stored_as)
        else:
            good = random_blocks(stored_as, tensors[key].shape, generator)
        data = bytearray(good.data)
        at = len(data) - STORAGE[stored_as][1]
        data[at : at + 2] = b"\x80\x7f" if stored_as == "BF16" else b"\x00\x7c"  # infinity
        path = tmp_path / "m.gguf"
        for content in (good.data, bytes(data)):
            tensors[key] = good._replace(data=content)
            path.write_bytes(gguf_bytes(TINY_GGUF, tensors))
            if content == good.data:
                pack_model(path, tmp_path / "m.onward", dtype="auto", threads=1)
        name = r"blk\.1\.attn_q\.weight"
        with pytest.raises(WeightError, match=rf"^m\.gguf: tensor {name} .*not finite"):
            pack_model(path, tmp_path / "bad.onward", dtype="auto", threads=1)
        assert not (tmp_path / "bad.onward").exists()


class TestQuantize:
    @pytest.mark.parametrize("format_", ["int8", "int4", "int4-min"])
    @pytest.mark.parametrize("tensor", [EMBED, Q_PROJ])
    @pytest.mark.parametrize(
        ("value", "found"),
        [(1e8, "has values up to 1e"), (1e-9, "has no value above"), (np.nan, "not finite")],
    )
    def test_nothing_is_written(
        self, tmp_path: Path, format_: str, tensor: str, value: float, found: str
    ) -> None:
        weights = random_weights(TINY)
        weights[tensor][:] = value
        folder = write_folder(tmp_path / "m", weights=weights)
        with pytest.raises(WeightError, match=rf"tensor {tensor} .*{found}"):
            onward.quantize(folder, tmp_path / "out", format=format_, head=format_, method="round")
        assert [path.name for path in tmp_path.iterdir()] == ["m"]

    @pytest.mark.parametrize("tensor", [EMBED, NORM])
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_of_tensors_that_it_copies(self, tmp_path: Path, tensor: str, value: float) -> None:
        folder = write_one(tmp_path / "m", tensor, value)
        with pytest.raises(
            WeightError, match=rf"^model\.safetensors: tensor {tensor} .*not finite"
        ):
            onward.quantize(folder, tmp_path / "out", head="keep", method="round")
        assert [path.name for path in tmp_path.iterdir()] == ["m"]

    @pytest.mark.parametrize("format_", ["int8", "int4", "int4-min"])
    def test_small_weights_are_not_zeroed(self, tmp_path: Path, format_: str) -> None:
        weights = random_weights(TINY)
        weights[EMBED][3] *= np.float32(1e-6)
        weights[EMBED][4] *= np.float32(1e-7)
        folder = write_folder(tmp_path / "m", weights=weights)
        onward.quantize(folder, tmp_path / "out", format=format_, head=format_, method="round")
        checkpoint = open_checkpoint(find_model(tmp_path / "out"))
        tensor = checkpoint.tensor(EMBED)
        raw = np.frombuffer(tensor.buffer, np.uint8).reshape(tensor.shape[0], -1)
        written = kernels.repacked(raw, tensor.dtype.lower(), "f32")
        assert (
            np.abs(written[3] - weights[EMBED][3]).max() <= 0.11 * np.abs(weights[EMBED][3]).max()
        )
        assert np.abs(written[4] - weights[EMBED][4]).max() <= 2.0**-24
        assert written[4].any()
