"""Filters of the draw on distributions whose filtered form is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from builders.core_engine import complete, submit
from builders.distributions import (
    assert_distribution,
    draws_along_steps,
    log_probabilities,
    possible,
    table_engine,
)

P = log_probabilities([0.5, 0.3, 0.15, 0.05])
ENTROPY = -sum(p * math.log(p) for p in (0.5, 0.3, 0.15, 0.05))


class TestTypical:
    """Surprises of P: .693 1.204 1.897 2.996, entropy 1.142: nearest is 1 (.062), then 0 (.449),
    2 (.755), 3 (1.854)."""

    @pytest.mark.parametrize(
        ("p", "kept"),
        [
            (0.01, {1}),
            (0.3, {1}),
            (0.31, {1, 0}),
            (0.8, {1, 0}),
            (0.81, {1, 0, 2}),
            (1, {*range(4)}),
        ],
    )
    def test_by_distance_to_the_entropy(self, p, kept):
        assert round(ENTROPY, 3) == 1.142
        assert possible(P, typical_p=p) == kept

    def test_it_renormalises(self):
        assert_distribution(draws_along_steps(P, typical_p=0.5), {0: 0.625, 1: 0.375})

    def test_ties_with_the_last_stay(self):
        """Four equal tokens are equally typical."""
        assert possible([1, 1, 1, 1], typical_p=0.1) == {0, 1, 2, 3}

    def test_it_looks_at_what_top_k_left(self):
        """Of 5/8 and 3/8 (entropy .662) the first (.470) is nearer than the second (.981)."""
        assert possible(P, top_k=2, typical_p=0.1) == {0}


class TestTopNSigma:
    """4 2 1 1: mean 2, deviation sqrt((4 + 0 + 1 + 1) / 4) = 1.2247."""

    @pytest.mark.parametrize(
        ("n", "kept"), [(0, 4), (0.001, 1), (1.63, 1), (1.64, 2), (2.44, 2), (2.45, 4)]
    )
    def test_standard_deviations_from_the_best(self, n, kept):
        """2 / 1.2247 = 1.633 and 3 / 1.2247 = 2.449."""
        assert possible([4, 2, 1, 1], temperature=3.0, top_n_sigma=n) == set(range(kept))

    @pytest.mark.parametrize("temperature", [2.0, 7.0])
    def test_whatever_the_temperature(self, temperature):
        assert possible([4, 2, 1, 1], temperature=temperature, top_n_sigma=1.7) == {0, 1}

    def test_banned_tokens_do_not_count(self):
        """4 2 alone: deviation 1, and 2 is 2 of it away."""
        banned = {"suppress_tokens": [2, 3], "temperature": 3.0}
        assert possible([4, 2, 1, 1], top_n_sigma=1.9, **banned) == {0}
        assert possible([4, 2, 1, 1], top_n_sigma=2.1, **banned) == {0, 1}

    def test_it_looks_at_the_whole_vocabulary(self):
        """After top_k = 2 the deviation would be 1, and 1.7 of it would drop the second."""
        assert possible([4, 2, 1, 1], temperature=3.0, top_k=2, top_n_sigma=1.7) == {0, 1}


class TestEpsilon:
    @pytest.mark.parametrize(
        ("epsilon", "kept"), [(0, 4), (0.04, 4), (0.06, 3), (0.2, 2), (0.4, 1), (0.6, 1), (1, 1)]
    )
    def test_less_likely_ones_go_and_one_stays(self, epsilon, kept):
        assert possible(P, epsilon_cutoff=epsilon) == set(range(kept))

    def test_ties_with_the_best_stay(self):
        assert possible([2, 5, 5, 1], epsilon_cutoff=0.9) == {1, 2}


class TestEta:
    """exp(-1.142) = .3192: eta .2 cuts at min(.2, .447 * .319 = .1427), eta .25 at .1596, both
    under epsilon; eta .01 at min(.01, .0319)."""

    @pytest.mark.parametrize(("epsilon", "kept"), [(0, 4), (0.01, 4), (0.2, 3), (0.25, 2)])
    def test_the_smaller_of_the_two_bounds(self, epsilon, kept):
        assert possible(P, eta_cutoff=epsilon) == set(range(kept))

    def test_it_differs_from_epsilon(self):
        assert possible(P, epsilon_cutoff=0.2) == {0, 1}
        assert possible(P, eta_cutoff=0.2) == {0, 1, 2}

    def test_a_flat_distribution_loses_nothing(self):
        """Four times .25: min(.9, .949 * .25 = .237)."""
        assert possible([0, 0, 0, 0], eta_cutoff=0.9) == {0, 1, 2, 3}


class TestXtc:
    def test_all_but_the_least_of_the_likely_go(self):
        """At .12 three are likely: .5 and .3 go, .15 and .05 stay."""
        drawn = draws_along_steps(P, xtc_probability=1.0, xtc_threshold=0.12)
        assert_distribution(drawn, {2: 0.75, 3: 0.25})

    def test_one_likely_token_is_not_dropped(self):
        assert possible(P, xtc_probability=1.0, xtc_threshold=0.4) == {0, 1, 2, 3}
        assert possible(P, xtc_probability=1.0, xtc_threshold=0.9) == {0, 1, 2, 3}

    def test_so_often_as_asked(self):
        """Half the time P, half the time .75 and .25: .25, .15, .075 + .375, .025 + .125."""
        drawn = draws_along_steps(P, xtc_probability=0.5, xtc_threshold=0.12)
        assert_distribution(drawn, {0: 0.25, 1: 0.15, 2: 0.45, 3: 0.15})

    def test_where_it_does_not_strike_the_draw_is_as_without(self):
        plain = draws_along_steps(P)
        assert (draws_along_steps(P, xtc_probability=1e-9) == plain).all()
        struck = draws_along_steps(P, xtc_probability=0.1, xtc_threshold=0.12)
        assert 0.85 < (struck == plain).mean() < 0.99

    def test_after_the_other_filters(self):
        """k = 2 leaves 5/8 and 3/8; both reach .35, so the second alone stays."""
        assert possible(P, top_k=2, xtc_probability=1.0, xtc_threshold=0.35) == {1}


class TestDynamicTemperature:
    def expected(self, temperature: float, spread: float, exponent: float) -> dict[int, float]:
        """The rule: low + (high - low) * (entropy / ln 4) ** exponent."""
        low = max(0, temperature - spread)
        share = ENTROPY / math.log(4)
        powers = np.array([0.5, 0.3, 0.15, 0.05]) ** (
            1 / (low + (temperature + spread - low) * share**exponent)
        )
        return dict(enumerate((powers / powers.sum()).tolist()))

    @pytest.mark.parametrize(("spread", "exponent"), [(0.5, 1.0), (0.9, 3.0), (2.0, 0.5)])
    def test_by_the_entropy(self, spread, exponent):
        drawn = draws_along_steps(P, dynatemp_range=spread, dynatemp_exponent=exponent)
        assert_distribution(drawn, self.expected(1.0, spread, exponent))

    def test_a_certainty_gets_the_lowest(self):
        """Entropy 0 in all but name: temperature 1 - 1 = 0."""
        assert possible([30.0, 0, 0, 0], dynatemp_range=1.0) == {0}
        assert possible([0, 1], dynatemp_range=1e308, temperature=1.7e308) == {0, 1}

    def test_greedy_stays_greedy(self):
        assert possible(P, temperature=0.0, dynatemp_range=5.0) == {0}


class TestMirostat:
    def test_the_first_cut_is_twice_tau(self):
        """Surprises of P in bits: 1, 1.74, 2.74, 4.32. With eta 0 the cut stays at 2 tau."""
        for tau, kept in ((0.4, 1), (0.51, 1), (0.9, 2), (1.5, 3), (2.2, 4)):
            found = possible(P, mirostat=2, mirostat_tau=tau, mirostat_eta=0.0)
            assert found == set(range(kept))

    def test_the_cut_follows_what_was_chosen(self):
        """The rule once more, followed along the drawn tokens. Surprises are 1, 2, 2 bits and the
        cut begins at 1.2, so it comes to keep one token and all three, never two."""
        p = [0.5, 0.25, 0.25]
        tau, eta = 0.6, 0.7
        logits = log_probabilities(p)
        [tokens] = complete(
            table_engine(logits),
            [[0]],
            max_new_tokens=200,
            temperature=1.0,
            mirostat=2,
            mirostat_tau=tau,
            mirostat_eta=eta,
        )
        cut, kept_sizes = 2 * tau, set()
        for token in tokens:
            kept = [i for i in range(3) if -math.log2(p[i]) <= cut + 1e-6] or [0]
            kept_sizes.add(len(kept))
            assert token in kept
            surprise = -math.log2(p[token] / sum(p[i] for i in kept))
            cut -= eta * (surprise - tau)
        assert kept_sizes == {1, 3}

    def test_the_mean_surprise_comes_to_tau(self):
        """400 tokens of 7.9 bits together. The mean surprise among the kept comes to tau, for the
        cut moves by each difference and stays within bounds."""
        logits = np.random.default_rng(0).standard_normal(400).astype(np.float32)
        p = np.exp(logits) / np.exp(logits).sum()
        tau, eta = 5.0, 0.1
        tokens = draws_along_steps(logits, mirostat=2, mirostat_tau=tau, mirostat_eta=eta)
        bits = -np.log2(p)
        cut, surprises = 2 * tau, []
        for token in tokens[:4000]:
            assert bits[token] <= cut + 1e-4
            surprises.append(bits[token] + np.log2(p[bits <= cut].sum()))
            cut -= eta * (surprises[-1] - tau)
        assert np.mean(surprises) == pytest.approx(tau, abs=0.05)
        assert -(p * np.log2(p)).sum() > tau + 2

    def test_filters_give_way(self):
        assert possible(P, mirostat=2, mirostat_tau=9.0, top_k=1, top_p=0.1) == {0, 1, 2, 3}

    def test_each_sequence_has_its_own_state(self):
        engine = table_engine(np.random.default_rng(1).standard_normal((12, 12)))
        options = {"max_new_tokens": 24, "temperature": 1.2, "mirostat": 2, "mirostat_tau": 1.5}
        options |= {"mirostat_eta": 0.8, "seed": 3}
        prompts = [[1], [2, 3], [4], [1]]
        together = complete(engine, prompts, **options)
        assert together == [complete(engine, [prompt], **options)[0] for prompt in prompts]


def test_a_row_of_a_batch_is_what_it_is_alone():
    engine = table_engine(np.random.default_rng(2).standard_normal((12, 12)))
    options = {
        "max_new_tokens": 24,
        "temperature": 1.5,
        "seed": 7,
        "typical_p": 0.9,
        "top_n_sigma": 2.5,
        "epsilon_cutoff": 0.01,
        "eta_cutoff": 0.02,
        "xtc_probability": 0.5,
        "dynatemp_range": 0.5,
    }
    prompts = [[1], [2, 3, 2, 3], [4] * 7]
    assert complete(engine, prompts, **options) == [
        complete(engine, [prompt], **options)[0] for prompt in prompts
    ]


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("typical_p", [0.0, 1.1, math.nan]),
        ("top_n_sigma", [-1.0, math.nan, math.inf]),
        ("epsilon_cutoff", [-0.1, 1.1]),
        ("eta_cutoff", [-0.1, math.nan]),
        ("xtc_probability", [1.1, math.nan]),
        ("xtc_threshold", [-0.1, 2.0]),
        ("dynatemp_range", [-1.0, math.inf]),
        ("dynatemp_exponent", [-1.0, math.nan]),
        ("mirostat", [1, -2]),
        ("mirostat_tau", [-1.0, math.inf]),
        ("mirostat_eta", [math.nan]),
    ],
)
def test_the_core_refuses_by_name(option, values):
    engine = table_engine(P)
    for value in values:
        with pytest.raises(ValueError, match=rf"{option}: found .*, expected "):
            submit(engine, [0], **{"temperature": 1.0, option: value})
