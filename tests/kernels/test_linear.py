"""Matrix products: every dtype of the weights, packed and cut into tasks as a model has them.

The generic instruction set is compared with float64, of the weights as ``repacked`` says they are
and of the inputs as they are rounded for them. Every other instruction set with source of its own
for a dtype must give the bits of generic, for any number of rows and any cut of the work.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.covering import pairwise
from builders.instruction_sets import distinct, everywhere
from builders.kernel_arrays import F32, assert_bits, kernels, normal, raw, to_bf16, widen
from onward import _core
from onward.errors import InvalidArgument

DTYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1")
GROUP = 32
TOLERANCE = 1e-6  # of the sum of |x| |w|
SHAPES = [  # outputs and k; panels of 64, 48, 32 and 16 columns, groups whole, half and odd
    (16, 16),
    (32, 48),
    (48, 100),
    (64, 1),
    (64, 576),
    (130, 77),
    (112, 608),
    (200, 1536),
]


ROWS = (1, 2, 3, 4, 5, 6, 7, 13, 16, 17, 33)
BIAS_AND_ADD = ((False, False), (True, True), (True, False), (False, True))
MADE_OF = {"f32": "floats", "f16": "floats", "bf16": "bf16"}
"""What decides which instruction sets share source for a dtype; of the others "bytes"."""


def made_of(dtype: str) -> str:
    return MADE_OF.get(dtype, "bytes")


def fast_isas(dtype: str) -> list[str]:
    return distinct(made_of(dtype))


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> str:
    return request.param


def product(isa: str, dtype: str, w: F32, x: F32, *more: F32 | None, threads: int = 1) -> F32:
    """x @ w.T with the weights packed as ``dtype``; ``more``: bias and add."""
    return kernels.linear(isa, raw(w), "f32", dtype, x, *more, threads=threads)


def groups_of(x: F32) -> F32:
    """(groups, 32): a row, filled up with zeros."""
    return np.pad(x, (0, -len(x) % GROUP)).reshape(-1, GROUP)


def as_multiplied(x: F32, dtype: str) -> NDArray[np.float64]:
    """The inputs as they are rounded for weights of that dtype."""
    if dtype in ("f32", "f16"):
        return x.astype(np.float64)
    if dtype == "bf16":
        return widen(to_bf16(x)).astype(np.float64)
    rounded = []
    for row in x:
        y, scales, _ = kernels.quantize("generic", groups_of(row).ravel())
        whole = y.reshape(-1, GROUP) * scales.astype(np.float64)[:, None]
        rounded.append(whole.ravel()[: x.shape[1]])
    return np.array(rounded)


@functools.cache
def case(n: int, k: int, rows: int) -> tuple[F32, F32, F32, F32]:
    """Weights, inputs, bias and what the product is added to."""
    return normal(1, n, k), normal(2, rows, k), normal(3, 1, n), normal(4, rows, n)


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_products(dtype: str, shape: int) -> None:
    """Every dtype with every shape and number of rows. Bias and add take turns, so that over the
    shapes each number of rows has all four choices."""
    n, k = SHAPES[shape]
    wide = _core.kernels.repacked(raw(case(n, k, 1)[0]), "f32", dtype).astype(np.float64)
    for number, rows in enumerate(ROWS if n * k < 100_000 else (1, 7, 17)):
        w, x, b, a = case(n, k, rows)
        bias, add = BIAS_AND_ADD[(number + shape) % 4]
        more = (b if bias else None, a if add else None)
        y = everywhere(
            lambda isa, w=w, x=x, more=more: product(isa, dtype, w, x, *more), made_of(dtype)
        )
        seen = as_multiplied(x, dtype)
        allowed = TOLERANCE * (np.abs(seen) @ np.abs(wide).T + 4)
        if dtype == "q4_1":  # the parts of a weight are multiplied on their own
            allowed += TOLERANCE * np.abs(seen) @ np.full(wide.T.shape, np.abs(w).max())
        expected = seen @ wide.T + bias * b + add * a
        assert (np.abs(y - expected) <= allowed).all(), (rows, bias, add)


def test_bits_do_not_depend_on_the_number_of_rows(dtype: str) -> None:
    w, x = normal(1, 80, 304), normal(2, 200, 304)
    together = everywhere(lambda isa: product(isa, dtype, w, x), made_of(dtype))
    for rows in (1, 2, 3, 4, 5, 6, 7, 16, 17, 96, 97):
        for isa in ["generic"] * (rows in (1, 7)) + fast_isas(dtype):
            for first in range(0, min(200, 7 * rows) - rows, rows):
                part = product(isa, dtype, w, x[first : first + rows])
                assert_bits(part, together[first : first + rows], isa)


@pairwise(dtype=DTYPES, n=[16, 200, 600], rows=[1, 3, 16, 17, 96, 97, 193], threads=[2, 3, 7, 64])
def test_bits_do_not_depend_on_the_tasks(dtype: str, n: int, rows: int, threads: int) -> None:
    """Columns in runs for 16 rows or less, panels times 96 rows for more."""
    w, x = normal(1, n, 272), normal(2, rows, 272)
    more = normal(3, 1, n), normal(4, rows, n)
    for isa in fast_isas(dtype) or ["generic"]:
        whole = product(isa, dtype, w, x, *more)
        assert_bits(product(isa, dtype, w, x, *more, threads=threads), whole, isa)


# --- what is not a usual number ---


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_in_an_input_stay_in_its_row(dtype: str, wrong: float) -> None:
    """Rounded to int8 an infinity has no scale: such a row is NaN throughout."""
    w, x = np.ones((80, 100), np.float32), np.ones((9, 100), np.float32)
    for column in (0, 31, 32, 99):
        broken = x.copy()
        broken[[1, 7], column] = wrong
        y = everywhere(lambda isa, x=broken: product(isa, dtype, w, x), made_of(dtype))
        if np.isinf(wrong) and dtype in ("f32", "f16", "bf16"):
            assert (y[[1, 7]] == wrong).all()
        else:
            assert np.isnan(y[[1, 7]]).all()
        others = np.delete(y, [1, 7], axis=0)
        assert_bits(others, product("generic", dtype, w, x[:7]))


@pytest.mark.parametrize("wrong", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_in_a_weight_stay_in_its_column(dtype: str, wrong: float) -> None:
    w, x = np.ones((80, 100), np.float32), np.ones((9, 100), np.float32)
    clean = product("generic", dtype, w, x)
    for k in (0, 31, 32, 99):
        broken = w.copy()
        broken[[3, 70], k] = wrong
        y = everywhere(lambda isa, w=broken: product(isa, dtype, w, x), made_of(dtype))
        if np.isinf(wrong) and dtype in ("f32", "f16", "bf16"):
            assert (y[:, [3, 70]] == wrong).all()
        else:
            assert np.isnan(y[:, [3, 70]]).all()
        others = np.delete(y, [3, 70], axis=1)
        assert_bits(others, np.delete(clean, [3, 70], axis=1))


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00])
@pytest.mark.parametrize("dtype", ["q8_0", "q4_0", "q4_1"])
def test_scales_of_a_file_that_are_nan_reach_the_output(dtype: str, bits: int) -> None:
    """Nothing hides them from the check of the logits."""
    sizes = {"q8_0": 34, "q4_0": 18, "q4_1": 20}
    blocks = np.full((80, 2 * sizes[dtype]), 0x11, np.uint8)
    blocks[5, :2] = np.array([bits], np.uint16).view(np.uint8)
    x = normal(1, 8, 64)
    y = everywhere(lambda isa: kernels.linear(isa, blocks, dtype, dtype, x), made_of(dtype))
    assert not np.isfinite(y[:, 5]).any()
    assert np.isfinite(np.delete(y, 5, axis=1)).all()


def test_bf16_counts_denormals_as_zero() -> None:
    """Weights, inputs and products around the smallest normal number, 1.2e-38."""
    rng = np.random.default_rng(5)
    w = (rng.integers(0, 1 << 16, (64, 64)) & 0x9FFF).astype(np.uint16)  # up to 2^-64
    x = widen((rng.integers(0, 1 << 16, (5, 64)) & 0x9FFF).astype(np.uint16))
    y = everywhere(lambda isa: kernels.linear(isa, raw(w), "bf16", "bf16", x), "bf16")
    tiny = np.finfo(np.float32).tiny
    assert (np.abs(y) < 1e-36).any()
    assert ((y == 0) | (np.abs(y) >= tiny)).all()
    denormal = raw(np.full((16, 16), 0x0001, np.uint16))
    twos = np.full((1, 16), 2.0, np.float32)
    zeros = everywhere(lambda isa: kernels.linear(isa, denormal, "bf16", "bf16", twos), "bf16")
    assert (zeros == 0).all()
    # The caller's own arithmetic keeps its denormals.
    assert np.float32(1e-40) * np.float32(0.5) > 0


@pytest.mark.parametrize("dtype", ["f32", "f16", "q8_0", "q4_0", "q4_1"])
def test_other_dtypes_keep_denormals(dtype: str) -> None:
    """Of outputs, bias and what is added. The mode of bf16 does not leak into them."""
    w, x = normal(1, 80, 64), normal(2, 7, 64, scale=1e-40)
    bias, add = normal(3, 1, 80, scale=1e-40), normal(4, 7, 80, scale=1e-41)

    def after_bf16(isa: str) -> F32:
        kernels.linear(isa, raw(np.ones((16, 16), np.uint16)), "bf16", "bf16", normal(1, 1, 16))
        return product(isa, dtype, w, x, bias, add)

    y = everywhere(after_bf16, made_of(dtype))
    assert (np.abs(y) > 0).all() and np.abs(y).max() < np.finfo(np.float32).tiny
    if dtype in ("q8_0", "q4_0", "q4_1"):  # inputs as small as these are zero
        assert_bits(y, np.broadcast_to(add + bias, y.shape))


def test_every_f16_weight_is_multiplied_exactly() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    halves = bits[np.isfinite(bits.view(np.float16))].reshape(-1, 16)
    one_hot = np.eye(16, dtype=np.float32)
    y = everywhere(lambda isa: kernels.linear(isa, raw(halves), "f16", "f16", one_hot))
    expected = halves.view(np.float16).astype(np.float32)
    assert (y == expected.T).all()


def test_a_bit_pattern_of_every_exponent(dtype: str) -> None:
    """Weights and inputs of all sizes, products that overflow and that vanish among them."""
    rng = np.random.default_rng(8)
    w, x = normal(1, 80, 96), normal(2, 7, 96)
    w *= (10.0 ** rng.integers(-30, 30, (80, 1))).astype(np.float32)
    x *= (10.0 ** rng.integers(-36, 36, (7, 96))).astype(np.float32)
    if dtype not in ("f32", "bf16"):
        w = normal(1, 80, 96) * (10.0 ** rng.integers(-9, 4, (80, 1))).astype(np.float32)
    everywhere(lambda isa: product(isa, dtype, w, x), made_of(dtype))


# --- the largest integers ---


def extreme_blocks(dtype: str, pattern: str, n: int, groups: int) -> NDArray[np.uint8]:
    """Rows of blocks with scale 1 (and minimum -3), all codes at the ends of their range."""
    first, second = {"low": (0, 0), "high": (1, 1), "both": (0, 1), "turned": (1, 0)}[pattern]
    if dtype == "q8_0":
        ends = np.array([-128, 127], np.int8).view(np.uint8)
        codes = np.resize(ends[[first, second]], GROUP)
    else:
        nibbles = np.array([0, 15])
        codes = np.full(GROUP // 2, nibbles[first] | nibbles[second] << 4, np.uint8)
    ones = np.array([1, -3] if dtype == "q4_1" else [1], np.float16).view(np.uint8)
    return np.tile(np.concatenate([ones, codes]).astype(np.uint8), (n, groups))


@pytest.mark.parametrize("pattern", ["low", "high", "both", "turned"])
@pytest.mark.parametrize("dtype", ["q8_0", "q4_0", "q4_1"])
def test_sums_of_the_largest_integers_are_exact(dtype: str, pattern: str) -> None:
    """Sixteen bits hold a few of these products, no float32 misses one of their sums."""
    groups = 15
    signs = np.ones((11, GROUP * groups), np.int64)
    signs[1] = -1
    signs[2, ::2] = -1
    signs[3, 1::2] = -1
    signs[4].reshape(-1, GROUP)[:, 16:] = -1
    signs[5].reshape(-1, GROUP)[:, :16] = -1
    signs[6:, :] = np.random.default_rng(1).choice([-1, 1], (5, GROUP * groups))
    x = (signs * 127).astype(np.float32)
    for n in (16, 96, 200):
        blocks = extreme_blocks(dtype, pattern, n, groups)
        wide = _core.kernels.repacked(blocks, dtype, dtype).astype(np.int64)
        limits = {"q8_0": (-128, 127), "q4_0": (-8, 7), "q4_1": (-3, 12)}[dtype]
        assert set(np.unique(wide)) <= set(limits)
        for rows in range(1, 12):
            expected = (signs[:rows] * 127) @ wide.T
            for isa in ["generic", *fast_isas(dtype)]:
                y = kernels.linear(isa, blocks, dtype, dtype, x[:rows])
                assert (y == expected).all(), isa


# --- inputs become int8 ---


def quantised(x: F32) -> tuple[NDArray[np.int8], F32, NDArray[np.int32]]:
    """The rule of csrc/cpu/kernels.h, a group after the other."""
    values, scales = [], []
    for group in groups_of(x):
        largest = np.abs(group).max()
        if not np.isfinite(group).all():
            scales.append(np.float32(np.nan))
            values.append(np.zeros(GROUP))
        elif largest < 2.0**-120:
            scales.append(np.float32(0))
            values.append(np.zeros(GROUP))
        else:
            scales.append(largest / np.float32(127))
            values.append(np.rint(group * (np.float32(127) / largest)))
    y = np.concatenate(values).astype(np.int8)
    return y, np.array(scales, np.float32), y.reshape(-1, GROUP).sum(axis=1, dtype=np.int32)


def quantise_inputs() -> dict[str, F32]:
    rng = np.random.default_rng(3)
    ties = (rng.integers(-127, 127, (8, GROUP)) + 0.5).astype(np.float32)
    ties[:, 5] = 127
    spread = normal(1, 64, GROUP) * (2.0 ** rng.integers(-125, 125, (64, 1))).astype(np.float32)
    edge = np.zeros((6, GROUP), np.float32)
    edge[:, 7] = [2.0**-120, 2.0**-121, -(2.0**-120), np.nextafter(np.float32(2.0**-120), 0), 1, 0]
    edge[:, 8] = 1e-40
    broken = normal(2, 7, GROUP)
    broken[range(6), [0, 15, 16, 31, 3, 20]] = [np.nan, np.inf, -np.inf, np.nan, -np.nan, np.inf]
    extremes = np.full((4, GROUP), np.finfo(np.float32).max, np.float32)
    extremes[1:3] *= -1
    extremes[2:, ::3] *= -1
    heavy = rng.standard_t(2, (32, GROUP)).astype(np.float32)
    return {
        **{"normal": normal(4, 1536), "half": normal(5, 16), "group and half": normal(6, 112)},
        **{"ties": ties.ravel(), "spread": spread.ravel(), "tiny": edge.ravel()},
        **{"broken": broken.ravel(), "broken half": broken[4:6].ravel()[:48]},
        **{"extremes": extremes.ravel(), "heavy": heavy.ravel()},
        "equal": np.full(GROUP, -0.3, np.float32),
    }


@pytest.mark.parametrize("kind", quantise_inputs())
def test_quantize(kind: str) -> None:
    x = quantise_inputs()[kind]
    y, scales, sums = everywhere(lambda isa: kernels.quantize(isa, x))
    expected_y, expected_scales, expected_sums = quantised(x)
    assert_bits(scales, expected_scales)
    assert (y == expected_y).all()
    assert (sums == expected_sums).all()
    if kind == "broken":
        assert np.isnan(scales[:6]).all() and np.isfinite(scales[6])


# --- mistakes ---


def test_mistakes_are_value_errors() -> None:
    w, x = raw(normal(1, 4, 32)), normal(1, 4, 32)

    def refused(message: str, *arguments: Any) -> None:
        with pytest.raises(InvalidArgument, match=message):
            kernels.linear(*arguments)

    refused("found 'sse9'", "sse9", w, "f32", "f32", x)
    refused(r"x has shape \(32\), expected \(0, 32\)", "generic", w, "f32", "f32", x[0])
    refused(r"x has shape \(4, 31\), expected \(4, 32\)", "generic", w, "f32", "f32", x[:, :31])
    refused(
        r"bias has shape \(1, 3\), expected \(1, 4\)",
        "generic",
        w,
        "f32",
        "f32",
        x,
        normal(1, 1, 3),
    )
    refused(
        r"add has shape \(4, 3\), expected \(4, 4\)",
        "generic",
        w,
        "f32",
        "f32",
        x,
        None,
        normal(1, 4, 3),
    )
    refused(r"become q4_k, expected 2 and f32, f16", "generic", w, "f32", "q4_k", x)
    refused(r"'q9'", "generic", w, "q9", "f32", x)
    with pytest.raises(InvalidArgument, match="multiple of 16"):
        kernels.quantize("generic", normal(1, 17))


@pytest.mark.parametrize("isa", ["generic", *fast_isas("q8_0")])
def test_the_rate_of_a_product_is_measured(isa: str) -> None:
    assert kernels.product_rate(isa, "q8_0", 1, 64, 0.01) > 0


def test_mistakes_in_the_rate_of_a_product() -> None:
    with pytest.raises(InvalidArgument, match=r"0 rows .*expected 1 to 4096 rows"):
        kernels.product_rate("generic", "f32", 0, 64, 0.01)
    with pytest.raises(InvalidArgument, match="unknown name 'f64'"):
        kernels.product_rate("generic", "f64", 1, 64, 0.01)
