"""LayerNorm, activations, soft-caps and scaled sums: every instruction set gives the same bits,
close to numpy in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.instruction_sets import everywhere
from builders.kernel_arrays import kernels

F64 = NDArray[np.float64]
X = np.linspace(-12, 12, 4096).astype(np.float32)
UP = np.random.default_rng(1).normal(0, 3, X.size).astype(np.float32)

ROUNDING = 6e-7
"""Five roundings to float32, relative to the larger of the result and 1."""


def erf(x: F64) -> F64:
    return np.vectorize(math.erf)(x)


def sigmoid(x: F64) -> F64:
    return 1 / (1 + np.exp(-x))


EXACT: dict[str, Callable[[F64], F64]] = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "quick_gelu": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("name", EXACT)
def test_activations_equal_numpy(name: str) -> None:
    y = everywhere(lambda isa: kernels.activate(isa, name, X))
    exact = EXACT[name](X.astype(np.float64))
    assert (np.abs(y - exact) <= ROUNDING * np.maximum(np.abs(exact), 1)).all()
    gated = everywhere(lambda isa: kernels.activate(isa, name, X, UP))
    assert (gated == y * UP).all()


def test_xielu() -> None:
    alpha_p, alpha_n, beta, eps = parameters = (0.8, 1.3, 0.5, -1e-6)
    found = everywhere(
        lambda isa: kernels.activate(isa, "xielu", X, parameters=np.array(parameters, np.float32))
    )
    x = X.astype(np.float64)
    negative = (np.expm1(np.minimum(x, eps)) - x) * alpha_n + beta * x
    exact = np.where(x > 0, alpha_p * x * x + beta * x, negative)
    assert (np.abs(found - exact) <= ROUNDING * np.maximum(np.abs(exact), 1)).all()


def test_a_limit_clamps_the_gate_from_above_and_the_other_input_from_both_sides() -> None:
    y = everywhere(lambda isa: kernels.activate(isa, "quick_gelu", X, UP, 7.0, 1.0))
    gate = np.minimum(X.astype(np.float64), 7)
    exact = gate * sigmoid(1.702 * gate) * (np.clip(UP.astype(np.float64), -7, 7) + 1)
    assert np.abs(y - exact).max() <= 1e-5


@pytest.mark.parametrize("name", EXACT)
def test_a_nan_stays_a_nan(name: str) -> None:
    x = np.full(16, np.nan, np.float32)
    assert np.isnan(everywhere(lambda isa: kernels.activate(isa, name, x))).all()


@pytest.mark.parametrize("n", [2, 16, 24, 31, 64, 80, 576, 2048])
@pytest.mark.parametrize("has_bias", [False, True])
def test_layer_norm(n: int, has_bias: bool) -> None:
    rng = np.random.default_rng(n)
    x = rng.normal(5, 3, n).astype(np.float32)
    weight, bias = (rng.normal(0, 1, n).astype(np.float32) for _ in range(2))
    y = everywhere(lambda isa: kernels.layer_norm(isa, x, weight, bias if has_bias else None, 1e-5))
    wide = x.astype(np.float64)
    exact = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5) * weight
    assert np.abs(y - (exact + bias if has_bias else exact)).max() <= 3e-6


def test_soft_cap() -> None:
    y = everywhere(lambda isa: kernels.soft_cap(isa, X * 10, 0.5, 30.0))
    exact = 30 * np.tanh(X.astype(np.float64) * 5 / 30)
    assert np.abs(y - exact).max() <= ROUNDING * 30
    assert (everywhere(lambda isa: kernels.soft_cap(isa, X, 0.5, 0.0)) == X / 2).all()


def test_a_hidden_score_stays_hidden() -> None:
    x = np.full(16, -np.inf, np.float32)
    assert (everywhere(lambda isa: kernels.soft_cap(isa, x, 1.0, 50.0)) == -np.inf).all()


def test_add_scaled() -> None:
    y = everywhere(lambda isa: kernels.add_scaled(isa, X, 0.22, UP))
    scale = float(np.float32(0.22))
    exact = X.astype(np.float64) * scale + UP
    assert (y == exact.astype(np.float32)).all()
