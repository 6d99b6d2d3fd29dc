"""Weights on their way into a packed matrix: taken from a file's blocks as they are, or rounded.

``repacked`` says what the packed weights stand for; the gguf package is the other implementation.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.checkpoints import BLOCKS, random_blocks
from builders.kernel_arrays import F32, assert_bits, normal, raw, to_bf16, widen
from onward import _core
from onward.load.weights.checkpoint import STORAGE

gguf = pytest.importorskip("gguf")

GROUP = 32
BLOCK_DTYPES = ("q8_0", "q4_0", "q4_1")
# Formats of whole numbers and one f16 scale: q8_0 has the same codes.
SAME_CODES = ("iq4_xs", "iq2_xxs", "iq3_xxs", "iq3_s")  # and a scale that is a product
SAME_IN_Q8_0 = ("q3_k", "iq4_nl", "mxfp4", "tq1_0", "tq2_0")


def quantised(w: F32, dtype: str) -> NDArray[np.uint8]:
    """By the gguf package."""
    return np.asarray(gguf.quants.quantize(w, gguf.GGMLQuantizationType[dtype.upper()]))


def dequantised(blocks: NDArray[np.uint8], dtype: str) -> F32:
    return np.asarray(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[dtype.upper()]))


def rounded(w: F32, dtype: str) -> F32:
    """By the core, from float32."""
    return _core.kernels.repacked(raw(w), "f32", dtype)


def random_bytes(dtype: str, n: int, k: int) -> NDArray[np.uint8]:
    blocks = random_blocks(dtype.upper(), (n, k), np.random.default_rng(7))
    return np.frombuffer(bytearray(blocks.data), np.uint8).reshape(n, -1)


def scales_at_the_ends(dtype: str) -> NDArray[np.uint8]:
    """Zero, the smallest, and the largest f16 that no product of it overflows, of either sign."""
    blocks = random_bytes(dtype, 80, 1024)
    bits = np.array([0, 1, 0x3FF, 0x400, 0x7BFF], np.uint16)
    bits = np.concatenate([bits, bits | 0x8000])
    each = blocks.reshape(-1, STORAGE[dtype.upper()][1])
    for number, offset in enumerate(BLOCKS[dtype.upper()]):
        chosen = bits[(np.arange(len(each)) // len(bits) ** number) % len(bits)]
        each[:, offset : offset + 2] = chosen[:, None].view(np.uint8)
    return blocks


# --- blocks of a file ---


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
@pytest.mark.parametrize(("n", "k"), [(1, 32), (16, 96), (130, 576), (200, 1536)])
def test_blocks_of_the_package_are_kept(dtype: str, n: int, k: int) -> None:
    blocks = quantised(normal(1, n, k), dtype)
    assert_bits(_core.kernels.repacked(blocks, dtype, dtype), dequantised(blocks, dtype))


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_blocks_of_any_bytes_are_kept(dtype: str) -> None:
    for blocks in (random_bytes(dtype, 80, 1024), scales_at_the_ends(dtype)):
        expected = dequantised(blocks, dtype)
        assert (_core.kernels.repacked(blocks, dtype, dtype) == expected).all()
        assert len(np.unique(expected)) > 50


def test_q4_k_keeps_its_codes_in_q4_1() -> None:
    """The products that are scale and minimum of 32 weights are rounded to f16, nothing else is."""
    blocks = random_bytes("q4_k", 80, 1024)
    each = blocks.reshape(-1, STORAGE["Q4_K"][1])
    d, d_min = (each[:, at : at + 2].copy().view(np.float16).astype("f") for at in (0, 2))
    scale, minimum = (part.astype("f") for part in gguf.quants.Q4_K.get_scale_min(each[:, 4:16]))
    nibbles = each[:, 16:].reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    codes = (nibbles & 15).reshape(-1, 8, 32).astype(np.float32)
    scale, minimum = (
        (x * part).astype("e").astype("f") for x, part in ((d, scale), (d_min, minimum))
    )
    expected = scale[..., None] * codes - minimum[..., None]
    found = _core.kernels.repacked(blocks, "q4_k", "q4_1")
    assert (found == expected.reshape(found.shape)).all()
    exact = dequantised(blocks, "q4_k")
    assert (found != exact).any()
    assert np.abs(found - exact).max() < 2**-10 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("stored", "packed"),
    [
        (stored, packed)
        for stored in map(str.lower, BLOCKS)
        for packed in ("f32", "f16", "bf16", *BLOCK_DTYPES)
        if (stored, packed) != ("q4_k", "q4_1") and not (stored in SAME_CODES and packed == "q8_0")
    ],
)
def test_any_block_can_be_packed_in_any_dtype(stored: str, packed: str) -> None:
    """Where the codes are not the same, as its values in float32 would."""
    blocks = random_bytes(stored, 48, 512)
    found = _core.kernels.repacked(blocks, stored, packed)
    expected = dequantised(blocks, stored)
    if stored in SAME_IN_Q8_0 and packed == "q8_0":
        assert (found == expected).all() and len(np.unique(expected)) > 10
    else:
        assert_bits(found, expected if stored == packed else rounded(expected, packed))


def test_iq4_xs_keeps_its_codes_in_q8_0() -> None:
    """The product that is the scale of 32 weights is rounded to f16, nothing else is."""
    blocks = random_bytes("iq4_xs", 80, 1024)
    each = blocks.reshape(-1, STORAGE["IQ4_XS"][1])
    d = each[:, :2].copy().view(np.float16).astype("f")
    high = each[:, 2:4].copy().view(np.uint16) >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = (each[:, 4:8, None] >> np.array([0, 4], np.uint8)).reshape(-1, 8) & 15
    scale = (d * (low + 16.0 * high - 32).astype("f")).astype("e").astype("f")
    nibbles = (each[:, 8:].reshape(-1, 8, 1, 16) >> np.array([[0], [4]], np.uint8)) & 15
    codes = np.array(gguf.quants.IQ4_NL.kvalues, "f")[nibbles].reshape(-1, 8, 32)
    found = _core.kernels.repacked(blocks, "iq4_xs", "q8_0")
    assert (found == (scale[..., None] * codes).reshape(found.shape)).all()
    exact = dequantised(blocks, "iq4_xs")
    assert (found != exact).any()
    assert np.abs(found - exact).max() < 2**-11 * np.abs(exact).max()


@pytest.mark.parametrize("dtype", SAME_CODES)
def test_only_products_that_are_scales_are_rounded(dtype: str) -> None:
    """All 32 values of a scale change by one factor, that of rounding to f16."""
    blocks = random_bytes(dtype, 80, 1024)
    each = blocks.reshape(-1, STORAGE[dtype.upper()][1])
    each[:, :2] = np.linspace(0.01, 0.02, len(each)).astype("<f2")[:, None].view(np.uint8)
    exact = dequantised(blocks, dtype).reshape(-1, GROUP).astype(np.float64)
    found = _core.kernels.repacked(blocks, dtype, "q8_0").reshape(-1, GROUP).astype(np.float64)
    exact, found = (x[(exact != 0).all(axis=1)] for x in (exact, found))
    factors = found / exact
    assert len(factors) > 2000 and (factors != 1).any()
    assert np.abs(factors - 1).max() <= 2**-11
    assert np.ptp(factors, axis=1).max() < 2**-22


def test_scales_outside_the_range_of_f16_are_rounded_again() -> None:
    """MXFP4 has powers of two from 2^-128 to 2^127: f16 has those from 2^-24 to 2^15."""
    blocks = random_bytes("mxfp4", 256, 32)
    blocks[:, 0] = np.arange(256)
    with np.errstate(over="ignore"):
        expected = dequantised(blocks, "mxfp4")
    found = _core.kernels.repacked(blocks, "mxfp4", "q8_0")
    assert (found[104:144] == expected[104:144]).all()
    outside = [*range(104), *range(144, 253)]  # beyond 252 the largest codes overflow float32
    assert_bits(found[outside] + 0.0, rounded(expected[outside], "q8_0") + 0.0)


# --- floats become fewer bits ---


def weights_of(kind: str, n: int = 256, k: int = 1024) -> F32:
    rng = np.random.default_rng(11)
    w = {
        "normal": lambda: rng.standard_normal((n, k)),
        "small": lambda: rng.standard_normal((n, k)) * 0.02,
        "heavy tails": lambda: rng.standard_t(3, (n, k)) * 0.02,
        "outliers": lambda: rng.standard_normal((n, k)) * np.where(rng.random((n, k)) < 0.02, 8, 1),
        "uniform": lambda: rng.uniform(-1, 1, (n, k)),
        "positive": lambda: np.abs(rng.standard_normal((n, k))),
        "shifted": lambda: rng.standard_normal((n, k)) + 5,
    }[kind]()
    return w.astype(np.float32)


def squared_error(found: F32, w: F32) -> float:
    return float(((found.astype(np.float64) - w) ** 2).mean())


@pytest.mark.parametrize(
    "kind", ["normal", "small", "heavy tails", "outliers", "uniform", "positive", "shifted"]
)
@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_rounding_is_at_least_as_good_as_in_the_package(dtype: str, kind: str) -> None:
    """Their rule takes the range as it is; ours looks for the scale with the smallest error."""
    w = weights_of(kind)
    ours = squared_error(rounded(w, dtype), w)
    theirs = squared_error(dequantised(quantised(w, dtype), dtype), w)
    assert ours <= theirs * (1.001 if dtype == "q8_0" else 1)
    if kind in ("normal", "small", "heavy tails") and dtype != "q8_0":
        assert ours < 0.95 * theirs


def test_eight_bits_are_half_a_step_away() -> None:
    for kind in ("normal", "heavy tails", "outliers", "shifted"):
        w = weights_of(kind)
        groups = w.reshape(-1, GROUP)
        step = (np.abs(groups).max(axis=1) / 127).astype(np.float16).astype(np.float64)
        error = np.abs(rounded(w, "q8_0").reshape(-1, GROUP).astype(np.float64) - groups)
        assert (error <= step[:, None] * 0.5001 + 2.0**-11 * np.abs(groups) / 127).all()


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_weights_that_the_codes_can_hold_are_exact(dtype: str) -> None:
    """Weights that are codes times a scale, with the ends of the range among them."""
    rng = np.random.default_rng(12)
    low, high = {"q8_0": (-127, 127), "q4_0": (-8, 7), "q4_1": (0, 15)}[dtype]
    codes = rng.integers(low, high + 1, (64, 4, GROUP)).astype(np.float32)
    codes[:, :, 3], codes[:, :, 17] = low, high
    scale = (2.0 ** rng.integers(-12, 3, (64, 4, 1))).astype(np.float32)
    w = codes * scale
    if dtype == "q4_1":
        w -= 3 * scale
    w = w.reshape(64, -1)
    assert_bits(rounded(w, dtype) + 0.0, w + 0.0)


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_groups_of_one_value(dtype: str) -> None:
    """All zero, all the same, and one alone: as exact as an f16 scale is."""
    for value in (0.0, 1.0, -1.0, 0.3, -7e-3, 60000.0):
        w = np.full((16, 64), value, np.float32)
        assert np.abs(rounded(w, dtype) - w).max() <= abs(value) * 2.0**-10
        w[:, :31], w[:, 33:] = 0, 0
        assert np.abs(rounded(w, dtype) - w).max() <= abs(value) * 2.0**-10


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_no_scale_is_rounded_to_zero(dtype: str) -> None:
    """The smallest scale is 2^-24: errors are near half of it where half a step is less."""
    steps = {"q8_0": 127, "q4_0": 8, "q4_1": 15}[dtype]
    for size in (1e-44, 1e-30, 1e-12, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4):
        w = normal(1, 16, 64, scale=size)
        error = np.abs(rounded(w, dtype) - w).max()
        step = (2 if dtype == "q4_1" else 1) * np.abs(w).max() / steps
        assert error <= max(step, 2.0**-24) * 0.75
    w = np.full((16, 64), 2e-6, np.float32)
    assert np.abs(rounded(w, dtype) / w - 1).max() < 0.07


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_weights_beyond_the_range_are_cut_to_it(dtype: str) -> None:
    """The range check refuses them; a block alone stays finite and keeps its sign."""
    low, high = _core.kernels.weight_range(dtype)
    w = normal(1, 4, 64)
    w[1, 3] = 3e38
    found = rounded(w, dtype)
    assert np.isfinite(found).all()
    assert found[1, 3] >= high / 2
    assert 0 < low < 1e-5


@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_group_with_a_nan_is_nan(dtype: str, wrong: float) -> None:
    w = normal(1, 20, 100)
    for k in (0, 33, 99):
        broken = w.copy()
        broken[7, k] = wrong
        found = rounded(broken, dtype)
        first = k // GROUP * GROUP
        assert np.isnan(found[7, first : first + GROUP]).all()
        same = np.ones(w.shape, bool)
        same[7, first : first + GROUP] = False
        assert (found[same] == rounded(w, dtype)[same]).all()


@pytest.mark.parametrize("k", [1, 17, 31, 33, 77, 100])
@pytest.mark.parametrize("dtype", BLOCK_DTYPES)
def test_the_last_group_is_filled_with_zeros(dtype: str, k: int) -> None:
    w = normal(1, 20, k)
    padded = np.pad(w, ((0, 0), (0, -k % GROUP)))
    assert_bits(rounded(w, dtype), rounded(padded, dtype)[:, :k])


def special_floats() -> F32:
    """Every sign, exponent and end of a mantissa, ties of f16 and of its subnormals among them."""
    exponents = np.arange(256, dtype=np.uint32) << 23
    mantissas = np.array(
        [0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x2FFF, 0x3000, 0x3001, 0x7FFFFF, 0x7FF000]
        + [1 << bit for bit in range(13, 23)]
        + [(1 << bit) | 1 for bit in range(13, 23)]
        + [(1 << bit) - 1 for bit in range(13, 23)],
        np.uint32,
    )
    bits = (exponents[:, None] | mantissas).ravel()
    random = np.random.default_rng(1).integers(0, 1 << 32, 1 << 16, dtype=np.uint64)
    return np.concatenate([bits, bits | 0x80000000, random.astype(np.uint32)]).view(np.float32)


def test_float_to_f16_equals_numpy() -> None:
    x = special_floats()
    x = np.resize(x, (len(x) // 64 + 1, 64))
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16).astype(np.float32)
    assert np.isinf(expected).any() and np.isnan(expected).any()
    assert ((np.abs(expected) > 0) & (np.abs(expected) < 2.0**-14)).any()
    assert_bits(rounded(x, "f16"), expected)


def test_float_to_bf16_rounds_to_even() -> None:
    x = special_floats()
    x = np.resize(x, (len(x) // 64 + 1, 64))
    expected = np.where(np.isnan(x), x, widen(to_bf16(np.where(np.isnan(x), np.float32(0), x))))
    assert_bits(rounded(x, "bf16"), expected)


def test_sixteen_bits_are_kept_or_rounded_once() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).reshape(-1, 64)
    as_f16, as_bf16 = bits.view(np.float16).astype(np.float32), widen(bits)
    for packed in ("f32", "f16"):
        assert_bits(_core.kernels.repacked(raw(bits), "f16", packed), as_f16)
    for packed in ("f32", "bf16"):
        assert_bits(_core.kernels.repacked(raw(bits), "bf16", packed), as_bf16)
    assert_bits(_core.kernels.repacked(raw(bits), "f16", "bf16"), rounded(as_f16, "bf16"))
    assert_bits(_core.kernels.repacked(raw(bits), "bf16", "f16"), rounded(as_bf16, "f16"))
