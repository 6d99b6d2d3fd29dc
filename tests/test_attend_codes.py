"""Attention over coded keys and values: against float64 and, bit for bit, against the generic
instruction set, whatever is coded, seen, cut and shared. On every instruction set, and by the CUDA
kernels."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from builders.coded_cache import CodedCache, attend_slices
from builders.kernel_arrays import F32, ISAS, assert_bits
from builders.kernel_places import CUDA_HOST, PLACES, need

CODECS = ("exact", "int8", "q4_0", "turbo4", "turbo3", "turbo2")
PAIRS = [pair for pair in itertools.product(CODECS, CODECS) if pair != ("exact", "exact")]
# Of the largest |value|: rounding of queries and weights to 15 bits, everything else is finer.
TOLERANCE = 4e-4


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return need(request.param)


def on(
    place: str,
    cache: CodedCache,
    first: int,
    tokens: int,
    threads: int = 1,
    q: F32 | None = None,
) -> F32:
    if place not in ISAS:
        return cache.attend(first, tokens, threads, q, device=place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONWARD_CPU_ISA", place)
        return cache.attend(first, tokens, threads, q)


def check(place: str, cache: CodedCache, first: int, tokens: int) -> None:
    found = on(place, cache, first, tokens)
    expected = cache.expected(first, tokens)
    largest = max(np.abs(cache.exact[1]).max(), np.abs(cache.decoded[1]).max())
    assert np.abs(found - expected).max() <= TOLERANCE * largest
    if place != "generic":
        assert_bits(found, on("generic", cache, first, tokens))


@pytest.mark.parametrize(("key_codec", "value_codec"), PAIRS)
def test_every_pair_of_codecs(place: str, key_codec: str, value_codec: str) -> None:
    cache = CodedCache(170, key_codec, value_codec, kv_heads=2, group=3)
    check(place, cache, 150, 20)


@pytest.mark.parametrize("group", [1, 3, 4, 7, 8])
@pytest.mark.parametrize("head_dim", [32, 36, 64, 80, 96, 128, 160, 192, 256])
def test_shapes(place: str, head_dim: int, group: int) -> None:
    for number, codec in enumerate(CODECS[1:]):
        other = CODECS[1:][(number + group) % 5]
        cache = CodedCache(100, codec, other, head_dim=head_dim, group=group, seed=number)
        check(place, cache, 97, 3)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("codecs", [("exact", "turbo4"), ("int8", "exact"), ("turbo3", "q4_0")])
def test_exact_dtypes(place: str, codecs: tuple[str, str], dtype: str) -> None:
    check(place, CodedCache(140, *codecs, dtype=dtype, group=4), 130, 10)


@pytest.mark.parametrize("window_blocks", [0, 1, 8])
@pytest.mark.parametrize("exact_first", [True, False])
@pytest.mark.parametrize("window", [0, 1, 5, 40, 100, 130])
def test_windows(place: str, window: int, exact_first: bool, window_blocks: int) -> None:
    for key_codec, value_codec in (("turbo4", "int8"), ("q4_0", "turbo3"), ("int8", "exact")):
        cache = CodedCache(
            200,
            key_codec,
            value_codec,
            group=3,
            window=window,
            exact_first=exact_first,
            window_blocks=window_blocks,
        )
        check(place, cache, 165, 35)


@pytest.mark.parametrize("last", [1, 16, 17, 32, 33, 34, 64, 65, 80])
def test_short_contexts(place: str, last: int) -> None:
    """Before anything is coded, the bits are those of a cache without codes."""
    cache = CodedCache(last, "turbo4", "turbo4", group=4)
    check(place, cache, 0, last)
    plain = min(last, 32)
    exact = replace(cache, key_codec="exact", value_codec="exact")
    assert_bits(on(place, cache, 0, plain), on(place, exact, 0, plain))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_chunks_token_by_token_and_threads_do_not_move_a_bit(place: str, codec: str) -> None:
    """Across the edges of two spans: 1,100 positions."""
    for window, kv_heads in ((0, 1), (700, 2)):
        cache = CodedCache(
            1100, codec, codec, head_dim=32, kv_heads=kv_heads, group=2, window=window
        )
        whole = on(place, cache, 1000, 100)
        for cut in ((1000, 1), (1023, 1), (1024, 1), (1039, 2), (1090, 10), (1005, 37)):
            for threads in (1, 2, 4, 7) if place in ISAS else (2,):
                part = on(place, cache, *cut, threads)
                assert_bits(part, whole[cut[0] - 1000 : sum(cut) - 1000])
        assert_bits(on(place, cache, 1000, 100, 4), whole)
    if place != "generic":
        assert_bits(whole[40:60], on("generic", cache, 1040, 20))


@pytest.mark.parametrize("device", ["cpu", CUDA_HOST])
@pytest.mark.parametrize("threads", [1, 2, 4, 7])
def test_slices_of_one_step_do_not_see_each_other(threads: int, device: str) -> None:
    need(device)
    alike = CodedCache(0, "turbo3", "int8", head_dim=96, group=4, window_blocks=1)
    slices = []
    for seed, (first, tokens) in enumerate([(600, 1), (0, 3), (40, 30), (1023, 2), (77, 1)]):
        cache = replace(alike, positions=first + tokens, seed=10 * seed)
        slices.append((cache, first, tokens, *cache.tables(first, tokens)))
    together = attend_slices(slices, threads, device=device)
    row = 0
    for cache, first, tokens, *_ in slices:
        assert_bits(together[row : row + tokens], cache.attend(first, tokens))
        row += tokens


@pytest.mark.parametrize("key_codec", CODECS)
@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_broken_query_gives_nan(place: str, key_codec: str, broken: float) -> None:
    """And no other row feels it."""
    value_codec = "turbo4" if key_codec == "exact" else key_codec
    cache = CodedCache(70, key_codec, value_codec, group=2)
    q = cache.queries(65, 4).copy()
    q[1, 1, 5] = broken
    found = on(place, cache, 65, 4, q=q)
    assert np.isnan(found[1, 1]).all()
    found[1, 1] = cache.attend(65, 4)[1, 1]
    assert_bits(found, cache.attend(65, 4))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_broken_value_gives_nan(place: str, codec: str) -> None:
    cache = CodedCache(70, codec, codec, group=2)
    cache._codes[2, 0, False][1][0, 3] = np.nan
    found = on(place, cache, 69, 1)
    # Groups have scales of their own, but the rotation back spreads them.
    assert np.isnan(found[..., :32]).all()


@pytest.mark.parametrize("codec", CODECS[1:])
def test_nothing_divides_by_zero(place: str, codec: str) -> None:
    """A query of zeros weighs all alike; values with scale 0 are zeros."""
    cache = CodedCache(80, codec, codec, group=2, exact_first=False)
    for block in range(4):
        cache._codes[block, 0, False][1][:] = 0
    q = np.zeros_like(cache.queries(79, 1))
    found = on(place, cache, 79, 1, q=q)
    expected = cache.exact[1][64:80, 0].sum(axis=0) / 80
    assert np.abs(found - expected).max() < 1e-6
