"""Several outputs of one prompt: num_return_sequences and best_of.

The prompt is read once; output k is the output of stream k; each output ends independently.
"""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from builders.core_engine import (
    complete,
    drain_all,
    new_engine,
    random_prompt,
    seeded_model,
    submit,
)
from builders.distributions import assert_distribution, table_engine
from closed_form import chain, write_pieces_tokenizer, write_table
from onward.errors import InvalidArgument

UNIFORM_4 = np.full((8, 8), -100.0)
UNIFORM_4[:, 3:7] = 0
SAMPLED = {"max_new_tokens": 16, "temperature": 1.0, "seed": 42}
BLOCK = 16
"""Positions in a block of the cache."""


@pytest.fixture
def llm(tmp_path, open_llm):
    """Draws 3, 4, 5 and 6 with equal probability after every token."""
    folder = write_table(tmp_path / "uniform", UNIFORM_4)
    write_pieces_tokenizer(folder, ["<pad>", "<s>", "</s>", "a", "b", "c", "d", "e"])
    return open_llm(folder)


@pytest.fixture(scope="module")
def model():
    return seeded_model("f32")


def tokens_of(result) -> list[tuple[int, ...]]:
    return [sequence.token_ids for sequence in result.sequences]


class TestOutputs:
    def test_three_outputs_differ_and_are_repeatable(self, llm):
        """16 tokens with 4 equally likely values: two outputs are equal by chance once in 4
        billion."""
        first, second = (llm.generate([1], num_return_sequences=3, **SAMPLED) for _ in range(2))
        assert len(first.sequences) == 3
        assert all(len(tokens) == 16 and set(tokens) <= {3, 4, 5, 6} for tokens in tokens_of(first))
        assert len(set(tokens_of(first))) == 3
        assert tokens_of(first) == tokens_of(second)

    def test_the_first_output_equals_a_single_output_of_the_seed(self, llm):
        alone = llm.generate([1], **SAMPLED)
        three = llm.generate([1], num_return_sequences=3, **SAMPLED)
        assert alone.sequences[0].token_ids == alone.token_ids
        assert three.token_ids == three.sequences[0].token_ids == alone.token_ids
        assert three.text == three.sequences[0].text == str(three.sequences[0]) == alone.text

    def test_more_outputs_do_not_change_the_first_ones(self, llm):
        five = tokens_of(llm.generate([1], num_return_sequences=5, **SAMPLED))
        assert tokens_of(llm.generate([1], num_return_sequences=2, **SAMPLED)) == five[:2]

    def test_equal_prompts_of_one_call_get_further_streams(self, llm):
        """Two copies of a prompt with 3 outputs each are streams 0, 1, 2 and 3, 4, 5, as six
        copies with one output each are."""
        pair = llm.generate([[1], [1]], num_return_sequences=3, **SAMPLED)
        six = [result.token_ids for result in llm.generate([[1]] * 6, **SAMPLED)]
        assert [*tokens_of(pair[0]), *tokens_of(pair[1])] == six
        assert len(set(six)) == 6

    def test_without_a_seed_calls_differ(self, llm):
        options = {**SAMPLED, "seed": None, "num_return_sequences": 2}
        first, second = (llm.generate([1], **options) for _ in range(2))
        assert len({*tokens_of(first), *tokens_of(second)}) == 4
        again = llm.generate([1], **{**options, "seed": first.options.seed})
        assert tokens_of(again) == tokens_of(first)

    def test_usage_counts_all_tokens_and_the_prompt_once(self, llm):
        usage = llm.generate([1, 3, 4], num_return_sequences=3, **SAMPLED).usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (3, 48, 51)

    def test_the_first_tokens_of_many_outputs_follow_the_distribution(self):
        engine = table_engine(np.log([0.5, 0.3, 0.15, 0.05]))
        requests = [
            submit(engine, [0], num_sequences=200, max_new_tokens=1, temperature=1.0, seed=seed)
            for seed in range(50)
        ]
        found = [o.tokens[0] for outputs in drain_all(engine, requests).values() for o in outputs]
        assert_distribution(np.array(found), {0: 0.5, 1: 0.3, 2: 0.15, 3: 0.05})

    def test_no_token_asked_for(self, llm):
        result = llm.generate([1], num_return_sequences=3, **{**SAMPLED, "max_new_tokens": 0})
        assert tokens_of(result) == [(), (), ()]
        assert {sequence.finish_reason for sequence in result.sequences} == {"length"}


class TestEngine:
    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("chunk", [1, 7, 512])
    def test_output_k_has_the_bits_of_stream_k(self, model, chunk, threads):
        """Also with a repetition penalty, whose counts are separate for each output."""
        prompt = random_prompt(70)
        options = {"temperature": 1.5, "seed": 5, "repetition_penalty": 1.3}
        engine = new_engine(model, chunk=chunk, threads=threads)
        [outputs] = drain_all(
            engine, [submit(engine, prompt, num_sequences=4, stream=10, **options)]
        ).values()
        alone = [
            complete(new_engine(model), [prompt], stream=10 + k, **options)[0] for k in range(4)
        ]
        assert [output.tokens for output in outputs] == alone
        assert len({tuple(tokens) for tokens in alone}) == 4

    def test_other_requests_change_no_output(self, model):
        prompts = [random_prompt(length, seed=length) for length in (5, 64, 90)]
        options = {"temperature": 1.0, "seed": 3}
        alone = []
        for prompt in prompts:
            engine = new_engine(model)
            alone += drain_all(
                engine, [submit(engine, prompt, num_sequences=3, **options)]
            ).values()
        engine = new_engine(model, chunk=16)
        together = [submit(engine, prompt, num_sequences=3, **options) for prompt in prompts]
        found = list(drain_all(engine, together).values())
        assert [[o.tokens for o in outputs] for outputs in found] == [
            [o.tokens for o in outputs] for outputs in alone
        ]

    def test_without_a_cache_the_bits_are_the_same(self, model):
        options = {"temperature": 1.0, "seed": 3, "num_sequences": 2, "max_new_tokens": 5}
        engine = new_engine(model)
        requests = [submit(engine, random_prompt(9), cache=cache, **options) for cache in (0, 1)]
        without, with_cache = drain_all(engine, requests).values()
        assert [o.tokens for o in without] == [o.tokens for o in with_cache]

    def test_the_prompt_is_read_once(self, model):
        engine = new_engine(model)
        drain_all(engine, [submit(engine, random_prompt(100), num_sequences=5, temperature=1.0)])
        stats = engine.stats()
        assert stats["prefill_tokens"] == 100
        assert stats["decode_tokens"] == 5 * 15  # the 16th token is never computed
        assert stats["kv_computations"] == 100 + 5 * 15

    def test_outputs_share_the_blocks_of_the_prompt(self, model):
        """A prompt of 12.5 blocks and 8 outputs of 8 tokens: the full blocks exist once, and each
        output has its own copy of the last block."""
        engine = new_engine(model)
        prompt = random_prompt(12 * BLOCK + BLOCK // 2)
        submit(engine, prompt, num_sequences=8, temperature=1.0, max_new_tokens=8)
        most = 0
        while not any(event.ends_request for event in engine.step()):
            most = max(most, engine.stats()["cache_blocks_in_use"])
        assert most == 12 + 8
        assert engine.stats()["cache_blocks_in_use"] == 0

    def test_a_cancelled_output_does_not_affect_the_others(self, model):
        prompt = random_prompt(20)
        options = {"num_sequences": 3, "temperature": 1.0, "seed": 9}
        engine = new_engine(model)
        [whole] = drain_all(engine, [submit(engine, prompt, **options)]).values()
        for steps in (0, 1, 3):
            for dropped in (0, 1, 2):
                request = submit(engine, prompt, **options)
                tokens: dict[int, list[int]] = {0: [], 1: [], 2: []}
                for _ in range(steps):
                    for event in engine.step():
                        tokens[event.sequence].append(event.token)
                engine.cancel(request, dropped)
                while engine.stats()["running"]:
                    for event in engine.step():
                        tokens[event.sequence].append(event.token)
                for k in range(3):
                    kept = steps if k == dropped else 16
                    assert tokens[k] == whole[k].tokens[:kept], (steps, dropped, k)
                assert engine.stats()["cache_blocks_in_use"] == 0

    def test_a_request_ends_if_all_its_outputs_are_cancelled(self, model):
        for steps in (0, 2):
            engine = new_engine(model)
            request = submit(engine, random_prompt(20), num_sequences=3, temperature=1.0)
            for _ in range(steps):
                engine.step()
            for sequence in (1, 0, 2, 7, -1):
                engine.cancel(request, sequence)
            stats = engine.stats()
            assert (stats["running"], stats["cache_blocks_in_use"]) == (0, 0)
            assert engine.step() == []

    def test_more_outputs_than_places_are_refused(self, model):
        engine = new_engine(model)
        with pytest.raises(InvalidArgument, match=r"num_sequences: found 257, expected at most"):
            submit(engine, [1], num_sequences=257, temperature=1.0)
        with pytest.raises(InvalidArgument, match=r"num_sequences: found 0"):
            submit(engine, [1], num_sequences=0)


class TestEnds:
    def test_an_output_ends_at_a_stop_token_and_the_others_continue(self, llm):
        """Each output equals the output without the stop, up to the first 5."""
        whole = tokens_of(llm.generate([1], num_return_sequences=8, **SAMPLED))
        result = llm.generate([1], num_return_sequences=8, stop_token_ids=[5], **SAMPLED)
        for tokens, sequence in zip(whole, result.sequences, strict=True):
            if 5 in tokens:
                assert sequence.token_ids == tokens[: tokens.index(5) + 1]
                assert (sequence.finish_reason, sequence.stop_reason) == ("stop", 5)
            else:
                assert sequence.token_ids == tokens
                assert (sequence.finish_reason, sequence.stop_reason) == ("length", None)
        assert len({len(sequence.token_ids) for sequence in result.sequences}) > 2
        assert llm.stats()["cache_blocks_in_use"] == 0

    def test_an_output_ends_at_a_stop_string_and_the_others_continue(self, llm):
        """The pieces of 3, 4, 5, 6 are a, b, c, d."""
        whole = [s.text for s in llm.generate([1], num_return_sequences=8, **SAMPLED).sequences]
        result = llm.generate([1], num_return_sequences=8, stop="ab", **SAMPLED)
        reasons = set()
        for text, sequence in zip(whole, result.sequences, strict=True):
            head, found, _ = text.partition("ab")
            assert sequence.text == head
            assert len(sequence.token_ids) == len(head) + len(found)
            reasons.add((sequence.finish_reason, sequence.stop_reason))
        assert reasons == {("stop", "ab"), ("length", None)}
        assert result.usage.completion_tokens == sum(len(s.token_ids) for s in result.sequences)
        assert llm.stats()["cache_blocks_in_use"] == 0

    def test_the_engine_computes_nothing_after_a_stop_string(self, llm):
        """Every output ends with its first token: a, b, c or d."""
        options = {**SAMPLED, "max_new_tokens": 50, "num_return_sequences": 4}
        before = llm.stats()["steps"]
        result = llm.generate([1], stop=["a", "b", "c", "d"], **options)
        assert [len(s.token_ids) for s in result.sequences] == [1] * 4
        assert llm.stats()["steps"] - before <= 2
        assert llm.stats()["running"] == 0

    def test_the_context_ends_all_outputs(self, llm):
        result = llm.generate([3] * 60, num_return_sequences=3, **SAMPLED)
        assert [len(tokens) for tokens in tokens_of(result)] == [4, 4, 4]
        assert {sequence.finish_reason for sequence in result.sequences} == {"length"}

    def test_a_cancelled_task_frees_all_outputs(self, tmp_path, open_llm):
        table = np.zeros((8, 8))
        llm = open_llm(write_table(tmp_path / "long", table, max_position_embeddings=1 << 20))

        async def give_up() -> None:
            work = llm.agenerate(
                [1], num_return_sequences=3, temperature=1.0, max_new_tokens=10**6, ignore_eos=True
            )
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(work, 0.2)

        asyncio.run(give_up())
        llm.generate([1], max_new_tokens=1)
        assert llm.stats()["running"] == llm.stats()["cache_blocks_in_use"] == 0


class TestBestOf:
    TABLE = np.tile(np.log([0.01, 0.01, 0.1, 0.42, 0.3, 0.1, 0.05, 0.01]), (8, 1))

    @pytest.fixture
    def skewed(self, tmp_path, open_llm):
        return open_llm(write_table(tmp_path / "skewed", self.TABLE))

    def test_outputs_with_the_best_mean_log_probability_come_first(self, skewed):
        """All are of the same seed's streams, whose probabilities the table has. Token 2 ends an
        output, so lengths differ and the mean counts."""
        drawn = skewed.generate([1], num_return_sequences=8, **SAMPLED)
        means = {
            s.token_ids: float(np.mean(self.TABLE[0, list(s.token_ids)])) for s in drawn.sequences
        }
        expected = sorted(means, key=lambda tokens: -means[tokens])
        for wanted in (1, 3, 8):
            best = skewed.generate([1], best_of=8, num_return_sequences=wanted, **SAMPLED)
            assert tokens_of(best) == expected[:wanted]
            assert best.token_ids == expected[0]
            assert best.usage.completion_tokens == sum(map(len, means))
            assert best.logprobs is None
        assert len({len(tokens) for tokens in means}) > 1

    def test_log_probabilities_are_returned_on_request(self, skewed):
        best = skewed.generate([1], best_of=4, num_return_sequences=2, logprobs=0, **SAMPLED)
        for sequence in best.sequences:
            reported = [each.logprob for each in sequence.logprobs]
            np.testing.assert_allclose(reported, self.TABLE[0, list(sequence.token_ids)], atol=1e-5)
        first, second = (
            math.fsum(each.logprob for each in sequence.logprobs) / len(sequence.logprobs)
            for sequence in best.sequences
        )
        assert first >= second

    def test_best_of_returns_the_requested_number_of_alternatives(self, skewed):
        """best_of needs log-probabilities itself. The number in the call is kept."""
        best = skewed.generate([1], best_of=3, logprobs=2, **SAMPLED)
        assert best.options.logprobs == 2
        for each in best.logprobs:
            assert len(each.top) == 2
            likeliest = np.argsort(-self.TABLE[0])[:2].tolist()
            assert [token for token, _ in each.top] == likeliest

    def test_copies_of_a_prompt_draw_from_separate_streams(self, llm):
        """4 samples each: streams 0 to 3 and 4 to 7. All are equally likely, so the first wins."""
        pair = llm.generate([[1], [1]], best_of=4, **SAMPLED)
        eight = [result.token_ids for result in llm.generate([[1]] * 8, **SAMPLED)]
        assert pair[0].token_ids in eight[:4] and pair[1].token_ids in eight[4:]

    def test_best_of_one_is_that_output(self, llm):
        assert (
            llm.generate([1], best_of=1, **SAMPLED).token_ids
            == llm.generate([1], **SAMPLED).token_ids
        )
        assert llm.generate([1], best_of=1, max_new_tokens=3).token_ids == (3, 3, 3)  # greedy

    def test_no_token_asked_for(self, llm):
        result = llm.generate([1], best_of=3, **{**SAMPLED, "max_new_tokens": 0})
        assert tokens_of(result) == [()]


class TestRefused:
    @pytest.mark.parametrize("name", ["num_return_sequences", "best_of"])
    def test_greedy_choice_has_one_output(self, llm, name):
        with pytest.raises(ValueError, match=rf"^{name}: is 2, expected 1, or a temperature"):
            llm.generate([1], **{name: 2})
        with pytest.raises(ValueError, match=rf"^{name}: is 2"):
            llm.generate([1], temperature=0, top_k=5, **{name: 2})

    @pytest.mark.parametrize("name", ["num_return_sequences", "best_of"])
    def test_a_stream_has_one_output(self, llm, name):
        with pytest.raises(ValueError, match=rf"^{name}: is 2, expected 1 where .* streamed"):
            llm.stream([1], temperature=1.0, **{name: 2})
        assert llm.stats()["running"] == 0

    def test_best_of_below_the_number_of_outputs_is_refused(self, llm):
        with pytest.raises(ValueError, match=r"^best_of: is 2, expected at least num_return_seq"):
            llm.generate([1], temperature=1.0, best_of=2, num_return_sequences=3)

    def test_more_outputs_than_max_sequences_are_refused(self, tmp_path, open_llm):
        llm = open_llm(write_table(tmp_path / "few", chain(8, {1: 3})), max_sequences=2)
        with pytest.raises(ValueError, match=r"num_return_sequences: is 3, .* max_sequences"):
            llm.generate([1], temperature=1.0, num_return_sequences=3)
        result = llm.generate([[1]] * 3, temperature=1.0, num_return_sequences=2, max_new_tokens=2)
        assert [tokens_of(r) for r in result] == [[(3, 3)] * 2] * 3
