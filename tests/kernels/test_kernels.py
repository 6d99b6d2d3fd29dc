"""The CPU inner loops except matrix products (test_linear.py).

The generic instruction set, plain loops in the documented order, is compared with float64. Every
other instruction set with source of its own must give the bits of generic, whatever keys and values
are stored as and however many tokens a call has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.covering import pairwise
from builders.instruction_sets import ISAS, distinct, everywhere
from builders.kernel_arrays import F32, assert_bits, kernels, normal, to_bf16, widen
from onward import _core
from onward.errors import InvalidArgument

# Largest error against float64, in units of what the line says.
TOLERANCE = {
    "attend": 2e-6,  # of the largest |value|
    "rms_norm": 5e-7,  # of the result
    "silu": 4e-7,  # of the result
    "exp": 1e-7,  # of the result
}


FLOAT_ISAS = ["generic", *distinct("floats")]
DTYPES = ["f32", "f16", "bf16"]


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> str:
    return request.param


def stored(x: F32, dtype: str) -> NDArray[Any]:
    """As the cache stores it."""
    return {"f32": x, "f16": x.astype(np.float16), "bf16": to_bf16(x)}[dtype]


def value(x: NDArray[Any]) -> NDArray[np.float64]:
    return (widen(x) if x.dtype == np.uint16 else x).astype(np.float64)


# --- attention ---


def attention(q, keys, values, first_position: int, window: int, scale: float):
    """(tokens, group, head_dim) in float64."""
    q, keys, values = value(q), value(keys), value(values)
    out = np.empty_like(q)
    for t in range(q.shape[0]):
        position = first_position + t
        first = max(0, position - window + 1) if window else 0
        scores = scale * q[t] @ keys[first : position + 1].T
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[t] = p @ values[first : position + 1] / p.sum(axis=1, keepdims=True)
    return out


def attend_inputs(dtype: str, positions: int, tokens: int, group: int, head_dim: int):
    """Keys and values of `positions`; queries of the last `tokens` of them."""
    q = normal(1, tokens, group, head_dim)
    keys = stored(normal(2, positions, head_dim), dtype)
    values = stored(normal(3, positions, head_dim), dtype)
    return q, keys, values


@pairwise(
    part=[(1, 1), (17, 1), (63, 5), (64, 16), (65, 2), (130, 130), (150, 16), (300, 33)],
    head_dim=[2, 4, 24, 64, 80, 128, 256, 512],
    group=[1, 2, 3, 4, 7, 16],
    window=[0, 1, 16, 63, 100, 250, 1000],
    dtype=DTYPES,
)
def test_attend(part: tuple[int, int], head_dim: int, group: int, window: int, dtype: str) -> None:
    """``part``: the positions, and the number of tokens at their end that attend."""
    positions, tokens = part
    q, keys, values = attend_inputs(dtype, positions, tokens, group, head_dim)
    first, scale = positions - tokens, head_dim**-0.5
    out = everywhere(lambda isa: kernels.attend(isa, q, keys, values, first, window, scale))
    expected = attention(q, keys, values, first, window, scale)
    assert np.abs(out - expected).max() <= TOLERANCE["attend"] * np.abs(value(values)).max()


@pairwise(window=[0, 1, 16, 75], shape=[(1, 64), (3, 64), (4, 128), (7, 24)], dtype=DTYPES)
def test_attend_gives_the_bits_of_prefill_in_decode(
    window: int, shape: tuple[int, int], dtype: str
) -> None:
    """Of the fastest instruction set; a whole prefill has the same bits on all of them."""
    positions, isa = 150, FLOAT_ISAS[-1]
    q, keys, values = attend_inputs(dtype, positions, positions, *shape)
    whole = everywhere(lambda isa: kernels.attend(isa, q, keys, values, 0, window, 0.1))
    for tokens in (1, 2, 5, 16):
        for first in range(0, positions - tokens + 1, 7 if tokens == 1 else tokens):
            last = first + tokens
            part = kernels.attend(
                isa, q[first:last], keys[:last], values[:last], first, window, 0.1
            )
            assert_bits(part, whole[first:last])


@pairwise(tokens=[1, 3, 16], last=[16, 17, 63, 64, 100], dtype=DTYPES)
def test_attend_never_sees_a_stale_key(tokens: int, last: int, dtype: str) -> None:
    """What lies beyond the last visible position, a NaN too, changes nothing."""
    q, keys, values = attend_inputs(dtype, 128, tokens, 3, 40)
    first = last - tokens
    expected = everywhere(
        lambda isa: kernels.attend(isa, q, keys[:last], values[:last], first, 0, 0.2)
    )
    assert np.isfinite(expected).all()
    for stale in (np.float32(np.nan), np.float32(np.inf), np.float32(-3e38)):
        with np.errstate(over="ignore"):
            keys[last:] = values[last:] = stored(np.array([stale]), dtype)
        found = everywhere(lambda isa: kernels.attend(isa, q, keys, values, first, 0, 0.2))
        assert_bits(found, expected)


def test_attend_with_large_scores(dtype: str) -> None:
    """Scores of 1800, far beyond where exp overflows: all weight goes to the largest."""
    keys = np.zeros((100, 64), np.float32)
    keys[:, 0] = np.linspace(-1800, 1800, 100)
    values = normal(3, 100, 64)
    q = np.zeros((2, 2, 64), np.float32)
    q[:, 0, 0], q[:, 1, 0] = 1, -1
    k, v = stored(keys, dtype), stored(values, dtype)
    out = everywhere(lambda isa: kernels.attend(isa, q, k, v, 98, 0, 1.0))
    exact = value(v).astype(np.float32)
    assert_bits(out[0, 0], exact[98])
    assert_bits(out[1, 0], exact[99])
    assert_bits(out[1, 1], exact[0])


def test_attend_of_equal_scores_is_the_mean() -> None:
    values = np.arange(96, dtype=np.float32).repeat(16).reshape(96, 16)
    zeros = np.zeros((96, 16), np.float32)
    q = np.zeros((1, 1, 16), np.float32)
    out = everywhere(lambda isa: kernels.attend(isa, q, zeros, values, 95, 0, 1.0))
    assert (out == 47.5).all()


def test_attend_passes_nan_on() -> None:
    """A broken query gives NaN, which the engine reports. No maximum hides it."""
    q, keys, values = attend_inputs("f32", 40, 2, 1, 16)
    q[0, 0, 3] = np.nan
    out = everywhere(lambda isa: kernels.attend(isa, q, keys, values, 38, 0, 1.0))
    assert np.isnan(out[0]).all() and np.isfinite(out[1]).all()


# --- rows ---


@pytest.mark.parametrize("n", [2, 16, 24, 31, 64, 80, 576, 2048])
def test_rms_norm(n: int) -> None:
    x, weight, eps = normal(1, n, scale=3.0), normal(2, n), 1e-5
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean() + eps) * weight
    y = everywhere(lambda isa: kernels.rms_norm(isa, x, weight, eps))
    assert np.abs(y / expected - 1).max() <= TOLERANCE["rms_norm"]


def test_silu() -> None:
    gate = np.concatenate([np.linspace(-87, 200, 4000), np.linspace(-1e-3, 1e-3, 96)])
    gate, up = gate.astype(np.float32), normal(1, gate.size)
    wide = gate.astype(np.float64)
    expected = wide / (1 + np.exp(-wide)) * up
    y = everywhere(lambda isa: kernels.activate(isa, "silu", gate, up))
    assert (np.abs(y - expected) <= TOLERANCE["silu"] * np.abs(expected)).all()


def test_exponential() -> None:
    """Tested through silu(-x) = -x / (1 + exp(x)), which adds two roundings to the ones of exp."""
    x = np.random.default_rng(1).uniform(17, 87, 16_000).astype(np.float32)
    y = everywhere(lambda isa: kernels.activate(isa, "silu", -x)).astype(np.float64)
    wide = x.astype(np.float64)
    found = -y / wide
    rounding = 2.0**-23  # of the sum and of the quotient
    worst = np.abs(found / (1 / (1 + np.exp(wide))) - 1).max()
    assert worst <= TOLERANCE["exp"] + rounding


def test_silu_extremes() -> None:
    gate = np.zeros(16, np.float32)
    gate[:9] = [0, 88, 3e38, np.inf, -88.8, -1000, -3e38, np.nan, 1e-40]
    y = everywhere(lambda isa: kernels.activate(isa, "silu", gate))
    assert (y[:4] == gate[:4]).all()
    assert (y[4:7] == 0).all()
    assert np.isnan(y[7])
    assert y[8] == np.float32(1e-40) / 2


def test_round_bf16() -> None:
    x = np.random.default_rng(1).integers(0, 1 << 32, 1 << 16, dtype=np.uint64)
    x = x.astype(np.uint32).view(np.float32)
    x = np.where(np.isnan(x), np.float32(1), x)
    assert_bits(everywhere(lambda isa: kernels.round_bf16(isa, x)), to_bf16(x))
    special = {
        0x3F800000: 0x3F80,  # 1
        0x3F808000: 0x3F80,  # a tie goes to even: down
        0x3F818000: 0x3F82,  # up
        0x3F808001: 0x3F81,  # above a tie
        0x7F7FFFFF: 0x7F80,  # the largest float becomes infinite
        0x7F800000: 0x7F80,
        0xFF800000: 0xFF80,
        0x7F800001: 0x7FC0,  # a NaN whose upper bits alone would be an infinity
        0xFFC12345: 0xFFC1,
        0x80000000: 0x8000,
        0x00000001: 0x0000,
        0x00018000: 0x0002,  # denormals round as well
    }
    bits = np.array([*special, *[0] * 4], np.uint32)
    found = everywhere(lambda isa: kernels.round_bf16(isa, bits.view(np.float32)))
    assert [hex(b) for b in found[: len(special)]] == [hex(b) for b in special.values()]


# --- scans of a row of logits ---

SCAN_SIZES = [1, 15, 16, 17, 63, 64, 65, 1000, 5003]


def scores_of(n: int) -> dict[str, F32]:
    """Rows below 0 of every kind: spread, with ties, with bans, with the extremes of float32."""
    spread = -np.abs(normal(n, n, scale=20.0))
    banned = np.where(normal(n + 1, n) > 0, spread, np.float32(-np.inf)).astype(np.float32)
    extreme = np.resize(np.array([0, -3e38, -87.3, -87.4, -1e-40, -104], np.float32), n)
    return {"spread": spread, "ties": np.round(spread), "banned": banned, "extreme": extreme}


@pytest.mark.parametrize("n", SCAN_SIZES)
def test_scans_agree_with_float64(n: int) -> None:
    """``everywhere`` compares bits, so the sign of a zero too."""
    weight = normal(2, n)
    wide = weight.astype(np.float64)
    for name, x in scores_of(n).items():
        assert everywhere(lambda isa, x=x: kernels.largest(isa, x)) == x.max()

        y, smallest = everywhere(lambda isa, x=x: kernels.rescale(isa, x, 0.3, 1 / 0.7))
        with np.errstate(over="ignore"):  # beyond float32: -infinity
            expected = ((x.astype(np.float64) - 0.3) * (1 / 0.7)).astype(np.float32)
        assert_bits(y, expected)
        assert_bits(np.float64(smallest), np.float64(expected.min()))

        y, total = everywhere(lambda isa, x=x: kernels.exponentials(isa, x))
        exact = np.where(x < -87.3, 0, np.exp(x.astype(np.float64)))
        assert (np.abs(y - exact) <= TOLERANCE["exp"] * exact).all()
        assert total == pytest.approx(y.astype(np.float64).sum(), rel=1e-14)

        least = float(np.median(x))
        total = everywhere(
            lambda isa, x=x, least=least: kernels.sum_at_least(isa, x, weight, least)
        )
        assert total == pytest.approx(wide[x >= least].sum(), abs=1e-11)

        if name != "banned":
            product = everywhere(lambda isa, x=x: kernels.dot(isa, x, weight))
            allowed = 1e-14 * np.abs(x * wide).sum()
            assert abs(product - (x.astype(np.float64) * wide).sum()) <= allowed


@pytest.mark.parametrize("n", SCAN_SIZES)
@pytest.mark.parametrize("own_ids", [False, True])
def test_gather_range(n: int, own_ids: bool) -> None:
    """The binding runs it in place as well, and compares."""
    value = normal(2, n)
    ids = np.arange(n, dtype=np.int32) * 7 + 5 if own_ids else None
    for x in scores_of(n).values():
        low, high = np.quantile(np.maximum(x, -3e38), [0.3, 0.8]).astype(np.float32)
        for bounds in ((low, high), (low, np.inf), (-np.inf, high), (-np.inf, np.inf), (1, 2)):
            [places] = np.nonzero((bounds[0] <= x) & (x < bounds[1]))
            for isa in FLOAT_ISAS:
                values, found = kernels.gather_range(isa, x, *map(float, bounds), value, ids)
                assert_bits(values, value[places], isa)
                assert (found == (places if ids is None else ids[places])).all(), isa


@pytest.mark.parametrize("n", SCAN_SIZES)
def test_all_finite_finds_one_of_any_kind_anywhere(n: int) -> None:
    x = normal(1, n)
    x[:6] = np.array([3e38, -3e38, 0, -0.0, 1e-45, 1], np.float32)[:n]
    for isa in FLOAT_ISAS:
        assert kernels.all_finite(isa, x)
        for place in {*range(0, n, 37), n - 1}:
            for wrong in (np.inf, -np.inf, np.nan):
                broken = x.copy()
                broken[place] = wrong
                assert not kernels.all_finite(isa, broken), isa


# --- choice, probes, mistakes ---


def test_the_best_instruction_set_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONWARD_CPU_ISA", raising=False)
    assert _core.kernels.selected() == ISAS[-1]
    for name in ISAS:
        monkeypatch.setenv("ONWARD_CPU_ISA", name)
        assert _core.kernels.selected() == name


def test_an_instruction_set_that_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONWARD_CPU_ISA", "sse9")
    with pytest.raises(InvalidArgument, match=r"ONWARD_CPU_ISA: .*'sse9', expected one of generic"):
        _core.kernels.selected()
    absent = next(name for name in ("neon", "avx512bf16") if name not in ISAS)
    monkeypatch.setenv("ONWARD_CPU_ISA", absent)
    with pytest.raises(InvalidArgument, match=f"processor cannot run it, found '{absent}'"):
        _core.kernels.selected()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["read", "f32", "bf16", "int8"])
def test_probes_measure_something(isa: str, kind: str) -> None:
    assert _core.kernels.probe(isa, kind, 0.01, 2) > 0


def test_mistakes_are_value_errors() -> None:
    x = normal(1, 4, 32)
    with pytest.raises(ValueError, match="found 'sse9'"):
        kernels.rms_norm("sse9", x[0], x[0], 1e-5)
    with pytest.raises(ValueError, match="values are strided or of another dtype than the keys"):
        kernels.attend("generic", normal(1, 2, 1, 32), x, x.astype(np.float16), 0, 0, 1.0)
    with pytest.raises(ValueError, match="keys have dtype float64, expected float32, float16, or"):
        wide = x.astype(np.float64)
        kernels.attend("generic", normal(1, 2, 1, 32), wide, wide, 0, 0, 1.0)
    with pytest.raises(ValueError, match="first_position is 3"):
        kernels.attend("generic", normal(1, 2, 1, 32), x, x, 3, 0, 1.0)
    with pytest.raises(ValueError, match="values has shape"):
        kernels.attend("generic", normal(1, 2, 1, 32), x, x[:3].copy(), 0, 0, 1.0)
    with pytest.raises(ValueError, match="multiple of 16"):
        kernels.round_bf16("generic", normal(1, 17))
    with pytest.raises(ValueError, match=r"value has shape \(3\), expected \(4\)"):
        kernels.sum_at_least("generic", normal(1, 4), normal(1, 3), 0.0)
    with pytest.raises(ValueError, match="unknown probe"):
        _core.kernels.probe("generic", "write", 0.1, 1)
    with pytest.raises(ValueError, match="1 to 1024 threads"):
        _core.kernels.probe("generic", "read", 0.1, 0)
