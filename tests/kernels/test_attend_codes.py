"""Attention over coded keys and values. The generic instruction set is compared with float64; the
other instruction sets and the CUDA kernels must give the bits of generic.

The shapes, codecs and windows are a pairwise covering array, not their full product.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from builders.coded_cache import CodedCache, attend_slices
from builders.covering import pairwise
from builders.instruction_sets import ISAS
from builders.kernel_arrays import F32, assert_bits
from builders.kernel_places import CUDA_HOST, PLACES, beside_generic, need

CODECS = ("exact", "int8", "q4_0", "turbo4", "turbo3", "turbo2")
# Relative to the largest |value|. Queries and weights are rounded to 15 bits; the rest is finer.
TOLERANCE = 4e-4


@pytest.fixture(params=PLACES)
def places(request: pytest.FixtureRequest) -> list[str]:
    return beside_generic(request.param, "bytes")


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


@functools.cache
def by_generic(cache: CodedCache, first: int, tokens: int) -> F32:
    """The output of the generic instruction set, after a comparison with float64."""
    found = on("generic", cache, first, tokens)
    expected = cache.expected(first, tokens)
    values = [cache.exact[1]] + ([cache.decoded[1]] if cache.coded else [])
    largest = max(np.abs(x).max() for x in values)
    assert np.abs(found - expected).max() <= TOLERANCE * largest
    return found


def check(places: list[str], cache: CodedCache, first: int, tokens: int) -> None:
    expected = by_generic(cache, first, tokens)
    for place in places:
        assert_bits(on(place, cache, first, tokens), expected, place)


@pairwise(
    key_codec=CODECS,
    value_codec=CODECS,
    head_dim=[32, 36, 64, 80, 96, 128, 160, 192, 256],
    group=[1, 3, 4, 7, 8],
    window=[0, 1, 5, 40, 100, 130],
    part=[(100, 3), (170, 1), (170, 20), (200, 35)],
    dtype=["f32", "f16", "bf16"],
    window_blocks=[0, 1, 8],
    exact_first=[True, False],
    kv_heads=[1, 2],
)
def test_codecs_shapes_and_windows(
    places: list[str],
    key_codec: str,
    value_codec: str,
    head_dim: int,
    group: int,
    window: int,
    part: tuple[int, int],
    dtype: str,
    window_blocks: int,
    exact_first: bool,
    kv_heads: int,
) -> None:
    """Every pair of these values occurs in a row. ``part``: the positions, and the number of tokens
    at their end that attend."""
    positions, tokens = part
    cache = CodedCache(
        positions,
        key_codec,
        value_codec,
        head_dim=head_dim,
        kv_heads=kv_heads,
        group=group,
        dtype=dtype,
        window=window,
        window_blocks=window_blocks,
        exact_first=exact_first,
    )
    check(places, cache, positions - tokens, tokens)


@pytest.mark.parametrize("last", [1, 16, 17, 32, 33, 34, 64, 65, 80])
def test_short_contexts(places: list[str], last: int) -> None:
    """Before any block is coded, the bits equal a cache without codes."""
    cache = CodedCache(last, "turbo4", "turbo4", group=4)
    check(places, cache, 0, last)
    plain = min(last, 32)
    exact = replace(cache, key_codec="exact", value_codec="exact")
    assert_bits(by_generic(cache, 0, last)[:plain], by_generic(exact, 0, plain))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_chunks_single_tokens_and_threads_change_no_bit(places: list[str], codec: str) -> None:
    """Across the edges of two spans: 1,100 positions. The cuts around an edge run on several
    threads. All cuts are compared with the whole, and its last tokens with generic."""
    for window, kv_heads in ((0, 1), (700, 2)):
        cache = CodedCache(
            1100, codec, codec, head_dim=32, kv_heads=kv_heads, group=2, window=window
        )
        for place in places:
            whole = on(place, cache, 1010, 40)
            cuts = ((1010, 1, 2), (1023, 1, 4), (1024, 1, 7), (1023, 2, 1), (1039, 2, 4))
            for first, tokens, threads in (*cuts, (1012, 37, 7), (1010, 40, 4)):
                part = on(place, cache, first, tokens, threads)
                assert_bits(part, whole[first - 1010 : first + tokens - 1010], place)
            assert_bits(whole[10:20], generic_part(cache, 1020, 10), place)


@functools.cache
def generic_part(cache: CodedCache, first: int, tokens: int) -> F32:
    """Not compared with float64, which takes long for a context of this length."""
    return on("generic", cache, first, tokens)


@pytest.mark.parametrize("device", ["cpu", CUDA_HOST])
@pytest.mark.parametrize("threads", [1, 4, 7])
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
def test_a_nan_in_a_query_gives_nan_only_in_its_row(
    places: list[str], key_codec: str, broken: float
) -> None:
    """The other rows do not change."""
    value_codec = "turbo4" if key_codec == "exact" else key_codec
    cache = CodedCache(70, key_codec, value_codec, group=2)
    q = cache.queries(65, 4).copy()
    q[1, 1, 5] = broken
    whole = cache.attend(65, 4)
    for place in ["generic", *places]:
        found = on(place, cache, 65, 4, q=q)
        assert np.isnan(found[1, 1]).all()
        found[1, 1] = whole[1, 1]
        assert_bits(found, whole, place)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_nan_in_a_value_gives_nan(places: list[str], codec: str) -> None:
    cache = CodedCache(70, codec, codec, group=2)
    cache._codes[2, 0, False][1][0, 3] = np.nan
    for place in ["generic", *places]:
        found = on(place, cache, 69, 1)
        # Each group has its own scale, but the inverse rotation spreads the NaN.
        assert np.isnan(found[..., :32]).all(), place


@pytest.mark.parametrize("codec", CODECS[1:])
def test_nothing_divides_by_zero(places: list[str], codec: str) -> None:
    """A query of zeros gives all keys the same weight. Values with scale 0 are zeros."""
    cache = CodedCache(80, codec, codec, group=2, exact_first=False)
    for block in range(4):
        cache._codes[block, 0, False][1][:] = 0
    q = np.zeros_like(cache.queries(79, 1))
    expected = cache.exact[1][64:80, 0].sum(axis=0) / 80
    for place in ["generic", *places]:
        found = on(place, cache, 79, 1, q=q)
        assert np.abs(found - expected).max() < 1e-6, place
