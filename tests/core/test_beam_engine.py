"""Beam search in the engine: the same bits with any other requests, shared blocks, sampled beams,
and the sum of the log-probabilities.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from builders.beam_requests import drain_beams, log_probs_after, search, submit_beams
from builders.core_engine import (
    Shape,
    complete,
    new_engine,
    random_prompt,
    seeded_model,
    submit,
)
from builders.distributions import log_probabilities, table_engine
from onward import _core

BLOCK = 16  # tokens of a cache block
PAIRS = 5_000
MODEL_SHAPE = Shape(num_layers=2, windows=(0, 23))


@functools.cache
def model(dtype: str) -> _core.Model:
    return seeded_model(dtype, MODEL_SHAPE)


def engine_for(dtype: str, threads: int, chunk: int, places: int = 256) -> _core.Engine:
    return _core.Engine(
        model(dtype), threads=threads, prefill_chunk_tokens=chunk, max_sequences=places
    )


SEARCHES: tuple[dict[str, Any], ...] = (
    {"num_beams": 4},
    {"num_beams": 3, "early_stopping": "never", "length_penalty": 0.5, "repetition_penalty": 1.2},
    {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.7, "logprobs": 1},
    {"num_beams": 3, "temperature": 1.5, "top_k": 40, "seed": 7},
    {"num_beams": 2, "cache": False},
)
PROMPT_LENGTHS = (40, 16, 1, 33, 20)


def prompt_of(index: int) -> Any:
    return random_prompt(PROMPT_LENGTHS[index], seed=50 + index)


def options_of(index: int) -> dict[str, Any]:
    return {"max_new_tokens": 10, "stop_token_ids": [9, 200], **SEARCHES[index]}


@functools.cache
def alone(dtype: str, index: int) -> Any:
    """All tokens and scores with one thread, the prompt in one step, and no other request."""
    engine = engine_for(dtype, threads=1, chunk=512)
    return search(engine, prompt_of(index), **options_of(index)).scored


@pytest.mark.parametrize("dtype", ["f32", "bf16", "int8"])
class TestSameBits:
    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("chunk", [1, 3, 512])
    def test_in_a_batch_with_greedy_sampled_and_other_beam_requests(self, dtype, threads, chunk):
        engine = engine_for(dtype, threads, chunk)
        others = {"max_new_tokens": 12}
        greedy = submit(engine, prompt_of(0), **others)
        requests = [submit_beams(engine, prompt_of(i), **options_of(i)) for i in range(3)]
        sampled = submit(engine, prompt_of(1), temperature=0.9, seed=3, **others)
        requests += [submit_beams(engine, prompt_of(i), **options_of(i)) for i in (3, 4)]
        found = drain_beams(engine, requests, plain=[greedy, sampled])
        for index, request in enumerate(requests):
            assert found[request].scored == alone(dtype, index)
        single = engine_for(dtype, 1, 512)
        one = complete(single, [prompt_of(0)], **others)
        assert [found[greedy].hypotheses[0].tokens] == one
        one = complete(single, [prompt_of(1)], temperature=0.9, seed=3, **others)
        assert [found[sampled].hypotheses[0].tokens] == one
        assert engine.stats()["cache_blocks_in_use"] == 0

    @pytest.mark.parametrize("index", range(len(SEARCHES)))
    def test_with_the_cache_and_without(self, dtype, index):
        cache = not SEARCHES[index].get("cache", True)
        for chunk in (5, 512):
            engine = engine_for(dtype, 2, chunk)
            found = search(engine, prompt_of(index), **{**options_of(index), "cache": cache})
            assert found.scored == alone(dtype, index)

    def test_two_searches_with_places_for_one_run_in_turn(self, dtype):
        """Two searches of four beams and four places: one after the other."""
        engine = engine_for(dtype, 2, 512, places=4)
        requests = [submit_beams(engine, prompt_of(i), **options_of(i)) for i in (0, 2)]
        found = drain_beams(engine, requests)
        assert [found[request].scored for request in requests] == [
            alone(dtype, 0),
            alone(dtype, 2),
        ]


class TestCacheBlocks:
    @pytest.mark.parametrize("length", [400, 395, 399])
    def test_beams_share_the_blocks_of_the_prompt(self, length):
        """While four beams live on a prompt of L tokens, with n tokens in the cache each, only
        blocks that hold output differ: L // 16 are shared, and each beam has at most
        ceil(n / 16) - L // 16 of its own. Copies of all would be 4 * 26 blocks."""
        engine = new_engine(seeded_model("f32", Shape(num_layers=2)))  # no windows
        submit_beams(engine, random_prompt(length), num_beams=4, max_new_tokens=30)
        shared, most, steps, ended = length // BLOCK, 0, 0, False
        while not ended:
            ended = any(event.ends_request for event in engine.step())
            steps += 1
            cached = length + steps - 1
            blocks = engine.stats()["cache_blocks_in_use"]
            assert blocks <= shared + 4 * (-(-cached // BLOCK) - shared)
            most = max(most, blocks)
        assert steps > 25
        assert shared + 4 <= most <= shared + 4 * 3
        assert engine.stats()["cache_blocks_in_use"] == 0

    @pytest.mark.parametrize(("chunk", "steps"), [(16, 1), (16, 6), (16, 9), (3, 22), (3, 27)])
    def test_a_cancelled_search_returns_its_blocks(self, chunk, steps):
        """During the prompt, after it, and while one of four beams waits for its turn."""
        engine = engine_for("f32", 2, chunk)
        request = submit_beams(engine, random_prompt(60), num_beams=4, max_new_tokens=30)
        for _ in range(steps):
            engine.step()
        assert engine.stats()["cache_blocks_in_use"] > 0
        engine.cancel(request)
        assert engine.stats()["cache_blocks_in_use"] == engine.stats()["running"] == 0
        found = search(engine, prompt_of(0), **options_of(0))
        assert found.scored == alone("f32", 0)

    def test_each_position_is_computed_once_for_each_beam(self):
        """The prompt is computed once for all beams. Then each step computes four tokens, except
        the last step."""
        engine = engine_for("f32", 2, 512)
        search(engine, random_prompt(100), num_beams=4, max_new_tokens=5)
        assert engine.stats()["kv_computations"] == 100 + 4 * 4


class TestSampledBeams:
    PROBABILITIES = (0.5, 0.3, 0.15, 0.05)

    def test_a_seed_gives_the_same_beams_and_another_one_others(self):
        engine = engine_for("f32", 2, 512)
        options = {"num_beams": 3, "temperature": 1.0, "max_new_tokens": 12}
        found = [search(engine, prompt_of(0), seed=seed, **options).scored for seed in (1, 2, 1)]
        assert found[0] == found[2] != found[1]

    def test_copies_of_a_prompt_draw_different_beams(self):
        """Copies of a prompt in one call draw from one stream each."""
        engine = engine_for("f32", 2, 512)
        options = {"num_beams": 3, "temperature": 1.0, "max_new_tokens": 12, "seed": 1}
        requests = [submit_beams(engine, prompt_of(0), stream=n, **options) for n in (0, 1)]
        found = drain_beams(engine, requests)
        assert found[requests[0]].scored != found[requests[1]].scored

    def test_one_step_of_two_beams_is_two_draws_without_replacement(self):
        """The first is a with p(a), the second then b with p(b) / (1 - p(a)). Results are ordered
        by score, so the order of the draws is unknown."""
        p = self.PROBABILITIES
        pairs: Counter[frozenset[int]] = Counter()
        engine = table_engine(log_probabilities(p), chunk=500)
        options = {"num_beams": 2, "temperature": 1.0, "max_new_tokens": 1}
        for first in range(0, PAIRS, 500):
            seeds = range(first, first + 500)
            requests = [submit_beams(engine, [0], seed=seed, **options) for seed in seeds]
            for beams in drain_beams(engine, requests).values():
                pairs[frozenset(token for [token], _ in beams.scored)] += 1
        expected: Counter[frozenset[int]] = Counter()
        for a, b in permutations(range(4), 2):
            expected[frozenset((a, b))] += PAIRS * p[a] * p[b] / (1 - p[a])
        statistic = sum((pairs[pair] - n) ** 2 / n for pair, n in expected.items())
        assert set(pairs) == set(expected)
        assert statistic < 35.9, (pairs, expected)  # 5 degrees of freedom, once in a million

    def test_groups_draw_independently(self):
        """Two groups of one beam and no penalty: equal once in .5^2 + .3^2 + .15^2 + .05^2 = .365,
        give or take 6 standard deviations of 1,000 trials."""
        engine = table_engine(log_probabilities(self.PROBABILITIES), chunk=500)
        options = {"num_beams": 2, "num_beam_groups": 2, "temperature": 1.0, "max_new_tokens": 1}
        requests = [submit_beams(engine, [0], seed=seed, **options) for seed in range(1000)]
        found = drain_beams(engine, requests)
        equal = sum(len({tokens[0] for tokens, _ in f.scored}) == 1 for f in found.values())
        assert abs(equal - 365) < 6 * math.sqrt(1000 * 0.365 * 0.635)

    @pytest.mark.parametrize(
        ("options", "tokens"),
        [
            ({"temperature": 2.0}, {0, 1, 2, 3}),
            ({"temperature": 1.0, "top_k": 2}, {0, 1}),
            ({"temperature": 2.0, "xtc_probability": 1.0, "xtc_threshold": 0.25}, {1, 2, 3}),
        ],
    )
    def test_scores_are_log_probabilities_over_the_temperature(self, options, tokens):
        """Not normalised again after the filters, whichever tokens these drop: XTC the likeliest
        of all, since at temperature 2 the second is above .25 as well (.548 / 1.706 = .32)."""
        engine = table_engine(log_probabilities(self.PROBABILITIES))
        seen = set()
        for seed in range(20):
            found = search(engine, [0], num_beams=2, max_new_tokens=1, seed=seed, **options)
            for [token], score in found.scored:
                seen.add(token)
                expected = math.log(self.PROBABILITIES[token]) / options["temperature"]
                assert score == pytest.approx(expected, abs=1e-5)
        assert seen == tokens


class TestLogProbabilities:
    @pytest.mark.parametrize("index", range(4))
    @pytest.mark.parametrize("length_penalty", [1.0, 0.5])
    def test_log_probabilities_of_tokens_add_up_to_the_score(self, index, length_penalty):
        """Values of the chain, after processors, penalty and temperature, are added to the sum."""
        engine = engine_for("f32", 2, 512)
        options = {**options_of(index), "logprobs": 2, "length_penalty": length_penalty}
        found = search(engine, prompt_of(index), **options)
        for hypothesis in found.hypotheses.values():
            assert len(hypothesis.log_probs) == len(hypothesis.tokens)
            total = math.fsum(each.chain for each in hypothesis.log_probs)
            score = total / len(hypothesis.tokens) ** length_penalty
            assert score == pytest.approx(hypothesis.score, abs=1e-9)
            text = [*prompt_of(index).tolist(), *hypothesis.tokens]
            for i, each in enumerate(hypothesis.log_probs):
                raw = log_probs_after(engine, text[: len(prompt_of(index)) + i])
                assert each.raw == pytest.approx(raw[hypothesis.tokens[i]], abs=1e-6)
                assert [token for token, _ in each.raw_top] == np.argsort(-raw)[:2].tolist()
                assert len(each.chain_top) == 2

    def test_a_token_has_the_log_probability_of_its_own_group(self):
        """Two groups of one beam, penalty .5, both begin with 3. The first takes the likelier 4, of
        .6, and then one of four tokens: ln .15 in all. The second pays .5 for 3, prefers 5 (ln .4 =
        -.92) to 4 (ln .6 - .5 = -1.01), and is sure from there on: ln .4 - .5, the best."""
        rows = np.full((8, 8), -100.0)
        for token, after in {1: [3], 4: [0, 1, 6, 7], 5: [6], 0: [2], 6: [2]}.items():
            rows[token, after] = -math.log(len(after))
        rows[3, [4, 5]] = math.log(0.6), math.log(0.4)
        options = {"num_beams": 2, "num_beam_groups": 2, "diversity_penalty": 0.5, "logprobs": 0}
        found = search(table_engine(rows), [1], stop_token_ids=[2], **options)
        assert [tokens for tokens, _ in found.scored] == [[3, 5, 6, 2], [3, 4, 0, 2]]
        chain = [each.chain for each in found.hypotheses[0].log_probs]
        assert chain == pytest.approx([-0.5, math.log(0.4), 0, 0], abs=1e-6)
        assert found.hypotheses[0].score == pytest.approx((math.log(0.4) - 0.5) / 4, abs=1e-6)
        assert found.reported == [0, 0, 0, 4]

    def test_alternatives_are_tokens_that_the_chain_kept(self):
        """Of four tokens top_k keeps two; each has ln p / 2 at temperature 2. And of what is asked
        for, as many as there are, although two beams look at four candidates only."""
        p = (0.4, 0.3, 0.15, 0.1, 0.03, 0.02)
        engine = table_engine(log_probabilities(p))
        options = {"num_beams": 2, "max_new_tokens": 1, "logprobs": 6}
        for sampling, count in (({"temperature": 2.0, "top_k": 2, "seed": 1}, 2), ({}, 6)):
            found = search(engine, [0], **options, **sampling)
            scale = sampling.get("temperature", 1)
            for hypothesis in found.hypotheses.values():
                [reported] = hypothesis.log_probs
                expected = [(i, pytest.approx(math.log(p[i]), abs=1e-5)) for i in range(6)]
                assert reported.raw_top == expected
                expected = [
                    (i, pytest.approx(math.log(p[i]) / scale, abs=1e-5)) for i in range(count)
                ]
                assert reported.chain_top == expected

    @pytest.mark.parametrize("chunk", [1, 7, 512])
    def test_prompt_log_probabilities_do_not_depend_on_beams(self, chunk):
        engine = engine_for("f32", 2, chunk)
        reported = {}
        for beams in (True, False):
            options = {"prompt_logprobs": 1, "max_new_tokens": 4}
            request = (
                submit_beams(engine, prompt_of(0), num_beams=3, **options)
                if beams
                else submit(engine, prompt_of(0), **options)
            )
            events: list[_core.Event] = []
            while not events or not events[-1].ends_request:
                events += engine.step()
            assert all(event.request == request for event in events)
            prompt = [each for event in events for each in event.prompt_logprobs]
            reported[beams] = [(each.token, each.raw, each.raw_top) for each in prompt]
        assert reported[True] == reported[False]
        assert len(reported[True]) == len(prompt_of(0)) - 1
