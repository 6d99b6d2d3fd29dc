"""Requests reuse the keys and values of earlier ones and do not compute them again."""

from __future__ import annotations

import numpy as np
import pytest

from builders.core_engine import Shape, complete, drain, random_prompt, seeded_model, submit
from onward import _core
from onward.errors import InvalidArgument, NotCached

MODEL = seeded_model("f32", Shape(num_layers=1, head_dim=32))


def engine_of(**options: object) -> _core.Engine:
    return _core.Engine(MODEL, threads=1, prefill_chunk_tokens=64, **options)


def test_a_prefix_is_reused_to_the_exact_token():
    """An earlier request has 100 + 7 tokens, of which the last is chosen and not computed. A later
    request differs after 77 tokens, in the middle of a block."""
    engine = engine_of()
    prompt = random_prompt(100)
    complete(engine, [prompt], max_new_tokens=7)
    other = np.concatenate([prompt[:77], (prompt[77:] + 1) % 300])
    before = engine.stats()["kv_computations"]
    complete(engine, [other], max_new_tokens=1)
    assert engine.stats()["kv_computations"] - before == 100 - 77
    assert engine.stats()["prefix_hit_tokens"] == 77


FIRST_BLOCK = [
    *(2337, 471, 2436, 238, 3745, 1282, 3576, 4059, 1789, 1044, 1113, 3799, 694, 3221, 11, 7),
]
EQUAL_HASH = [
    *(611, 325, 1221, 3563, 18, 709, 110, 3960, 3743, 1536, 15, 2146, 3696, 41, 3813, 755),
]
"""Two blocks of 16 tokens to which cache/prefix_tree.cpp gives the same hash, found by trying 2^27
random ones."""


def block_hash(tokens: list[int]) -> int:
    """The hash of chained_hash in cache/prefix_tree.cpp, from the root."""
    found = 0xCBF29CE484222325
    for token in tokens:
        found = (found ^ token) * 0x100000001B3 % 2**64
        found ^= found >> 29
    return found


def test_a_prefix_with_the_same_hash_is_not_mistaken_for_another():
    assert block_hash(FIRST_BLOCK) == block_hash(EQUAL_HASH), "the hash changed: find another pair"
    shape = Shape(vocab_size=4096, hidden_size=32, intermediate_size=32, num_layers=1, head_dim=32)
    model = seeded_model("f32", shape)
    rest = [5, 6, 7]
    alone = _core.Engine(model, threads=1, prefill_chunk_tokens=64)
    expected = complete(alone, [EQUAL_HASH + rest], max_new_tokens=8)
    engine = _core.Engine(model, threads=1, prefill_chunk_tokens=64)
    complete(engine, [FIRST_BLOCK + rest], max_new_tokens=8)
    assert complete(engine, [EQUAL_HASH + rest], max_new_tokens=8) == expected
    assert engine.stats()["prefix_hit_tokens"] == 0
    complete(engine, [FIRST_BLOCK + rest], max_new_tokens=1)
    assert engine.stats()["prefix_hit_tokens"] == 16 + 2


@pytest.mark.parametrize("codec", ["exact", "int8", "turbo4"])
def test_a_text_that_continues_a_prompt_or_an_output_reuses_all_of_it(codec):
    """Exact blocks are kept at these places, so that a coded cache can be continued: after the 30
    tokens of the output, of which the last was not fed back, and after the last whole block of the
    prompt."""
    engine = engine_of(kv_keys=codec, kv_values=codec, kv_window_tokens=16)
    prompt = random_prompt(100)
    [output] = complete(engine, [prompt], max_new_tokens=30)
    whole = 100 if codec == "exact" else 96
    for before, reused in (([*prompt, *output], 129), (prompt, whole)):
        hits = engine.stats()["prefix_hit_tokens"]
        complete(engine, [[*before, *((prompt[:9] + 1) % 300)]], max_new_tokens=1)
        assert engine.stats()["prefix_hit_tokens"] - hits == reused


def test_a_common_prefix_of_two_requests_is_computed_once():
    """150 common tokens: they are computed once, and the 20 of each that follow."""
    engine = engine_of()
    common = random_prompt(150)
    prompts = [np.concatenate([common, random_prompt(20, seed=i)]) for i in (1, 2)]
    drain(engine, [submit(engine, prompt, max_new_tokens=1) for prompt in prompts])
    assert engine.stats()["kv_computations"] == 150 + 20 + 20


def test_the_least_recently_used_prefix_is_evicted_first():
    """The cache holds three prompts of four blocks. The fourth prompt evicts the second, because
    the first was used again in between."""
    block = engine_of().stats()["cache_block_bytes"]
    engine = engine_of(prefix_cache_bytes=12 * block)
    prompts = [random_prompt(64, seed=i) for i in range(4)]
    for index in (0, 1, 2, 0, 3):
        complete(engine, [prompts[index]], max_new_tokens=1)
    hits = []
    for index in (0, 3, 2):
        before = engine.stats()["prefix_hit_tokens"]
        complete(engine, [prompts[index]], max_new_tokens=1)
        hits.append(engine.stats()["prefix_hit_tokens"] - before)
    assert hits == [63, 63, 63]
    before = engine.stats()["prefix_hit_tokens"]
    complete(engine, [prompts[1]], max_new_tokens=1)
    assert engine.stats()["prefix_hit_tokens"] - before < 63
    assert engine.stats()["prefix_bytes"] <= 12 * block
    engine.forget_prefixes()
    assert engine.stats()["prefix_bytes"] == engine.stats()["cache_bytes_reserved"] == 0


def test_a_full_cache_loses_no_request():
    """Thirty requests of up to 100 tokens in a cache of twelve blocks: some are preempted."""
    block = engine_of().stats()["cache_block_bytes"]
    engine = engine_of(kv_cache_bytes=12 * block)
    prompts = [random_prompt(30 + i, seed=i) for i in range(30)]
    requests = [submit(engine, prompt, max_new_tokens=40) for prompt in prompts]
    outputs = drain(engine, requests)
    alone = engine_of(prefix_cache=False)
    for request, prompt in zip(requests, prompts, strict=True):
        assert [outputs[request].tokens] == complete(alone, [prompt], max_new_tokens=40)
    stats = engine.stats()
    assert stats["preempted"] > 0
    assert stats["cache_bytes"] <= 12 * block


def test_prompt_log_probabilities_come_once_if_the_prompt_is_computed_twice():
    """A cache of eleven blocks. Four outputs grow by four blocks every 16 steps. A younger request
    reads its prompt of seven blocks with four tokens in a step. It is preempted after rows of the
    prompt were reported, and begins again."""
    block = engine_of().stats()["cache_block_bytes"]
    engine = _core.Engine(
        MODEL, threads=1, prefill_chunk_tokens=8, kv_cache_bytes=11 * block, prefix_cache=False
    )
    older = [submit(engine, random_prompt(14, seed=i), max_new_tokens=60) for i in range(4)]
    while engine.stats()["decode_tokens"] < 4:
        assert not any(event.ends_request for event in engine.step())
    prompt = random_prompt(100)
    younger = submit(engine, prompt, prompt_logprobs=0, max_new_tokens=3)
    found = drain(engine, [*older, younger])[younger].prompt_logprobs
    assert engine.stats()["preempted"] > 0
    assert engine.stats()["prefill_tokens"] > 4 * 14 + 100  # part of the prompt was computed twice
    assert [each.token for each in found] == prompt[1:].tolist()
    assert [each.raw for each in found] == engine_of().score(prompt).astype(np.float32).tolist()


def least_bytes(outputs: int, **options: object) -> int:
    """The smallest budget of the cache that accepts this number of outputs of a prompt."""

    def fits(limit: int) -> bool:
        engine = engine_of(kv_cache_bytes=limit, **options)
        try:
            submit(engine, random_prompt(400), num_sequences=outputs, temperature=1.0)
        except InvalidArgument:
            return False
        return True

    low, high = 0, 1 << 26
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def test_outputs_share_their_prompt_in_an_exact_cache_only():
    """400 tokens of prompt and 16 of output are 26 blocks. Another output adds 2 blocks: the last
    block of the prompt and its own tokens. In a coded cache each output may have to compute the
    prompt separately, so a budget for the shared prompt is refused on submit."""
    exact = [least_bytes(n) for n in (1, 2, 3)]
    assert exact[1] - exact[0] == exact[2] - exact[1] < 0.2 * exact[0]
    codes = {"kv_keys": "turbo4", "kv_values": "turbo4", "kv_window_tokens": 16}
    coded = [least_bytes(n, **codes) for n in (1, 2, 3)]
    assert coded[1] - coded[0] == coded[2] - coded[1] > 0.7 * coded[0]
    engine = engine_of(kv_cache_bytes=(coded[0] + coded[2]) // 2, **codes)
    with pytest.raises(InvalidArgument, match=r"^kv_cache_bytes: 3 x \(400 \+ 16\) tokens"):
        submit(engine, random_prompt(400), num_sequences=3, temperature=1.0)
    assert len(complete(engine, [random_prompt(400)], max_new_tokens=16)[0]) == 16


@pytest.mark.parametrize("codec", ["exact", "turbo4"])
def test_stored_bytes_depend_only_on_the_prefix(codec):
    """98 tokens end in the middle of a block that a longer sequence has filled."""
    ids = random_prompt(98)
    stored = []
    for longer in (False, True):
        engine = engine_of(kv_keys=codec, kv_values=codec, kv_window_tokens=16)
        if longer:
            complete(engine, [np.concatenate([ids, random_prompt(40, seed=1)])], max_new_tokens=5)
        stored.append(engine.store_prefix(ids))
    assert stored[0] == stored[1]
    assert any(len(set(block)) > 1 for *_, block in stored[0])


@pytest.mark.parametrize(
    ("options", "kept", "message"),
    [
        ({}, slice(1, None), "blocks: are not all blocks of a prefix of 98 tokens"),
        ({}, slice(0, -1), "blocks: are not all blocks of a prefix of 98 tokens"),
        ({"kv_cache_bytes": 20_000}, slice(None), "kv_cache_bytes: 98 tokens take"),
        ({"prefix_cache_bytes": 0}, slice(None), "prefix_cache_bytes: tokens to be kept: found 98"),
        ({"prefix_cache": False}, slice(None), "blocks: are not all"),
    ],
)
def test_a_prefix_that_cannot_be_kept_is_not_cached(options, kept, message):
    ids = random_prompt(98)
    blocks = engine_of().store_prefix(ids)
    with pytest.raises(NotCached, match=f"^{message}"):
        engine_of(**options).restore_prefix(ids, blocks[kept])


def test_a_block_that_does_not_fit_has_its_own_error():
    ids = random_prompt(98)
    engine = engine_of()
    group, coded, index, data = engine.store_prefix(ids)[0]
    for block, message in [
        ((9, coded, index, data), "^block: layer group: found 9"),
        ((group, coded, 7, data), "^block: index: found 7"),
        ((group, coded, index, data[1:]), f"^block: bytes: found {len(data) - 1}"),
    ]:
        with pytest.raises(InvalidArgument, match=message) as failure:
            engine.restore_prefix(ids, [block])
        assert not isinstance(failure.value, NotCached)
