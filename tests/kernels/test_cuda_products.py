"""Matrix products of the CUDA kernels, run on the processor: every dtype against the CPU backend.

float32 and quantised weights must give the same bits as the CPU. bf16 and f16 use tensor cores with
another order of sums. They are compared with float64, and a row must give the same bits alone and
in a batch, although few rows and many rows use different kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.kernel_arrays import F32, assert_bits, kernels, normal, raw, to_bf16, widen
from onward import _core

pytestmark = pytest.mark.skipif(
    "cuda-host" not in [name for name, _, _ in _core.devices()],
    reason="the CUDA kernels are not built for the processor",
)

DEVICE = "cuda-host"
EXACT = ("f32", "q8_0", "q4_0", "q4_1")
HALVES = ("bf16", "f16")
TOLERANCE = 1e-6  # relative to the sum of |x| |w|
SHAPES = [(16, 16), (48, 100), (130, 77), (64, 576), (200, 1568)]  # outputs and k
ROWS = (1, 7, 8, 9, 17, 33, 65, 131)  # one tile, several, few and many


def product(dtype: str, w: F32, x: F32, device: str = DEVICE, **more: Any) -> F32:
    return kernels.product_on(device, raw(w), "f32", dtype, x, **more)


def as_multiplied(x: F32, dtype: str) -> NDArray[np.float64]:
    """The inputs as they are rounded for weights of that dtype: tf32 for f16."""
    if dtype == "bf16":
        return widen(to_bf16(x)).astype(np.float64)
    rounded = (x.view(np.uint32) + 0x1000) & np.uint32(0xFFFFE000)
    return rounded.view(np.float32).astype(np.float64)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_f32_and_quantised_weights_give_the_bits_of_the_processor(
    dtype: str, n: int, k: int
) -> None:
    w, x = normal(1, n, k), normal(2, max(ROWS), k)
    expected = product(dtype, w, x, device="cpu")
    for rows in ROWS:
        assert_bits(product(dtype, w, x[:rows]), expected[:rows])


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("rows", [3, 70])
def test_operations_around_a_product_have_the_bits_of_the_processor(dtype: str, rows: int) -> None:
    n, k = 96, 200
    w, x = normal(3, n, k), normal(4, rows, k)
    around: dict[str, Any] = {"norm": 1 + normal(5, 1, k, scale=0.1), "eps": 1e-5}
    for more in (
        {"bias": normal(6, 1, n), "add": normal(7, rows, n), **around},
        {"add": normal(7, rows, n)},
        {"bias": normal(6, 2, n // 2), "gated": True, **around},
    ):
        found, expected = (product(dtype, w, x, device, **more) for device in (DEVICE, "cpu"))
        assert_bits(found, expected)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_f16_and_bf16_are_close_to_float64(dtype: str, n: int, k: int) -> None:
    w, x = normal(8, n, k), normal(9, 40, k)
    stored = _core.kernels.repacked(raw(w), "f32", dtype).astype(np.float64)
    seen = as_multiplied(x, dtype)
    exact = seen @ stored.T
    allowed = TOLERANCE * (np.abs(seen) @ np.abs(stored).T)
    assert (np.abs(product(dtype, w, x) - exact) <= allowed).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_a_row_has_the_same_bits_alone_and_among_others(dtype: str) -> None:
    n, k = 80, 1100  # three spans of k, the last of them short
    w, x = normal(10, n, k), normal(11, 130, k)
    around: dict[str, Any] = {"norm": 1 + normal(5, 1, k, scale=0.1), "eps": 1e-5}
    among = product(dtype, w, x, **around)
    for count in (1, 5, 9, 20, 33):
        assert_bits(product(dtype, w, x[:count], **around), among[:count])
    assert_bits(product(dtype, w, x[128:], **around), among[128:])


@pytest.mark.parametrize("dtype", EXACT + HALVES)
@pytest.mark.parametrize("rows", [6, 40])
def test_a_row_that_is_not_finite_does_not_affect_the_others(dtype: str, rows: int) -> None:
    w, x = normal(12, 32, 96), normal(13, rows, 96)
    whole = product(dtype, w, x)
    x[2, 5], x[4, 90] = np.nan, np.inf
    found = product(dtype, w, x)
    broken = [2, 4]
    assert not np.isfinite(found[broken]).any()
    assert_bits(np.delete(found, broken, 0), np.delete(whole, broken, 0))


@pytest.mark.parametrize("dtype", EXACT + HALVES)
def test_rows_of_an_embedding_equal_the_processor(dtype: str) -> None:
    table, ids = raw(normal(14, 50, 80)), np.array([49, 0, 7, 7, 31], np.int32)
    found, expected = (
        kernels.embed_on(device, table, "f32", dtype, ids) for device in (DEVICE, "cpu")
    )
    assert_bits(found, expected)
