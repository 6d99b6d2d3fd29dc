"""Attention sinks: the first tokens stay visible beside the window, to a query of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders.coded_cache import CodedCache
from builders.kernel_arrays import assert_bits
from builders.kernel_places import PLACES, need
from test_attend_codes import check, on

WINDOW = 40
CODES = [("exact", "exact"), ("turbo4", "turbo4"), ("int8", "q4_0"), ("exact", "turbo2")]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return need(request.param)


@pytest.mark.parametrize("sinks", [1, 4, 16])
@pytest.mark.parametrize("codecs", CODES)
def test_sinks(place: str, codecs: tuple[str, str], sinks: int) -> None:
    """From before the first token that has a gap to far behind it, in one call and alone."""
    cache = CodedCache(120, *codecs, group=3, window=WINDOW, sink_tokens=sinks)
    check(place, cache, 30, 90)
    whole = on(place, cache, 30, 90)
    for position in (WINDOW + sinks - 2, WINDOW + sinks - 1, WINDOW + sinks, WINDOW + sinks + 1):
        check(place, cache, position, 1)
        assert_bits(on(place, cache, position, 1)[0], whole[position - 30])


@pytest.mark.parametrize("codecs", CODES)
def test_before_the_gap_there_is_no_window(place: str, codecs: tuple[str, str]) -> None:
    cache = CodedCache(WINDOW + 4, *codecs, group=2, window=WINDOW, sink_tokens=4)
    everything = replace(cache, window=0, sink_tokens=0)
    tokens = WINDOW + 4
    assert_bits(on(place, cache, 0, tokens), on(place, everything, 0, tokens))


@pytest.mark.parametrize("codecs", CODES)
@pytest.mark.parametrize("window", [3, 17])
def test_small_windows_beside_the_sinks(place: str, codecs: tuple[str, str], window: int) -> None:
    """The window may begin within block 0, right behind the sinks."""
    cache = CodedCache(50, *codecs, group=2, window=window, sink_tokens=4, window_blocks=1)
    check(place, cache, 0, 50)


@pytest.mark.parametrize("codecs", CODES)
def test_threads_and_cuts_do_not_move_a_bit(place: str, codecs: tuple[str, str]) -> None:
    cache = CodedCache(1300, *codecs, head_dim=32, group=2, window=1100, sink_tokens=4)
    whole = on(place, cache, 1090, 100)
    for cut in ((1103, 1), (1104, 1), (1100, 9), (1180, 1)):
        for threads in (1, 2, 4, 7):
            part = on(place, cache, *cut, threads)
            assert_bits(part, whole[cut[0] - 1090 : sum(cut) - 1090])


def test_the_query_for_the_sinks_is_turned() -> None:
    """By no angle at all, sinks are keys like others."""
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
