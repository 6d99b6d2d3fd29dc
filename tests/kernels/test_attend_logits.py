"""Variants of attention between scores and softmax: a soft-cap, ALiBi slopes, one more
logit for each head, chunks of positions, and values of another size than keys.

The generic instruction set is compared with float64; the others must give its bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_attend_codes import by_generic, check, on

from builders.coded_cache import CodedCache, attend_slices
from builders.covering import pairwise
from builders.instruction_sets import distinct
from builders.kernel_arrays import assert_bits, kernels
from builders.kernel_places import CUDA_HOST, need
from onward.errors import InvalidArgument

CODES = [("exact", "exact"), ("turbo4", "turbo4"), ("int8", "q4_0"), ("exact", "turbo2")]
FEATURES: dict[str, dict[str, Any]] = {
    "softcap": {"softcap": 1.5},
    "sink logits": {"has_sink_logits": True},
    "slopes": {"has_slopes": True},
    "all": {"softcap": 1.5, "has_sink_logits": True, "has_slopes": True},
}
TOLERANCE = 3e-6
"""The largest error with an exact cache, relative to the largest value."""


@pytest.fixture
def places() -> list[str]:
    return distinct("bytes") or pytest.skip("this processor runs generic only")


def check_exact(places: list[str], cache: CodedCache, first: int, tokens: int) -> None:
    check(places, cache, first, tokens)
    error = np.abs(by_generic(cache, first, tokens) - cache.expected(first, tokens)).max()
    assert error <= TOLERANCE * np.abs(cache.exact[1]).max()


@pairwise(
    codecs=CODES,
    feature=[*FEATURES],
    head_dim=[32, 36, 80],
    group=[1, 3, 8],
    window=[0, 20],
    part=[(17, 17), (100, 3), (150, 1), (150, 20)],
    dtype=["f32", "f16", "bf16"],
    kv_heads=[1, 2],
)
def test_features_shapes_and_windows(
    places: list[str],
    codecs: tuple[str, str],
    feature: str,
    head_dim: int,
    group: int,
    window: int,
    part: tuple[int, int],
    dtype: str,
    kv_heads: int,
) -> None:
    positions, tokens = part
    cache = CodedCache(
        positions,
        *codecs,
        head_dim=head_dim,
        group=group,
        window=window,
        dtype=dtype,
        kv_heads=kv_heads,
        **FEATURES[feature],
    )
    (check if cache.coded else check_exact)(places, cache, positions - tokens, tokens)


@pairwise(codecs=CODES, feature=[*FEATURES], sinks=[1, 4])
def test_a_window_with_sinks(
    places: list[str], codecs: tuple[str, str], feature: str, sinks: int
) -> None:
    """A slope counts to the first tokens from the position to which the query is turned."""
    cache = CodedCache(90, *codecs, group=3, window=40, sink_tokens=sinks, **FEATURES[feature])
    check(places, cache, 30, 60)


@pytest.mark.parametrize("codecs", CODES)
def test_threads_and_cuts_change_no_bit(places: list[str], codecs: tuple[str, str]) -> None:
    """Spans and units are computed by several threads and merged. A logit without a value counts
    once."""
    cache = CodedCache(1300, *codecs, head_dim=32, group=2, **FEATURES["all"])
    for place in ["generic", *places]:
        whole = on(place, cache, 1280, 20)
        assert_bits(whole, by_generic(cache, 1280, 20), place)
        for first, tokens, threads in ((1280, 20, 5), (1299, 1, 1), (1299, 1, 4), (1285, 9, 7)):
            part = on(place, cache, first, tokens, threads)
            assert_bits(part, whole[first - 1280 : first + tokens - 1280], place)


@pytest.mark.parametrize("codecs", CODES)
def test_sequences_of_one_step_do_not_affect_each_other(codecs: tuple[str, str]) -> None:
    caches = [
        CodedCache(n, *codecs, group=2, seed=n, chunk=48, **FEATURES["softcap"]) for n in (70, 300)
    ]
    parts = [(cache, cache.positions - 5, 5) for cache in caches]
    together = attend_slices([(*part, *part[0].tables(*part[1:])) for part in parts], threads=3)
    for i, (cache, first, tokens) in enumerate(parts):
        assert_bits(together[5 * i : 5 * i + 5], cache.attend(first, tokens), "cpu")


@pairwise(
    codecs=CODES,
    chunk=[1, 16, 24, 512, 600],
    window=[0, 30, 550],
    part=[(530, 20), (1213, 1), (1040, 17)],
)
def test_chunks(
    places: list[str], codecs: tuple[str, str], chunk: int, window: int, part: tuple[int, int]
) -> None:
    """A token sees keys of its own chunk. Blocks that it does not see are null pointers."""
    positions, tokens = part
    cache = CodedCache(positions, *codecs, head_dim=32, group=2, chunk=chunk, window=window)
    (check if cache.coded else check_exact)(places, cache, positions - tokens, tokens)


def test_the_first_token_of_a_chunk_sees_only_itself(places: list[str]) -> None:
    cache = CodedCache(65, chunk=16)
    for place in ["generic", *places]:
        found = on(place, cache, 64, 1)
        assert (found[0, 0] == cache.exact[1][64, 0].astype(np.float32)).all(), place


@pairwise(
    sizes=[(24, 16), (20, 36), (192, 128), (64, 1), (512, 512), (576, 512), (32, 200)],
    group=[1, 7],
    window=[0, 33],
    sink_tokens=[0, 4],
    dtype=["f32", "f16", "bf16"],
    part=[(50, 20), (530, 3)],
)
def test_values_of_another_size(
    places: list[str],
    sizes: tuple[int, int],
    group: int,
    window: int,
    sink_tokens: int,
    dtype: str,
    part: tuple[int, int],
) -> None:
    (positions, tokens), (head_dim, value_dim) = part, sizes
    cache = CodedCache(
        positions,
        head_dim=head_dim,
        value_dim=value_dim,
        kv_heads=2,
        group=group,
        window=window,
        sink_tokens=sink_tokens if window else 0,
        dtype=dtype,
    )
    check_exact(places, cache, positions - tokens, tokens)
    found = on(places[0], cache, positions - tokens, tokens, threads=4)
    assert_bits(found, by_generic(cache, positions - tokens, tokens), "4 threads")


class TestByHand:
    """Keys of zeros: all scores are 0. Values of ones."""

    def attend(self, positions: int, **features: Any) -> float:
        one_block = np.concatenate([np.zeros((32, 16), np.float32), np.ones((32, 16), np.float32)])
        blocks = [one_block.reshape(-1).view(np.uint8)] * -(-positions // 16)
        found = kernels.attend_layer(
            np.ones((1, 1, 32), np.float32),
            [(positions - 1, 1, blocks, [])],
            kv_heads=1,
            dtype="f32",
            key_codec="exact",
            value_codec="exact",
            layers=1,
            layer=0,
            scale=1.0,
            **features,
        )
        assert (found == found[0, 0, 0]).all()
        return float(found[0, 0, 0])

    @pytest.mark.parametrize("positions", [1, 10, 600])
    @pytest.mark.parametrize("logit", [-200.0, -1.0, 0.0, 3.0, 200.0])
    def test_a_sink_logit_takes_part_of_the_weight(self, positions: int, logit: float) -> None:
        found = self.attend(positions, sink_logits=np.array([logit], np.float32))
        share = 1 / (1 + np.exp(np.float64(logit)) / positions)
        assert found == pytest.approx(share, rel=1e-6, abs=1e-30)

    def test_a_slope_weighs_by_distance(self) -> None:
        """Slope log 2 halves the weight with each step back, and the values are all 1."""
        slope = np.array([np.log(2)], np.float32)
        sink = np.array([0.0], np.float32)
        found = self.attend(3, alibi_slopes=slope, sink_logits=sink)
        weights = 1 + 1 / 2 + 1 / 4
        assert found == pytest.approx(weights / (weights + 1), rel=1e-6)


def test_a_soft_cap_keeps_hidden_keys_hidden(places: list[str]) -> None:
    """A hidden score of minus infinity would become -softcap."""
    cache = CodedCache(33, group=2, softcap=0.01, window=3)
    for place in ["generic", *places]:
        values = cache.exact[1][30:33, 0].mean(axis=0)
        assert np.abs(on(place, cache, 32, 1)[0] - values).max() < 0.05, place


@pytest.mark.parametrize("feature", [*FEATURES])
def test_the_cuda_kernels_refuse_them(feature: str) -> None:
    cache = replace(CodedCache(20), **FEATURES[feature])
    with pytest.raises(InvalidArgument, match="device: cuda does not support"):
        cache.attend(10, 1, device=need(CUDA_HOST))
