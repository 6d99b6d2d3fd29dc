"""The real sampler on distributions with a known filtered form.

The distribution is: each 40 %, the 30 %, everything 18 %, them 12 %. 20,000 draws are compared with
the expected shares by a chi-square that a correct sampler exceeds once in a million (the seeds are
fixed, so it never does).
"""

from __future__ import annotations

import numpy as np
import pytest

from builders.core_engine import complete, drain, submit
from builders.distributions import (
    assert_distribution,
    draws_along_steps,
    draws_over_seeds,
    log_probabilities,
    possible,
    table_engine,
)

EACH, THE, EVERYTHING, THEM = range(4)
WORDS = log_probabilities([0.40, 0.30, 0.18, 0.12])
CITIES = log_probabilities([0.97, 0.015, 0.01, 0.005])  # Paris, Lyon, Marseille, Berlin
P = log_probabilities([0.5, 0.3, 0.15, 0.05])


@pytest.fixture(params=[draws_along_steps, draws_over_seeds], ids=["steps", "seeds"])
def draw(request):
    """20,000 draws: of one seed along its steps, and of 20,000 seeds at their first step."""
    return request.param


class TestDistributions:
    def test_without_filters_the_whole_distribution_is_drawn(self, draw):
        expected = {EACH: 0.40, THE: 0.30, EVERYTHING: 0.18, THEM: 0.12}
        assert_distribution(draw(WORDS), expected)

    def test_top_k_3(self, draw):
        """40, 30 and 18 stay and are divided by 0.88: 45.5 %, 34.1 %, 20.5 %."""
        expected = {EACH: 0.40 / 0.88, THE: 0.30 / 0.88, EVERYTHING: 0.18 / 0.88}
        assert round(expected[EACH], 3) == 0.455
        assert_distribution(draw(WORDS, top_k=3), expected)

    def test_top_p_keeps_the_token_that_crosses(self, draw):
        """40, 70, 88, 100: the fourth crosses 0.9 and stays, so nothing changes."""
        expected = {EACH: 0.40, THE: 0.30, EVERYTHING: 0.18, THEM: 0.12}
        assert_distribution(draw(WORDS, top_p=0.9), expected)

    def test_top_p_with_a_certain_token(self, draw):
        assert_distribution(draw(CITIES, top_p=0.9), {0: 1.0})

    def test_top_p_renormalises(self, draw):
        """P = .5 .3 .15 .05. At .6 two stay (5/8, 3/8), at .9 three (10/19, 6/19, 3/19)."""
        assert_distribution(draw(P, top_p=0.6), {0: 0.625, 1: 0.375})
        assert_distribution(draw(P, top_p=0.9), {0: 0.52632, 1: 0.31579, 2: 0.15789})

    def test_top_k_comes_before_top_p(self, draw):
        """k = 2 leaves 5/8 and 3/8; then 5/8 alone reaches .55. The other way round p = .55 keeps
        two, and so does k: the second would come 37.5 % of the time."""
        assert_distribution(draw(P, top_k=2, top_p=0.55), {0: 1.0})

    def test_temperature_comes_before_top_p(self, draw):
        """At T = 2 probabilities go as square roots, .3788 .2934 .2075 .1198 (sums .379 .672 .880),
        so p = .75 keeps three. Before the temperature it would keep two."""
        roots = np.sqrt([0.5, 0.3, 0.15])
        expected = dict(enumerate((roots / roots.sum()).tolist()))
        assert round(expected[0], 4) == 0.4306
        assert_distribution(draw(P, temperature=2.0, top_p=0.75), expected)

    def test_min_p_is_relative_to_the_most_likely_token(self, draw):
        """.3 x 40 % = 12 %: THEM is exactly at the limit, and 0.31 drops it."""
        expected = {EACH: 0.40 / 0.88, THE: 0.30 / 0.88, EVERYTHING: 0.18 / 0.88}
        assert_distribution(draw(WORDS, min_p=0.31), expected)

    def test_temperature_sharpens_and_flattens(self, draw):
        for temperature in (0.5, 2.0):
            powers = np.array([0.40, 0.30, 0.18, 0.12]) ** (1 / temperature)
            expected = dict(enumerate((powers / powers.sum()).tolist()))
            assert_distribution(draw(WORDS, temperature=temperature), expected)

    def test_sixteen_equal_tokens(self, draw):
        assert_distribution(draw(np.zeros(16)), dict.fromkeys(range(16), 1 / 16))


class TestTopP:
    @pytest.mark.parametrize(
        ("p", "kept"), [(0, 1), (0.5, 1), (0.51, 2), (0.8, 2), (0.81, 3), (1.0, 3)]
    )
    def test_boundaries_are_the_same_as_in_transformers(self, p, kept):
        """Probabilities .5 .3 .2: reaching p exactly is enough, and one token always stays."""
        assert possible(log_probabilities([0.5, 0.3, 0.2]), top_p=p) == set(range(kept))

    def test_it_looks_at_what_top_k_left(self):
        """.5 and .3 are 62.5 % and 37.5 % of the tokens that k = 2 keeps."""
        assert possible(P, top_k=2, top_p=0.62) == {0}
        assert possible(P, top_k=2, top_p=0.63) == {0, 1}

    def test_a_nucleus_of_thousands(self):
        """1,000 equal tokens share half of the mass, the last token has the other half: p = .75
        keeps that one and the 500 of lower id."""
        logits = log_probabilities([0.5 / 1000] * 1000 + [0.5])
        assert possible(logits, top_p=0.5) == {1000}
        drawn = draws_along_steps(logits, top_p=0.75)
        assert (drawn == 1000).mean() == pytest.approx(0.5 / 0.75, abs=0.02)
        assert set(drawn) == {*range(500), 1000}


class TestTopK:
    def test_ties_with_the_kth_stay(self):
        """[3, 2, 2, 2, 1] with k = 2 keeps four."""
        assert possible([3, 2, 2, 2, 1], temperature=2.0, top_k=2) == {0, 1, 2, 3}

    @pytest.mark.parametrize(("k", "kept"), [(0, 4), (1, 1), (3, 3), (4, 4), (5, 4), (10**12, 4)])
    def test_edges(self, k, kept):
        assert possible(WORDS, top_k=k) == set(range(kept))


class TestMinP:
    @pytest.mark.parametrize(("min_p", "kept"), [(0, 4), (0.29, 4), (0.31, 3), (0.76, 1), (1, 1)])
    def test_edges(self, min_p, kept):
        assert possible(WORDS, min_p=min_p) == set(range(kept))

    def test_min_p_of_one_keeps_the_best_and_its_ties(self):
        assert possible([1, 3, 2, 3], min_p=1) == {1, 3}

    def test_min_p_applies_after_the_temperature(self):
        """At T = 2 the second has sqrt(.75) = 86.6 % of the best, at T = 1 75 %."""
        assert possible(WORDS, min_p=0.8) == {EACH}
        assert possible(WORDS, min_p=0.8, temperature=2.0) == {EACH, THE}


class TestTemperature:
    CLOSE = (9.99, 10.0, 9.99, -100.0)

    @pytest.mark.parametrize("temperature", [0, 1e-6, 1e-38, 1e-45, 5e-324])
    def test_a_tiny_temperature_is_the_argmax(self, temperature):
        """9.99 / 1e-45 is far beyond float32, and beyond float64 for the last of them."""
        assert possible(self.CLOSE, temperature=temperature) == {1}

    @pytest.mark.parametrize("temperature", [1e-6, 1e-45])
    def test_a_tiny_temperature_keeps_exact_ties(self, temperature):
        assert possible([2, 5, 5, 1], temperature=temperature) == {1, 2}

    @pytest.mark.parametrize("temperature", [1e30, 1.7e308])
    def test_a_huge_temperature_is_uniform(self, temperature):
        tokens = draws_along_steps(self.CLOSE, temperature=temperature)
        assert_distribution(tokens, dict.fromkeys(range(4), 0.25))

    def test_logits_near_the_end_of_float32_do_not_overflow(self):
        """Differences of 2e38: the exponentials are 1 and 0, never infinity or NaN."""
        assert possible([-3e38, 1e38, 3e38, 3e38]) == {2, 3}
        assert possible([-3e38, -3.1e38, -3.2e38, -3.3e38]) == {0}

    def test_greedy_takes_the_first_of_equals(self):
        assert possible([1, 7, 7, 7], temperature=0) == {1}


class TestRepetitionPenalty:
    """M-TABLE row 3: token 3 has -1.0, token 4 has -1.2; the prompt is [3]."""

    LOGITS = (-100.0, -100.0, -100.0, -1.0, -1.2)

    @pytest.mark.parametrize("penalty", [1.5, 2.0])
    def test_negative_logits_are_multiplied(self, penalty):
        """-1.0 x 1.5 = -1.5 < -1.2. A division would make the repetition more likely: -0.67."""
        engine = table_engine(np.tile(self.LOGITS, (5, 1)))
        assert complete(engine, [[3]], max_new_tokens=1, repetition_penalty=penalty) == [[4]]
        assert complete(engine, [[3]], max_new_tokens=1) == [[3]]

    def test_positive_logits_are_divided(self):
        """2.0 / 1.5 = 1.3333 < 1.8."""
        engine = table_engine(np.tile([-100.0, -100.0, -100.0, 2.0, 1.8], (5, 1)))
        assert complete(engine, [[3]], max_new_tokens=1, repetition_penalty=1.5) == [[4]]

    def test_a_repeated_token_is_penalised_once(self):
        """Twenty times in the prompt: still -1.1, not -1.0 x 1.1 ** 20 = -6.7."""
        engine = table_engine(np.tile(self.LOGITS, (5, 1)))
        assert complete(engine, [[3] * 20], max_new_tokens=1, repetition_penalty=1.1) == [[3]]

    def test_the_output_is_penalised_too(self):
        """3 first (-1 against -2 and -3), which makes it -3.5; 4 then has -2 and becomes -7; then
        2 has -3 and becomes -10.5; of -3.5, -7 and -10.5 the best is 3 again, for good."""
        engine = table_engine(np.tile([-100.0, -100.0, -3.0, -1.0, -2.0], (5, 1)))
        found = complete(engine, [[0]], max_new_tokens=5, repetition_penalty=3.5)
        assert found == [[3, 4, 2, 3, 3]]

    def test_a_penalty_below_one_encourages_repetition(self):
        engine = table_engine(np.tile(self.LOGITS, (5, 1)))
        assert complete(engine, [[4]], max_new_tokens=1, repetition_penalty=0.5) == [[4]]

    def test_other_rows_of_a_batch_are_not_penalised(self):
        engine = table_engine(np.tile(self.LOGITS, (5, 1)))
        found = complete(engine, [[4], [3], [4]], max_new_tokens=1, repetition_penalty=1.5)
        assert found == [[3], [4], [3]]


class TestMinNewTokens:
    """Token 2 ends the text and is always the most likely; 3 is always the second."""

    TABLE = np.tile([-100.0, -100.0, 1.0, 0.0, -1.0], (5, 1))

    @pytest.mark.parametrize("minimum", [0, 1, 5, 7])
    def test_no_stop_token_before_the_minimum(self, minimum):
        engine = table_engine(self.TABLE)
        request = submit(engine, [1], max_new_tokens=7, min_new_tokens=minimum, stop_token_ids=[2])
        output = drain(engine, [request])[request]
        assert output.tokens == [3] * minimum + [2] * (minimum < 7)
        assert output.finish == ("length" if minimum == 7 else "stop")

    def test_every_stop_token_is_masked(self):
        engine = table_engine(self.TABLE)
        found = complete(engine, [[1]], max_new_tokens=4, min_new_tokens=4, stop_token_ids=[3, 2])
        assert found == [[4, 4, 4, 4]]

    def test_it_holds_when_sampling(self):
        engine = table_engine(self.TABLE)
        [tokens] = complete(
            engine,
            [[1]],
            max_new_tokens=400,
            min_new_tokens=400,
            stop_token_ids=[2],
            temperature=1.0,
        )
        assert set(tokens) == {3, 4}

    def test_a_request_without_a_choice_fails_alone(self):
        engine = table_engine(self.TABLE)
        stuck = submit(
            engine, [1], max_new_tokens=4, min_new_tokens=4, stop_token_ids=[0, 1, 2, 3, 4]
        )
        fine = submit(engine, [1], max_new_tokens=2)
        outputs = drain(engine, [stuck, fine])
        assert outputs[stuck].finish == "error"
        assert "every token is masked" in outputs[stuck].error
        assert outputs[fine].tokens == [2, 2]


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("temperature", [-1, -1e-9, float("nan"), float("inf")]),
        ("top_k", [-1, -(2**40)]),
        ("top_p", [-0.1, 1.01, float("nan")]),
        ("min_p", [-0.1, 1.01, float("nan")]),
        ("repetition_penalty", [0, -1, float("nan"), float("inf")]),
        ("max_new_tokens", [-1]),
        ("min_new_tokens", [-1]),
    ],
)
def test_impossible_values_are_refused_by_name(option, values):
    engine = table_engine(WORDS)
    for value in values:
        with pytest.raises(ValueError, match=rf"{option}.*: found .*, expected "):
            submit(engine, [0], **{"temperature": 1.0, option: value})
    assert complete(engine, [[0]], max_new_tokens=2) == [[EACH, EACH]]
