"""Offline quantisation: blocks compared with the gguf package, GPTQ compared with rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from builders.checkpoints import random_blocks, stored
from builders.core_engine import Shape, ids, random_prompt, seeded_model
from onward import _core
from onward.errors import InvalidArgument
from onward.load.weights import Tensor
from onward.load.weights.checkpoint import STORAGE
from onward.quantization.block_formats import (
    FORMATS,
    decoded,
    rounded_plainly,
    rows_of,
    values_of,
)
from onward.quantization.gptq import output_error, quantised

gguf = pytest.importorskip("gguf")


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def correlated(tokens: int, columns: int) -> np.ndarray:
    """Inputs with correlated columns of different magnitudes."""
    mixing = noise(columns, columns, seed=1) * np.exp(noise(columns, seed=2))
    return 0.3 * noise(tokens, columns, seed=3) @ mixing + noise(tokens, columns, seed=4)


def moment_of(x: np.ndarray) -> np.ndarray:
    return x.T.astype(np.float64) @ x


class TestBlocks:
    @pytest.mark.parametrize("name", FORMATS)
    def test_plain_rounding_gives_the_bytes_of_the_gguf_package(self, name: str) -> None:
        """Ties, zeros, and values of one sign among them."""
        values = noise(64, 96)
        values[0] = 0
        values[1] = np.abs(values[1])
        values[2] = -np.abs(values[2])
        values[3] = np.round(values[3] * 2) / 2
        values[4, 32:64] = 3.0
        kind = gguf.GGMLQuantizationType[FORMATS[name].dtype]
        expected = gguf.quants.quantize(values, kind)
        blocks = rounded_plainly(values, FORMATS[name])
        assert np.array_equal(blocks.to_bytes(), expected)
        assert np.array_equal(blocks.values(), gguf.quants.dequantize(expected, kind))

    @pytest.mark.parametrize("name", FORMATS)
    def test_bytes_come_back_as_the_same_values(self, name: str) -> None:
        blocks = rounded_plainly(noise(5, 64), FORMATS[name])
        raw = blocks.to_bytes().reshape(-1)
        assert np.array_equal(decoded(raw, FORMATS[name].dtype, (5, 64)), blocks.values())
        assert np.array_equal(values_of(blocks.to_tensor()), blocks.values())

    @pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
    def test_stored_values_are_read(self, dtype: str) -> None:
        values = np.array([[1.5, -0.25, 3.0]], np.float32)
        raw = np.frombuffer(stored(values, dtype).data, np.uint8)
        assert np.array_equal(decoded(raw, dtype, (1, 3)), values)

    @pytest.mark.parametrize("dtype", STORAGE)
    def test_every_stored_dtype_is_read_as_the_package_reads_it(self, dtype: str) -> None:
        """In the order of rows of the file, all rows or some of them."""
        if STORAGE[dtype][0] == 1:
            data = stored(noise(6, 512), dtype).data
        else:
            data = random_blocks(dtype, (6, 512), np.random.default_rng(5)).data
        raw = np.frombuffer(data, np.uint8).reshape(6, -1)
        expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[dtype])
        tensor = Tensor(memoryview(data), dtype, (6, 512))
        assert np.array_equal(values_of(tensor), expected)
        some = np.array([4, 0, 4], np.int32)
        assert np.array_equal(rows_of(tensor, some), expected[some])


class TestGptq:
    @pytest.mark.parametrize("name", FORMATS)
    def test_outputs_are_closer_than_by_rounding(self, name: str) -> None:
        weights, moment = noise(48, 128), moment_of(correlated(512, 128))
        plain = rounded_plainly(weights, FORMATS[name]).values() - weights
        calibrated = quantised(weights, moment, FORMATS[name]).values() - weights
        assert output_error(calibrated, weights, moment) < 0.7 * output_error(
            plain, weights, moment
        )

    def test_the_reported_error_is_the_error_of_the_outputs(self) -> None:
        weights, x = noise(16, 64), correlated(256, 64)
        difference = rounded_plainly(weights, FORMATS["int4"]).values() - weights
        expected = np.linalg.norm(x @ difference.T) / np.linalg.norm(x @ weights.T)
        assert output_error(difference, weights, moment_of(x)) == pytest.approx(expected, rel=1e-3)

    @pytest.mark.parametrize("name", FORMATS)
    def test_uncorrelated_inputs_are_no_worse_than_rounding(self, name: str) -> None:
        weights, moment = noise(16, 64), np.eye(64)
        plain = rounded_plainly(weights, FORMATS[name]).values() - weights
        calibrated = quantised(weights, moment, FORMATS[name]).values() - weights
        assert np.linalg.norm(calibrated) <= np.linalg.norm(plain)

    @pytest.mark.parametrize("name", FORMATS)
    def test_columns_without_inputs(self, name: str) -> None:
        """Few tokens, a column that is always 0, or no inputs."""
        weights, x = noise(16, 64), correlated(8, 64)
        x[:, 5] = 0
        for moment in (moment_of(x), np.zeros((64, 64))):
            values = quantised(weights, moment, FORMATS[name]).values()
            assert np.isfinite(values).all()
            assert np.abs(values - weights).max() < 2

    def test_more_damping_where_rounding_leaves_a_moment_indefinite(self) -> None:
        weights, x = noise(16, 64), noise(1, 64, seed=6)
        moment = moment_of(x) - 0.05 * np.eye(64)
        with pytest.raises(np.linalg.LinAlgError):
            np.linalg.cholesky(moment + 0.01 * np.diag(moment).mean() * np.eye(64))
        values = quantised(weights, moment, FORMATS["int8"]).values()
        assert np.abs(values - weights).max() < 2
        with pytest.raises(np.linalg.LinAlgError):
            quantised(weights, 1e6 * (np.eye(64) - np.ones((64, 64))), FORMATS["int8"])

    @pytest.mark.parametrize("name", FORMATS)
    def test_weights_that_the_format_can_hold_are_kept(self, name: str) -> None:
        weights = rounded_plainly(np.full((4, 64), 0.5, np.float32), FORMATS[name]).values()
        weights[:2] = 0
        values = quantised(weights, moment_of(correlated(128, 64)), FORMATS[name]).values()
        assert values == pytest.approx(weights, abs=2e-3)


class TestObserving:
    def test_names_and_shapes_in_order(self) -> None:
        shape = Shape()
        seen: list[tuple[str, tuple[int, ...], bool]] = []

        def look(name: str, x: np.ndarray, residual: np.ndarray | None) -> None:
            assert residual is None or residual.shape == (7, 96)
            seen.append((name, x.shape, residual is not None))

        _core.observe_inputs(seeded_model("f32"), random_prompt(7), look, 2)
        heads = shape.num_heads * shape.head_dim
        expected = [("qkv", 96, False), ("o", heads, True)]
        expected += [("gate_up", 96, False), ("down", 136, True)]
        assert seen == [
            (f"layers.{layer}.{name}", (7, width), adds)
            for layer in range(3)
            for name, width, adds in expected
        ]

    def test_observed_rows_equal_the_network(self) -> None:
        """Rows depend only on earlier tokens, and the input of the gate is the norm of the
        stream."""
        model = seeded_model("f32")
        prompt = random_prompt(5)
        runs: list[dict[str, tuple[Any, Any]]] = [{}, {}]
        for run, count in zip(runs, (5, 3), strict=True):

            def look(name: str, x: Any, residual: Any, run: Any = run) -> None:
                run[name] = x, residual

            _core.observe_inputs(model, prompt[:count], look, 1)
        for name, (x, residual) in runs[0].items():
            assert np.array_equal(x[:3], runs[1][name][0]), name
            if residual is not None:
                assert np.array_equal(residual[:3], runs[1][name][1]), name
        residual, met = runs[0]["layers.0.o"][1], runs[0]["layers.0.gate_up"][0]
        weight = met / (residual / np.sqrt((residual**2).mean(axis=1, keepdims=True) + 1e-5))
        assert np.allclose(weight, weight[0], rtol=1e-3)

    def test_an_error_of_the_callback_ends_it(self) -> None:
        class Odd(Exception):
            pass

        def refuse(*seen: object) -> None:
            raise Odd

        model = seeded_model("f32")
        for _ in range(2):
            with pytest.raises(Odd):
                _core.observe_inputs(model, random_prompt(4), refuse, 2)

    @pytest.mark.parametrize("prompt", [[], [300], [-1], [[1, 2]]])
    def test_bad_ids(self, prompt: Any) -> None:
        with pytest.raises(InvalidArgument, match="token_ids: "):
            _core.observe_inputs(seeded_model("f32"), ids(prompt), lambda *seen: None, 1)
