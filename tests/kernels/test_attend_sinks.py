"""Attention sinks: the first tokens stay visible in addition to the window, with a separate
query.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_attend_codes import check, on

from builders.coded_cache import CodedCache
from builders.covering import pairwise
from builders.kernel_arrays import assert_bits
from builders.kernel_places import PLACES, beside_generic

WINDOW = 40
CODES = [("exact", "exact"), ("turbo4", "turbo4"), ("int8", "q4_0"), ("exact", "turbo2")]


@pytest.fixture(params=PLACES)
def places(request: pytest.FixtureRequest) -> list[str]:
    return beside_generic(request.param, "bytes")


@pairwise(codecs=CODES, sinks=[1, 4, 16], group=[1, 3])
def test_sinks(places: list[str], codecs: tuple[str, str], sinks: int, group: int) -> None:
    """From before the first token with a gap to far after it, in one call and one by one."""
    cache = CodedCache(120, *codecs, group=group, window=WINDOW, sink_tokens=sinks)
    check(places, cache, 30, 90)
    for place in places:
        whole = on(place, cache, 30, 90)
        for gap in (-2, -1, 0, 1):
            position = WINDOW + sinks + gap
            assert_bits(on(place, cache, position, 1)[0], whole[position - 30], place)


@pytest.mark.parametrize("codecs", CODES)
def test_before_the_gap_there_is_no_window(places: list[str], codecs: tuple[str, str]) -> None:
    cache = CodedCache(WINDOW + 4, *codecs, group=2, window=WINDOW, sink_tokens=4)
    everything = replace(cache, window=0, sink_tokens=0)
    tokens = WINDOW + 4
    for place in ["generic", *places]:
        assert_bits(on(place, cache, 0, tokens), on(place, everything, 0, tokens), place)


@pairwise(codecs=CODES, window=[3, 17])
def test_small_windows_beside_the_sinks(
    places: list[str], codecs: tuple[str, str], window: int
) -> None:
    """The window may begin within block 0, right after the sinks."""
    cache = CodedCache(50, *codecs, group=2, window=window, sink_tokens=4, window_blocks=1)
    check(places, cache, 0, 50)


@pytest.mark.parametrize("codecs", CODES)
def test_threads_and_cuts_change_no_bit(places: list[str], codecs: tuple[str, str]) -> None:
    cache = CodedCache(1300, *codecs, head_dim=32, group=2, window=1100, sink_tokens=4)
    for place in places:
        whole = on(place, cache, 1090, 100)
        for first, tokens, threads in ((1103, 1, 1), (1104, 1, 4), (1100, 9, 7), (1180, 1, 2)):
            part = on(place, cache, first, tokens, threads)
            assert_bits(part, whole[first - 1090 : first + tokens - 1090], place)


def test_the_query_for_the_sinks_is_turned() -> None:
    """Turned by an angle of 0, sinks are ordinary keys."""
    cache = CodedCache(90, group=2, window=WINDOW, sink_tokens=4)
    found = cache.attend(80, 1)
    still = type(
        "Still",
        (CodedCache,),
        {"angles": lambda *_: (np.ones((1, 32), np.float32), np.zeros((1, 32), np.float32))},
    )
    straight = still(90, group=2, window=WINDOW, sink_tokens=4).attend(80, 1)
    assert np.abs(found - straight).max() > 1e-3
    keys, values = (x[:, 0] for x in cache.exact)
    seen = np.r_[0:4, 41:81]
    for head, q in enumerate(cache.queries(80, 1)[0].astype(np.float64)):
        p = np.exp(keys[seen] @ q / 8)
        assert np.abs(straight[0, head] - p @ values[seen] / p.sum()).max() < 1e-5
