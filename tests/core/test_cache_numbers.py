"""The memory of the KV cache and the computations that it saves, in numbers.

The shape of Llama 3.1 8B: 32 layers, 32 query heads on 8 kv heads of 128, values of 2 bytes.
"""

from __future__ import annotations

import pytest

import onward
from builders.core_engine import (
    Shape,
    complete,
    drain,
    new_engine,
    random_prompt,
    seeded_model,
    submit,
)
from onward import _core
from onward.errors import InvalidArgument

KIB, MIB, GIB = 2**10, 2**20, 2**30
TINY = Shape(
    vocab_size=40,
    hidden_size=16,
    intermediate_size=16,
    num_layers=1,
    num_heads=1,
    num_kv_heads=1,
    head_dim=16,
)


def llama_8b(tokens: int, *, layers: int = 32, kv_heads: int = 8) -> int:
    return onward.kv_cache_bytes(
        num_layers=layers, num_kv_heads=kv_heads, head_dim=128, tokens=tokens, bytes_per_value=2
    )


def test_one_token():
    """2 (K and V) x 128 x 2 bytes at one head of one layer; then 8 heads; then 32 layers."""
    assert llama_8b(1, layers=1, kv_heads=1) == 512
    assert llama_8b(1, layers=1) == 4_096
    assert llama_8b(1) == 131_072 == 128 * KIB


def test_contexts_of_llama_8b():
    assert llama_8b(4_096) == 512 * MIB
    assert llama_8b(128_000) == 16_777_216_000
    assert round(llama_8b(128_000) / GIB, 1) == 15.6


def test_the_cache_of_32_sequences_is_as_large_as_the_weights():
    """8 billion weights of 2 bytes are about 16 GB; 32 sequences of 4,096 tokens are 16 GiB."""
    assert llama_8b(32 * 4_096) == 16 * GIB
    assert 32 * llama_8b(4_096) == llama_8b(32 * 4_096)


def test_without_grouped_query_attention_it_is_four_times_as_much():
    assert llama_8b(4_096, kv_heads=32) == 2_048 * MIB == 4 * llama_8b(4_096)


@pytest.mark.parametrize(("cache", "expected"), [(True, 1_000), (False, 500_500)])
def test_kv_computations_for_1000_tokens(cache, expected):
    """With the cache each token's keys and values are computed once. Without it, step n computes
    them for all n tokens so far: 1 + 2 + ... + 1,000 = 1,000 x 1,001 / 2."""
    engine = new_engine(seeded_model("f32", TINY), chunk=1024)
    [tokens] = complete(engine, [[1]], max_new_tokens=1_000, cache=cache)
    assert len(tokens) == 1_000
    stats = engine.stats()
    assert stats["kv_computations"] == expected
    assert stats["prefill_tokens"] == 1
    assert stats["decode_tokens"] == expected - 1
    assert stats["steps"] == 1_000


def test_a_prompt_is_computed_once():
    """100 prompt tokens and 9 of the 10 new ones: the last is never fed back."""
    engine = new_engine(seeded_model("f32", TINY), chunk=16)
    complete(engine, [random_prompt(100, TINY.vocab_size)], max_new_tokens=10)
    stats = engine.stats()
    assert (stats["prefill_tokens"], stats["decode_tokens"]) == (100, 9)
    assert stats["kv_computations"] == 109
    assert stats["steps"] == 7 + 9  # 100 tokens in chunks of 16, the last of which gives a token


@pytest.mark.parametrize(
    ("dtype", "bytes_per_value"), [("f32", 4), ("f16", 2), ("bf16", 2), ("int8", 2), ("int4", 2)]
)
def test_the_engine_takes_the_bytes_of_the_formula(dtype, bytes_per_value):
    """Blocks of 16 tokens are allocated as the sequence grows: three for 40 and 48 tokens, four for
    49."""
    shape = Shape(num_layers=2, num_heads=4, num_kv_heads=2, head_dim=32)
    engine = new_engine(seeded_model(dtype, shape))
    block_bytes = _core.kv_cache_bytes(2, 2, 32, 16, bytes_per_value)
    assert engine.stats()["cache_block_bytes"] == block_bytes
    assert engine.stats()["cache_blocks_in_use"] == 0
    submit(engine, random_prompt(40), max_new_tokens=20)
    blocks = {}
    for tokens in range(40, 60):
        engine.step()  # after it, `tokens` tokens are in the cache
        blocks[tokens] = engine.stats()["cache_blocks_in_use"]
    assert blocks[40] == blocks[48] == 3
    assert blocks[49] == blocks[58] == 4
    assert blocks[59] == 0  # finished, given back
    assert engine.stats()["cache_bytes_reserved"] <= 4 * block_bytes


@pytest.mark.parametrize("window", [1, 15, 16, 17, 20, 33])
def test_blocks_outside_a_window_are_returned_when_no_token_sees_them(window):
    """With n tokens in the cache the next token sees keys from n - window + 1 on. If that is a
    multiple of 16, the block before it is free at once."""
    shape = Shape(num_layers=1, head_dim=32, windows=(window,))
    engine = _core.Engine(
        seeded_model("f32", shape), threads=1, prefill_chunk_tokens=64, prefix_cache=False
    )
    submit(engine, random_prompt(3), max_new_tokens=70)
    for tokens in range(3, 72):
        engine.step()
        unseen = max(0, tokens - window + 1) // 16
        assert engine.stats()["cache_blocks_in_use"] == -(-tokens // 16) - unseen, tokens


def test_a_budget_is_used_to_its_last_block():
    """60 tokens of prompt and 4 of output fill four blocks. With a byte less they cannot fit."""
    model = seeded_model("f32", TINY)
    block = new_engine(model).stats()["cache_block_bytes"]
    prompt = random_prompt(60, TINY.vocab_size)

    def engine_of(limit):
        return _core.Engine(model, threads=1, prefill_chunk_tokens=64, kv_cache_bytes=limit)

    engine = engine_of(4 * block)
    [output] = complete(engine, [prompt], max_new_tokens=4)
    assert len(output) == 4 and engine.stats()["preempted"] == 0
    with pytest.raises(InvalidArgument, match="kv_cache_bytes"):
        submit(engine_of(4 * block - 1), prompt, max_new_tokens=4)


def test_dynamic_rotation_begins_right_after_the_original_context():
    """Positions below 20 rotate as if there were no scaling, to the bit; position 20 does not."""
    shape = Shape(num_layers=1, head_dim=32)
    plain, dynamic = (
        new_engine(seeded_model("f32", shape, **changes)).logits(random_prompt(24))
        for changes in ({}, {"rope_dynamic_factor": 4.0, "rope_dynamic_original_context": 20})
    )
    same = (plain == dynamic).all(axis=1)
    assert same.tolist() == [True] * 20 + [False] * 4


def test_a_cancelled_request_returns_its_blocks():
    engine = new_engine(seeded_model("f32", TINY))
    requests = [
        submit(engine, random_prompt(20, TINY.vocab_size), max_new_tokens=9) for _ in range(3)
    ]
    engine.step()
    assert engine.stats()["cache_blocks_in_use"] == 6
    engine.cancel(requests[1])
    assert engine.stats()["cache_blocks_in_use"] == 4
    assert engine.stats()["running"] == 2
    drain(engine, [requests[0], requests[2]])
    assert engine.stats()["cache_blocks_in_use"] == 0
    assert engine.stats()["running"] == 0


def test_cancelling_an_unknown_request_is_ignored():
    engine = new_engine(seeded_model("f32", TINY))
    engine.cancel(12345)
    assert complete(engine, [[1, 2]], max_new_tokens=3) == complete(
        new_engine(seeded_model("f32", TINY)), [[1, 2]], max_new_tokens=3
    )
