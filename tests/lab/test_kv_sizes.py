"""Bytes of vectors, blocks and sequences, compared with hand calculations and a count of blocks.

Llama 3.1 8B: 32 layers, 32 query heads on 8 kv heads of 128.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onward
from onward import kv_cache_bytes
from onward.errors import InvalidArgument
from onward.lab.bench.synthetic import synthetic_spec
from onward.lab.counts.amounts import amount, read_amount
from onward.lab.counts.policy import Policy, usual_contexts
from onward.lab.counts.sequences import (
    Blocks,
    blocks_held,
    longest_sequence,
    sequence_bytes,
    sequences_that_fit,
    step_bytes,
)
from onward.lab.counts.vectors import (
    exact_token_bytes,
    pair_bytes,
    token_bytes,
    vector_bytes,
)
from onward.options.kv_dtypes import KV_DTYPES, KvDtypes, parse_kv_dtype
from onward.spec import DecoderSpec

KIB, MIB, GIB = 2**10, 2**20, 2**30
LLAMA_8B = synthetic_spec("llama-3.1-8b")
USUAL = Policy()


class TestVectors:
    @pytest.mark.parametrize(
        ("dtype", "expected"),
        [
            *(("f32", 512), ("f16", 256), ("bf16", 256)),
            ("int8", 128 + 2),
            ("q4_0", 64 + 4 * 2),
            ("turbo4", 64 + 2),
            ("turbo3", 48 + 2),
            ("turbo2", 32 + 2),
        ],
    )
    def test_a_head_of_128(self, dtype: str, expected: int) -> None:
        assert vector_bytes(dtype, 128, "keys") == vector_bytes(dtype, 128, "values") == expected

    @pytest.mark.parametrize(
        ("dtype", "keys", "values"),
        [
            ("f16", 2 * 40, 2 * 48),  # values are padded to 16 numbers, keys are not
            ("f32", 4 * 40, 4 * 48),
            ("int8", 64 + 2, 64 + 2),  # codes are padded to 32 numbers on both sides
            ("q4_0", 32 + 2 * 2, 32 + 2 * 2),
            ("turbo3", 24 + 2, 24 + 2),
        ],
    )
    def test_a_head_of_40(self, dtype: str, keys: int, values: int) -> None:
        assert vector_bytes(dtype, 40, "keys") == keys
        assert vector_bytes(dtype, 40, "values") == values

    @pytest.mark.parametrize(
        ("kv_dtype", "kib"),
        [
            *(("f32", 256.0), ("f16", 128.0), ("bf16", 128.0), ("int8", 65.0), ("q4_0", 36.0)),
            *(("turbo8v4", 49.0), ("turbo4", 33.0), ("turbo3", 25.0), ("turbo2", 17.0)),
            ("f16/turbo4", (256 + 66) * 256 / KIB),
        ],
    )
    def test_a_token_of_llama_8b(self, kv_dtype: str, kib: float) -> None:
        dtypes = parse_kv_dtype(kv_dtype, "f16")
        assert token_bytes(LLAMA_8B, dtypes) == kib * KIB
        exact = 256 if kv_dtype == "f32" else 128
        assert exact_token_bytes(LLAMA_8B, dtypes) == exact * KIB


class TestTextbook:
    """The numbers of the usual formula."""

    def test_one_token(self) -> None:
        assert kv_cache_bytes(1, 1, 128, 1, 2) == 512
        assert kv_cache_bytes(1, 8, 128, 1, 2) == 4_096
        assert kv_cache_bytes(32, 8, 128, 1, 2) == 131_072

    def test_sequences_and_batches(self) -> None:
        assert kv_cache_bytes(32, 8, 128, 4_096, 2) == 512 * MIB
        assert round(kv_cache_bytes(32, 8, 128, 128_000, 2) / GIB, 1) == 15.6
        assert 32 * kv_cache_bytes(32, 8, 128, 4_096, 2) == 16 * GIB
        assert kv_cache_bytes(32, 32, 128, 4_096, 2) == 2_048 * MIB

    def test_the_formula_equals_the_core(self) -> None:
        for tokens, size in [(1, 2), (4_096, 4), (128_000, 2)]:
            assert kv_cache_bytes(30, 3, 64, tokens, size) == onward.kv_cache_bytes(
                num_layers=30, num_kv_heads=3, head_dim=64, tokens=tokens, bytes_per_value=size
            )


class TestSequences:
    def test_exact_caches_are_whole_blocks(self) -> None:
        exact = parse_kv_dtype("f16", "f16")
        for tokens, blocks in [(0, 0), (1, 1), (16, 1), (17, 2), (4_096, 256)]:
            assert sequence_bytes(LLAMA_8B, exact, tokens, USUAL) == blocks * 16 * 128 * KIB
        assert sequence_bytes(LLAMA_8B, exact, 4_096, USUAL) == 512 * MIB
        assert sequence_bytes(LLAMA_8B, exact, 128_000, USUAL) == 16_777_216_000

    def test_ten_blocks_stay_exact_in_a_coded_cache(self) -> None:
        """128 tokens are 8 blocks. The block in progress and the first block stay exact too."""
        coded = parse_kv_dtype("int8", "f16")
        for blocks in range(1, 11):
            expected = blocks * 16 * 128 * KIB
            assert sequence_bytes(LLAMA_8B, coded, blocks * 16, USUAL) == expected
        assert sequence_bytes(LLAMA_8B, coded, 4_096, USUAL) == 16 * KIB * (10 * 128 + 246 * 65)
        no_sinks = Policy(sinks=False)
        assert sequence_bytes(LLAMA_8B, coded, 4_096, no_sinks) == 16 * KIB * (9 * 128 + 247 * 65)
        none = Policy(window_tokens=0, sinks=False)
        assert sequence_bytes(LLAMA_8B, coded, 4_096, none) == 16 * KIB * (128 + 255 * 65)
        odd = Policy(window_tokens=17)  # two blocks
        assert sequence_bytes(LLAMA_8B, coded, 4_096, odd) == 16 * KIB * (4 * 128 + 252 * 65)

    def test_windows_hold_the_positions_that_the_next_token_sees(self) -> None:
        # Position 100 is next. A window of 33 sees positions 68 and later: blocks 4, 5, 6.
        assert blocks_held(100, 33, False, USUAL) == Blocks(3, 0)
        # A window of 36 sees positions 65 and later, of 37 from 64, of 38 one block more.
        assert blocks_held(100, 37, False, USUAL) == Blocks(3, 0)
        assert blocks_held(100, 38, False, USUAL) == Blocks(4, 0)
        assert blocks_held(100, 1000, False, USUAL) == Blocks(7, 0)
        # The last 40 of 100 blocks are held, 9 of them exact. Block 0 is also held in a coded cache
        # with sinks, although no token sees it any more. Otherwise it is returned.
        assert blocks_held(1600, 641, True, USUAL) == Blocks(10, 31)
        assert blocks_held(1600, 641, False, USUAL) == Blocks(40, 0)
        assert blocks_held(1600, 641, True, Policy(sinks=False)) == Blocks(9, 31)
        assert blocks_held(1600, 0, True, USUAL) == Blocks(10, 90)
        # A streaming policy keeps the first block too.
        streaming = Policy(attention_window=641)
        assert blocks_held(1600, 641, True, streaming) == Blocks(10, 31)
        assert blocks_held(1600, 641, False, streaming) == Blocks(41, 0)
        without_sinks = Policy(sinks=False, attention_window=641)
        assert blocks_held(1600, 641, True, without_sinks) == Blocks(9, 32)

    def test_chunks_hold_the_chunk_of_the_next_token(self) -> None:
        # Position 100 is next: chunks of 32 hold positions 96 and later. At 112 tokens all blocks
        # of the last chunk are returned.
        assert blocks_held(100, 0, False, USUAL, chunk=32) == Blocks(1, 0)
        assert blocks_held(112, 0, False, USUAL, chunk=16) == Blocks(0, 0)
        assert blocks_held(100, 33, False, USUAL, chunk=1000) == Blocks(3, 0)
        # Block 0 is held if codes refer to it. A streaming policy does not change chunks.
        assert blocks_held(1600, 0, True, USUAL, chunk=1024) == Blocks(10, 27)
        streaming = Policy(attention_window=641)
        assert blocks_held(1600, 0, False, streaming, chunk=1024) == Blocks(36, 0)

    def test_layers_of_other_sizes(self) -> None:
        """Layer 0: 8 kv heads of 128 in chunks of 64, 4 KiB a token in f16. Layer 1: 2 of 256."""
        spec = dataclasses.replace(
            LLAMA_8B,
            num_layers=2,
            chunks=(64, 0),
            layer_kv_heads=(0, 2),
            layer_head_dims=(0, 256),
        )
        f16 = parse_kv_dtype("f16", "f16")
        assert token_bytes(spec, f16) == exact_token_bytes(spec, f16) == 4096 + 2048
        assert sequence_bytes(spec, f16, 200, USUAL) == 16 * (1 * 4096 + 13 * 2048)
        assert step_bytes(spec, f16, USUAL, 256) == 17 * 16 * 4096
        streaming = Policy(attention_window=100)
        assert sequence_bytes(spec, f16, 200, streaming) == 16 * (1 * 4096 + (7 + 1) * 2048)
        other_values = dataclasses.replace(LLAMA_8B, num_layers=1, value_dim=64)
        assert token_bytes(other_values, f16) == 8 * (128 + 64) * 2

    def test_a_coded_block_is_rounded_up(self) -> None:
        """One layer, one head of 32: int8 keys 34 bytes, turbo4 values 18, times 16 is 832; with an
        exact key of 64 bytes it is 1,312 and takes 1,344."""
        spec = dataclasses.replace(LLAMA_8B, num_layers=1, num_kv_heads=1, head_dim=32)
        policy = Policy(window_tokens=0, sinks=False)
        for name, block in (("int8/turbo4", 832), ("f16/turbo4", 1344)):
            dtypes = parse_kv_dtype(name, "f16")
            assert sequence_bytes(spec, dtypes, 160, policy) == 16 * 128 + 9 * block

    def test_layers_with_and_without_a_window(self) -> None:
        spec = dataclasses.replace(LLAMA_8B, windows=(4096, 0) * 16)
        exact = parse_kv_dtype("f16", "f16")
        # 16 layers hold 1,000 blocks, 16 layers 256 of them: positions 11,905 and later.
        half_token = 64 * KIB
        assert sequence_bytes(spec, exact, 16_000, USUAL) == 16 * half_token * (1000 + 256)
        # With a window of 1,024 tokens and the first block, all layers hold 65 blocks.
        streaming = Policy(attention_window=1024)
        assert sequence_bytes(spec, exact, 16_000, streaming) == 16 * 128 * KIB * (64 + 1)


small_specs = st.builds(
    lambda layers, kv_heads, head_dim, windows: dataclasses.replace(
        LLAMA_8B,
        num_layers=layers,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        windows=tuple(windows[:layers]) if windows else (),
    ),
    layers=st.integers(1, 4),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([8, 40, 64, 128]),
    windows=st.one_of(
        st.just([]),
        st.lists(st.one_of(st.just(0), st.integers(1, 400)), min_size=4, max_size=4),
    ),
)
policies = st.builds(
    Policy,
    window_tokens=st.integers(0, 200),
    sinks=st.booleans(),
    attention_window=st.one_of(st.none(), st.integers(1, 400)),
)
dtype_pairs = st.sampled_from(
    [parse_kv_dtype(name, "f16") for name in (*KV_DTYPES, "f32/turbo2", "turbo3/auto")]
)


def counted(spec: DecoderSpec, dtypes: KvDtypes, tokens: int, policy: Policy) -> int:
    """The bytes, computed for each group and block from the documented rules."""
    total = 0
    blocks = -(-tokens // 16)
    exact_newest = -(-policy.window_tokens // 16) + 1
    limit = policy.attention_window
    groups: dict[int, int] = {}
    for window in spec.windows or [0] * spec.num_layers:
        narrower = min(size for size in (window, limit, 10**9) if size)
        groups[narrower] = groups.get(narrower, 0) + 1
    for window, layers in groups.items():
        vectors = 16 * layers * spec.num_kv_heads
        exact_bytes = vectors * pair_bytes(dtypes.exact, dtypes.exact, spec.head_dim)
        coded_bytes = vectors * pair_bytes(dtypes.keys, dtypes.values, spec.head_dim)
        while coded_bytes % 64:
            coded_bytes += 1
        for block in range(blocks):
            seen = 16 * block + 15 >= tokens - window + 1
            kept = block == 0 and (limit is not None or (dtypes.coded and policy.sinks))
            if not (seen or kept):
                continue
            newest = block >= blocks - exact_newest
            is_exact = not dtypes.coded or newest or (policy.sinks and block == 0)
            total += exact_bytes if is_exact else coded_bytes
    return total


@given(small_specs, dtype_pairs, st.integers(0, 700), policies)
@settings(max_examples=400, deadline=None)
def test_bytes_equal_a_count_of_blocks(
    spec: DecoderSpec, dtypes: KvDtypes, tokens: int, policy: Policy
) -> None:
    assert sequence_bytes(spec, dtypes, tokens, policy) == counted(spec, dtypes, tokens, policy)


@given(st.integers(0, 100_000), st.integers(0, 1000), st.booleans())
def test_exact_blocks_without_windows(tokens: int, window_tokens: int, sinks: bool) -> None:
    held = blocks_held(tokens, 0, True, Policy(window_tokens, sinks))
    blocks = -(-tokens // 16)
    assert held.exact == min(blocks, -(-window_tokens // 16) + 1 + sinks)
    assert held.exact + held.coded == blocks


class TestWhatFits:
    def test_llama_8b(self) -> None:
        exact, coded = (parse_kv_dtype(name, "f16") for name in ("f16", "turbo4"))
        assert longest_sequence(LLAMA_8B, exact, 16 * GIB, USUAL) == 131_072
        assert longest_sequence(LLAMA_8B, exact, 16 * GIB - 1, USUAL) == 131_056
        # Ten blocks are exact; the other blocks have 16 x 33 KiB.
        blocks = 10 + (16 * GIB - 10 * 16 * 128 * KIB) // (16 * 33 * KIB)
        assert longest_sequence(LLAMA_8B, coded, 16 * GIB, USUAL) == 16 * blocks
        assert longest_sequence(LLAMA_8B, coded, 0, USUAL) == 0
        assert sequences_that_fit(512 * MIB, 16 * GIB) == 32
        assert sequences_that_fit(512 * MIB, 16 * GIB - 1) == 31
        assert sequences_that_fit(512 * MIB, -1) == 0

    def test_windows_in_all_layers_bound_the_memory(self) -> None:
        spec = dataclasses.replace(LLAMA_8B, windows=(4096,) * 32)
        exact = parse_kv_dtype("f16", "f16")
        # 257 blocks, because the 4,095 visible keys begin inside a block.
        assert longest_sequence(spec, exact, 257 * 16 * 128 * KIB, USUAL) is None
        assert longest_sequence(spec, exact, 257 * 16 * 128 * KIB - 1, USUAL) == 4096
        streaming = Policy(attention_window=1024)
        assert longest_sequence(LLAMA_8B, exact, 70 * 16 * 128 * KIB, streaming) is None

    def test_a_peak_before_the_first_block_is_coded(self) -> None:
        """Block 0 is held outside the window and stops being exact when there are nine newer
        blocks. Three exact blocks take more than any longer sequence, and the room must hold
        them."""
        coded = parse_kv_dtype("turbo2", "f16")
        streaming = Policy(sinks=False, attention_window=16)
        sizes = [sequence_bytes(LLAMA_8B, coded, 16 * n + 1, streaming) for n in range(100)]
        assert sizes.index(max(sizes)) == 2 and sizes[9] < sizes[8] == sizes[2]
        assert longest_sequence(LLAMA_8B, coded, max(sizes), streaming) is None
        assert longest_sequence(LLAMA_8B, coded, max(sizes) - 1, streaming) == 32

    @given(small_specs, dtype_pairs, st.integers(0, 1 << 19), policies)
    @settings(max_examples=150, deadline=None)
    def test_the_longest_sequence_equals_a_linear_search(
        self, spec: DecoderSpec, dtypes: KvDtypes, room: int, policy: Policy
    ) -> None:
        found = longest_sequence(spec, dtypes, room, policy)
        last = 1500 if found is None else min(found, 1500)
        for begin in range(0, last, 16):
            for tokens in (begin + 1, begin + 16):
                assert sequence_bytes(spec, dtypes, tokens, policy) <= room
        if found is not None:
            assert sequence_bytes(spec, dtypes, found + 1, policy) > room


class TestAmounts:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            *(("16GiB", 16 * GIB), ("24GB", 24 * 10**9), ("1.5 MiB", 3 * MIB // 2)),
            *(("65536", 65536), ("7b", 7), (" 2tib ", 2**41), ("0.1KB", 100), ("0", 0)),
            *(("1G", GIB), ("512m", 512 * MIB)),
        ],
    )
    def test_amounts_are_read(self, text: str, expected: int) -> None:
        assert read_amount("memory", text) == expected

    @pytest.mark.parametrize(
        "text", ["", "GiB", "-1GiB", "1e9", "16 GiB of it", "0x10", "1Gi", "\u0661"]
    )
    def test_wrong_amounts_are_refused(self, text: str) -> None:
        with pytest.raises(InvalidArgument, match=r"^memory: is .*, expected bytes, or a number"):
            read_amount("memory", text)

    @pytest.mark.parametrize(
        ("count", "expected"),
        [
            *((0, "0 B"), (512, "512 B"), (51_712, "50.5 KiB"), (512 * MIB, "512 MiB")),
            *((16_777_216_000, "15.6 GiB"), (16 * GIB, "16 GiB"), (131_072, "128 KiB")),
            *((10 * GIB, "10 GiB"), (1000 * GIB, "1,000 GiB"), (5 * 2**39, "2.5 TiB")),
        ],
    )
    def test_amounts_are_written(self, count: int, expected: str) -> None:
        assert amount(count) == expected

    def test_amounts_are_written_in_a_given_unit(self) -> None:
        assert amount(2 * GIB, "MiB") == "2,048 MiB"
        assert amount(64 * KIB, "MiB") == "0.06 MiB"


def test_usual_contexts_end_at_the_context_of_the_model() -> None:
    assert usual_contexts(131072) == [1024, 4096, 8192, 32768, 131072]
    assert usual_contexts(40960) == [1024, 4096, 8192, 32768, 40960]
    assert usual_contexts(512) == [512]


@pytest.mark.parametrize(
    ("policy", "reported"),
    [
        (Policy(window_tokens=-1), "kv_window_tokens: is -1, expected an integer from 0"),
        (Policy(attention_window=0), "attention_window: is 0, expected an integer from 1"),
    ],
)
def test_impossible_policies_are_refused(policy: Policy, reported: str) -> None:
    with pytest.raises(InvalidArgument, match=reported):
        policy.check()
