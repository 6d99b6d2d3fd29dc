"""Prompts in one batch: ragged batches, repeated prompts and long conversations do not affect each
other.
"""

from __future__ import annotations

import numpy as np
import pytest

from builders.core_engine import (
    Shape,
    complete,
    drain,
    new_engine,
    random_prompt,
    seeded_model,
    submit,
)
from closed_form import write_copy, write_seen

MODEL_SHAPE = Shape(num_layers=2, windows=(0, 23))
RANDOM_BATCHES = 50


@pytest.fixture(scope="module")
def model():
    return seeded_model("f32", MODEL_SHAPE)


@pytest.fixture(params=["f32", "bf16"])
def seen(request, tmp_path, open_llm):
    """M-SEEN: generates the largest visible id; with a leak of padding it would generate id 0."""
    return open_llm(write_seen(tmp_path / "seen"), dtype=request.param)


class TestNothingIsLeftBehind:
    """The output of M-SEEN changes if it sees a position of another prompt."""

    def test_an_edited_prompt_sees_no_token_of_the_old_one(self, seen):
        for prompt, expected in (
            ([7, 3, 3], 7),
            ([5, 3, 3], 5),
            ([3, 4, 7], 7),
            ([3, 4], 4),
            ([3, 4, 5], 5),
        ):
            assert seen.generate(prompt, max_new_tokens=3).token_ids == (expected,) * 3

    @pytest.mark.parametrize("prompt", [[3], [3, 7, 4], [6] * 16, [5] * 17])
    def test_the_same_prompt_gives_the_same_three_times(self, seen, prompt):
        results = [seen.generate(prompt, max_new_tokens=16).token_ids for _ in range(3)]
        assert results == [(max(prompt),) * 16] * 3

    def test_a_longer_prompt_then_a_shorter_one_in_the_same_blocks(self, seen):
        assert seen.generate([7] * 40, max_new_tokens=2).token_ids == (7, 7)
        assert seen.generate([3] * 4, max_new_tokens=20).token_ids == (3,) * 20

    def test_a_prompt_after_an_abandoned_stream(self, seen):
        stream = seen.stream([7, 7, 7], max_new_tokens=50)
        stream.close()
        assert seen.generate([3, 4], max_new_tokens=4).token_ids == (4,) * 4
        assert seen.stats()["running"] == 0


class TestRaggedBatches:
    def test_rows_see_no_padding(self, seen):
        results = seen.generate([[3, 4], [7, 6, 5, 4, 3]], max_new_tokens=2)
        assert [result.token_ids for result in results] == [(4, 4), (7, 7)]

    def test_rows_of_a_batch_do_not_see_each_other(self, seen):
        """Each row has one repeated id, in lengths around a block of 16."""
        batch = [[1 + (i % 7)] * length for i, length in enumerate((1, 15, 16, 17, 30, 2, 33))]
        expected = [tuple(row[:1] * 3) for row in batch]
        # Ids 2 (eos) and 1 have weight 0, so such a row gives its own token, from the residual.
        results = seen.generate(batch, max_new_tokens=3, ignore_eos=True)
        assert [result.token_ids for result in results] == expected

    def test_positions_begin_at_0_in_every_row(self, tmp_path, open_llm):
        """M-COPY in a ragged batch: each row copies the same token as alone."""
        llm = open_llm(write_copy(tmp_path, 1, rope_theta=4.0))
        generator = np.random.default_rng(1)
        batch = [generator.integers(3, 7, n).tolist() for n in (4, 12, 7, 5, 20, 9)]
        alone = [llm.generate(prompt, max_new_tokens=8).token_ids for prompt in batch]
        assert [r.token_ids for r in llm.generate(batch, max_new_tokens=8)] == alone
        assert [tokens[0] for tokens in alone] == [row[-4] for row in batch]  # distance 3

    def test_results_keep_the_order_of_prompts(self, seen):
        results = seen.generate([[id_] for id_ in (5, 3, 7, 6, 4, 3)], max_new_tokens=1)
        assert [result.token_ids for result in results] == [(5,), (3,), (7,), (6,), (4,), (3,)]
        assert [result.prompt_token_ids for result in results][2] == (7,)

    def test_rows_end_at_different_times(self, seen):
        """Id 2 is eos and has weight 0: [2] generates 2 and stops, the others continue."""
        results = seen.generate([[2], [3], [2], [4, 3]], max_new_tokens=6)
        assert [len(result.token_ids) for result in results] == [1, 6, 1, 6]
        assert [result.finish_reason for result in results] == ["stop", "length"] * 2

    def test_one_bad_row_refuses_the_batch_before_anything_is_computed(self, seen):
        before = seen.stats()["kv_computations"]
        with pytest.raises(ValueError, match=r"prompt\[2\]"):
            seen.generate([[3], [4], [99], [5]])
        assert seen.stats()["kv_computations"] == before
        assert seen.stats()["running"] == 0


@pytest.mark.parametrize("seed", range(RANDOM_BATCHES))
def test_a_random_batch_equals_its_rows_alone(model, seed):
    """Ragged lengths, mixed options, a chunk size drawn too; token for token."""
    generator = np.random.default_rng(seed)
    engine = new_engine(model, chunk=int(generator.choice([1, 5, 16, 50, 512])))
    requests = []
    for row in range(int(generator.integers(2, 9))):
        prompt = random_prompt(int(generator.integers(1, 90)), seed=1000 * seed + row)
        options = {
            "max_new_tokens": int(generator.integers(1, 20)),
            "temperature": float(generator.choice([0.0, 0.8])),
            "top_p": float(generator.choice([1.0, 0.9])),
            "repetition_penalty": float(generator.choice([1.0, 1.3])),
            "seed": int(generator.integers(0, 2**63)),
            "cache": bool(generator.random() < 0.8),
        }
        requests.append((prompt, options))
    numbers = [submit(engine, prompt, **options) for prompt, options in requests]
    outputs = drain(engine, numbers)
    alone = new_engine(model, threads=1)
    for number, (prompt, options) in zip(numbers, requests, strict=True):
        assert [outputs[number].tokens] == complete(alone, [prompt], **options)
    assert engine.stats()["cache_blocks_in_use"] == 0


@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_more_sequences_than_a_step_holds_all_finish(model, chunk):
    """With 20 sequences and steps of 1 to 8 tokens they take turns, and all of them finish."""
    engine = new_engine(model, chunk=chunk)
    prompts = [random_prompt(1 + i, seed=i) for i in range(20)]
    found = complete(engine, prompts, max_new_tokens=6)
    assert found == [
        complete(new_engine(model), [prompt], max_new_tokens=6)[0] for prompt in prompts
    ]


def test_decoding_sequences_share_a_step_fairly(model):
    """Eight sequences and four places: after 2n steps each has n tokens, plus or minus one."""
    engine = new_engine(model, chunk=4)
    requests = [submit(engine, [i + 1], max_new_tokens=50) for i in range(8)]
    counts = dict.fromkeys(requests, 0)
    for _ in range(40):
        for event in engine.step():
            counts[event.request] += 1
    assert max(counts.values()) - min(counts.values()) <= 1, counts


def test_a_short_prompt_is_not_kept_waiting_by_a_long_one(model):
    """A prompt of 3,000 tokens is read in chunks. Decoding sequences get a token in every step."""
    engine = new_engine(model, chunk=64)
    short = submit(engine, [5], max_new_tokens=30)
    engine.step()
    submit(engine, random_prompt(3000), max_new_tokens=1)
    for _ in range(20):
        assert [event.request for event in engine.step()] == [short]


def test_events_of_a_step_come_in_order_of_submission(model):
    engine = new_engine(model)
    requests = [submit(engine, [i + 1], max_new_tokens=3) for i in range(9)]
    for _ in range(3):
        events = engine.step()
        assert [event.request for event in events] == requests
        assert all(event.token >= 0 for event in events)
    assert [event.finish_reason for event in events] == ["length"] * 9
    assert engine.step() == []


@pytest.mark.parametrize("place", [0, 1, 2])
def test_turns_stay_fair_around_a_prompt_that_waits(model, place):
    """Three sequences decode with two places in a step, and a prompt is somewhere before or
    between them in the queue. Each of the three still gets every third token, plus or minus one.
    """
    engine = new_engine(model, chunk=2)
    decoding = [submit(engine, [7], max_new_tokens=100) for _ in range(place)]
    submit(engine, random_prompt(500), max_new_tokens=1)
    decoding += [submit(engine, [7], max_new_tokens=100) for _ in range(3 - place)]
    counts = dict.fromkeys(decoding, 0)
    for _ in range(30):
        for event in engine.step():
            counts[event.request] += 1
    assert max(counts.values()) - min(counts.values()) <= 1, counts


@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_a_prompt_is_read_although_decodes_fill_every_step(model, chunk):
    """Three sequences decode 300 tokens each; a short prompt that comes later must not have to wait
    until they are done."""
    engine = new_engine(model, chunk=chunk)
    for _ in range(3):
        submit(engine, [7], max_new_tokens=300)
    for _ in range(10):
        engine.step()
    late = submit(engine, random_prompt(4), max_new_tokens=1)
    steps = 0
    while not any(event.request == late for event in engine.step()):
        steps += 1
        assert steps < 100, "the prompt is starved"


def test_a_prompt_is_read_although_another_request_has_no_cache(model):
    """The other request computes its 60 and more tokens again for each of its 200 tokens."""
    engine = new_engine(model, chunk=16)
    submit(engine, random_prompt(60), max_new_tokens=200, cache=False)
    for _ in range(10):
        engine.step()
    late = submit(engine, random_prompt(40), max_new_tokens=1)
    steps = 0
    while not any(event.request == late for event in engine.step()):
        steps += 1
        assert steps < 10, "the prompt is starved"
