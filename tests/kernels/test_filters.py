"""Filters of the sampler on distributions whose filtered form is known."""

from __future__ import annotations

import math

import numpy as np
import onward_kernels
import pytest
from numpy.typing import NDArray

from builders.core_engine import complete, submit
from builders.distributions import (
    assert_distribution,
    draws_along_steps,
    log_probabilities,
    possible,
    table_engine,
)
from onward import _core

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
    def test_tokens_nearest_to_the_entropy_are_kept(self, p, kept):
        assert round(ENTROPY, 3) == 1.142
        assert possible(P, typical_p=p) == kept

    def test_typical_renormalises(self):
        assert_distribution(draws_along_steps(P, typical_p=0.5), {0: 0.625, 1: 0.375})

    def test_ties_with_the_last_kept_token_are_kept(self):
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
    def test_tokens_within_standard_deviations_of_the_best_are_kept(self, n, kept):
        """2 / 1.2247 = 1.633 and 3 / 1.2247 = 2.449."""
        assert possible([4, 2, 1, 1], temperature=3.0, top_n_sigma=n) == set(range(kept))

    @pytest.mark.parametrize("temperature", [2.0, 7.0])
    def test_top_n_sigma_does_not_depend_on_the_temperature(self, temperature):
        assert possible([4, 2, 1, 1], temperature=temperature, top_n_sigma=1.7) == {0, 1}

    def test_banned_tokens_do_not_count(self):
        """Logits 4 and 2 alone: the deviation is 1, and 2 is two deviations away."""
        banned = {"suppress_tokens": [2, 3], "temperature": 3.0}
        assert possible([4, 2, 1, 1], top_n_sigma=1.9, **banned) == {0}
        assert possible([4, 2, 1, 1], top_n_sigma=2.1, **banned) == {0, 1}

    def test_it_looks_at_the_whole_vocabulary(self):
        """After top_k = 2 the deviation would be 1, and a limit of 1.7 would drop the second
        token."""
        assert possible([4, 2, 1, 1], temperature=3.0, top_k=2, top_n_sigma=1.7) == {0, 1}


class TestEpsilon:
    @pytest.mark.parametrize(
        ("epsilon", "kept"), [(0, 4), (0.04, 4), (0.06, 3), (0.2, 2), (0.4, 1), (0.6, 1), (1, 1)]
    )
    def test_less_likely_tokens_are_dropped_and_one_is_kept(self, epsilon, kept):
        assert possible(P, epsilon_cutoff=epsilon) == set(range(kept))

    def test_ties_with_the_best_are_kept(self):
        assert possible([2, 5, 5, 1], epsilon_cutoff=0.9) == {1, 2}


class TestEta:
    """exp(-1.142) = .3192: eta .2 cuts at min(.2, .447 * .319 = .1427), eta .25 at .1596, both
    under epsilon; eta .01 at min(.01, .0319)."""

    @pytest.mark.parametrize(("epsilon", "kept"), [(0, 4), (0.01, 4), (0.2, 3), (0.25, 2)])
    def test_the_smaller_of_the_two_bounds(self, epsilon, kept):
        assert possible(P, eta_cutoff=epsilon) == set(range(kept))

    def test_eta_differs_from_epsilon(self):
        assert possible(P, epsilon_cutoff=0.2) == {0, 1}
        assert possible(P, eta_cutoff=0.2) == {0, 1, 2}

    def test_a_flat_distribution_loses_nothing(self):
        """Four times .25: min(.9, .949 * .25 = .237)."""
        assert possible([0, 0, 0, 0], eta_cutoff=0.9) == {0, 1, 2, 3}


class TestXtc:
    def test_all_likely_tokens_except_the_least_likely_are_dropped(self):
        """At .12 three are likely: .5 and .3 go, .15 and .05 stay."""
        drawn = draws_along_steps(P, xtc_probability=1.0, xtc_threshold=0.12)
        assert_distribution(drawn, {2: 0.75, 3: 0.25})

    def test_one_likely_token_is_not_dropped(self):
        assert possible(P, xtc_probability=1.0, xtc_threshold=0.4) == {0, 1, 2, 3}
        assert possible(P, xtc_probability=1.0, xtc_threshold=0.9) == {0, 1, 2, 3}

    def test_xtc_applies_with_its_probability(self):
        """Half of the draws from P, half from .75 and .25: .25, .15, .075 + .375, .025 + .125."""
        drawn = draws_along_steps(P, xtc_probability=0.5, xtc_threshold=0.12)
        assert_distribution(drawn, {0: 0.25, 1: 0.15, 2: 0.45, 3: 0.15})

    def test_draws_without_xtc_equal_draws_without_the_option(self):
        plain = draws_along_steps(P)
        assert (draws_along_steps(P, xtc_probability=1e-9) == plain).all()
        struck = draws_along_steps(P, xtc_probability=0.1, xtc_threshold=0.12)
        assert 0.85 < (struck == plain).mean() < 0.99

    def test_xtc_comes_after_the_other_filters(self):
        """k = 2 leaves 5/8 and 3/8. Both reach .35, so only the second stays."""
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

    def test_a_range_below_zero_begins_at_zero(self):
        """1 - 3 is below 0: from 0 to 4 by (1.1421 / ln 4) ** 4 = .4607, so at 1.8428, the powers
        are .6865, .5203, .3572, .1968 and their sum 1.7608. Not clamped it would be at
        -2 + 6 * .4607 = .7642, where the first token has .565 instead of .390."""
        assert round((ENTROPY / math.log(4)) ** 4, 4) == 0.4607
        drawn = draws_along_steps(P, dynatemp_range=3.0, dynatemp_exponent=4.0)
        powers = {0: 0.6865, 1: 0.5203, 2: 0.3572, 3: 0.1968}
        assert_distribution(drawn, {i: p / 1.7608 for i, p in powers.items()})

    @pytest.mark.parametrize(("spread", "exponent"), [(0.5, 1.0), (0.9, 3.0), (2.0, 0.5)])
    def test_the_temperature_follows_the_entropy(self, spread, exponent):
        drawn = draws_along_steps(P, dynatemp_range=spread, dynatemp_exponent=exponent)
        assert_distribution(drawn, self.expected(1.0, spread, exponent))

    def test_a_certain_token_gets_the_lowest_temperature(self):
        """The entropy is practically 0: temperature 1 - 1 = 0."""
        assert possible([30.0, 0, 0, 0], dynatemp_range=1.0) == {0}
        assert possible([0, 1], dynatemp_range=1e308, temperature=1.7e308) == {0, 1}

    def test_greedy_choice_stays_greedy(self):
        assert possible(P, temperature=0.0, dynatemp_range=5.0) == {0}


class TestMirostat:
    def test_the_first_cut_is_twice_tau(self):
        """Surprises of P in bits: 1, 1.74, 2.74, 4.32. With eta 0 the cut stays at 2 tau."""
        for tau, kept in ((0.4, 1), (0.51, 1), (0.9, 2), (1.5, 3), (2.2, 4)):
            found = possible(P, mirostat=2, mirostat_tau=tau, mirostat_eta=0.0)
            assert found == set(range(kept))

    def test_the_cut_follows_the_chosen_tokens(self):
        """A second implementation of the rule follows the drawn tokens. Surprises are 1, 2, 2 bits
        and the cut begins at 1.2, so the filter keeps one token or all three, never two."""
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

    def test_the_mean_surprise_converges_to_tau(self):
        """400 tokens with an entropy of 7.9 bits. The mean surprise of the chosen tokens converges
        to tau, because the cut changes by each difference and stays within bounds."""
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

    def test_mirostat_replaces_the_other_filters(self):
        assert possible(P, mirostat=2, mirostat_tau=9.0, top_k=1, top_p=0.1) == {0, 1, 2, 3}

    def test_each_sequence_has_its_own_state(self):
        engine = table_engine(np.random.default_rng(1).standard_normal((12, 12)))
        options = {"max_new_tokens": 24, "temperature": 1.2, "mirostat": 2, "mirostat_tau": 1.5}
        options |= {"mirostat_eta": 0.8, "seed": 3}
        prompts = [[1], [2, 3], [4], [1]]
        together = complete(engine, prompts, **options)
        assert together == [complete(engine, [prompt], **options)[0] for prompt in prompts]


kernels = onward_kernels
SIZES = [1, 2, 63, 64, 65, 4097, 20_011, 128_256]


def rows(n: int) -> dict[str, NDArray[np.float32]]:
    """Logits of a vocabulary of n tokens: peaked, flat, with ties, with bans, with outliers."""
    generator = np.random.default_rng(n)
    normal = generator.standard_normal(n)
    peaked = 3 * normal
    peaked[generator.integers(0, n, 3)] = [14, 16, 19]
    outliers = np.where(generator.random(n) < 0.3, -3.4e38, normal)
    outliers[0] = 1
    banned = np.where(generator.random(n) < 0.3, -np.inf, 2 * normal)
    banned[-1] = 2
    narrow = -1 + 2e-5 * generator.random(n)
    narrow[0] = 0
    values = {
        "narrow": narrow,
        "peaked": peaked,
        "spread": 3 * normal,
        "flat": normal / 2,
        "rising": np.linspace(-9, 4, n),
        "ties": np.round(2 * normal) / 2,
        "equal": np.full(n, 7.0),
        "outliers": outliers,
        "banned": banned,
    }
    return {name: row.astype(np.float32) for name, row in values.items()}


class Oracle:
    """Scores, weights and the order of a row, by float64 and a full sort."""

    def __init__(self, row: NDArray[np.float32]) -> None:
        self.ids = np.flatnonzero(row > -np.inf)
        self.score = (row[self.ids] - row.max()).astype(np.float64)
        self.p = np.exp(self.score) / np.exp(self.score).sum()
        self.entropy = -(self.p * np.log(np.maximum(self.p, 1e-300))).sum()

    def ids_where(self, keep: NDArray[np.bool_]) -> list[int]:
        return self.ids[keep].tolist()

    def assert_reaches(self, kept: NDArray[np.int32], key: NDArray[np.float64], p: float) -> None:
        """``kept`` are the first by key, ties by id, that reach p; at float32 resolution."""
        order = np.lexsort((self.ids, -key))
        first = order[: len(kept)]
        assert sorted(self.ids[first].tolist()) == kept.tolist()
        mass = self.p[first].sum()
        assert mass >= p - 1e-6
        assert len(kept) == 1 or mass - self.p[first[-1]] < p + 1e-6


@pytest.mark.parametrize("n", SIZES)
class TestAgainstAFullSort:
    """Every filter on vocabularies of every size, where candidates are selected and not sorted."""

    @pytest.mark.parametrize("p", [0.0, 0.001, 0.2, 0.5, 0.9, 0.99, 0.999999])
    def test_top_p(self, n, p):
        for row in rows(n).values():
            oracle = Oracle(row)
            kept, _ = kernels.filter(row, [("top_p", p)])
            oracle.assert_reaches(kept, oracle.score, p)

    @pytest.mark.parametrize("p", [0.001, 0.2, 0.9, 0.999])
    def test_typical(self, n, p):
        for row in rows(n).values():
            oracle = Oracle(row)
            kept, _ = kernels.filter(row, [("typical_p", p)])
            distance = np.abs(-np.log(np.maximum(oracle.p, 1e-300)) - oracle.entropy)
            last = distance[np.isin(oracle.ids, kept)].max()
            # All tokens that are nearer by more than a rounding error, and no token that is
            # farther.
            nearer = oracle.ids_where(distance < last - 1e-5)
            assert set(nearer) <= set(kept.tolist())
            assert oracle.p[np.isin(oracle.ids, kept)].sum() >= p - 1e-6
            assert not nearer or oracle.p[distance < last - 1e-5].sum() < p + 1e-6

    @pytest.mark.parametrize("k", [1, 2, 40, 129, 5000, 100_000])
    def test_top_k(self, n, k):
        for row in rows(n).values():
            oracle = Oracle(row)
            least = np.sort(oracle.score)[-k] if k < len(oracle.score) else -np.inf
            kept, _ = kernels.filter(row, [("top_k", k)])
            assert kept.tolist() == oracle.ids_where(oracle.score >= least)

    def test_thresholds(self, n):
        for row in rows(n).values():
            oracle = Oracle(row)
            best = oracle.score == 0
            eta = min(0.01, 0.1 * math.exp(-oracle.entropy))
            sigmas = (0 - oracle.score) / max(oracle.score.std(), 1e-300)
            for step, keep in {
                ("min_p", 0.013): oracle.p >= 0.013 * oracle.p.max(),
                ("epsilon_cutoff", 0.0007): (oracle.p >= 0.0007) | best,
                ("eta_cutoff", 0.01): (oracle.p >= eta) | best,
                ("top_n_sigma", 1.3): (sigmas <= 1.3) | best,
            }.items():
                kept, _ = kernels.filter(row, [step])
                assert kept.tolist() == oracle.ids_where(keep), step

    def test_xtc(self, n):
        for row in rows(n).values():
            oracle = Oracle(row)
            likely = np.flatnonzero(oracle.p >= 0.0003)
            least = [i for i in likely if oracle.score[i] == oracle.score[likely].min()][-1:]
            keep = oracle.p < 0.0003
            keep[least] = True
            kept, _ = kernels.filter(row, [("xtc_threshold", 0.0003)])
            assert kept.tolist() == oracle.ids_where(keep)

    def test_log_probabilities_and_the_best_of_the_remaining_tokens(self, n):
        steps = [("min_p", 0.001), ("temperature", 0.7)]
        for row in rows(n).values():
            oracle = Oracle(row)
            keep = oracle.p >= 0.001 * oracle.p.max()
            score = oracle.score[keep] / 0.7
            expected = score - np.log(np.exp(score).sum())
            kept, found = kernels.filter(row, steps)
            assert kept.tolist() == oracle.ids_where(keep)
            assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
            ids, best = kernels.best_filtered(row, steps, 7)
            order = np.lexsort((kept, -(score.astype(np.float32))))[:7]
            assert ids.tolist() == kept[order].tolist()
            assert (best == found[order]).all()

    def test_draws_are_the_inverse_transform(self, n):
        uniforms = [0.0, *np.random.default_rng(n).random(50), 1 - 2**-53]
        for row in rows(n).values():
            for steps in ([], [("top_p", 0.8)]):
                ids, logs = kernels.filter(row, steps)
                upper = np.cumsum(np.exp(logs.astype(np.float64)))
                for uniform, token in zip(
                    uniforms, kernels.draws(row, steps, uniforms), strict=True
                ):
                    place = np.searchsorted(ids, token)
                    assert ids[place] == token
                    assert upper[place] >= uniform - 1e-5
                    assert place == 0 or upper[place - 1] <= uniform + 1e-5

    def test_best_tokens(self, n):
        for row in rows(n).values():
            oracle = Oracle(row)
            order = np.lexsort((oracle.ids, -oracle.score))
            assert kernels.first_largest(row) == oracle.ids[order[0]]
            for k in (1, 3, 20, 300):
                ids, scores = kernels.best_tokens(row, k)
                assert ids.tolist() == oracle.ids[order[:k]].tolist()
                assert (scores == row[ids]).all()

    def test_log_softmax(self, n):
        for row in rows(n).values():
            wide = row.astype(np.float64)
            total = row.max() + np.log(np.exp(wide - row.max()).sum())
            assert kernels.log_sum_exp(row) == pytest.approx(total, abs=1e-6)
            assert np.allclose(kernels.log_softmax(row), wide - total, rtol=1e-6, atol=1e-6)


def test_a_row_with_only_bans_has_no_best_token():
    row = np.full(100, -np.inf, np.float32)
    assert kernels.first_largest(row) == -1
    assert len(kernels.best_tokens(row, 5)[0]) == 0
    assert kernels.log_sum_exp(row) == -math.inf
    assert (kernels.log_softmax(row) == row).all()


def test_a_tiny_temperature_late_in_the_chain_keeps_the_best_remaining_token():
    """XTC has dropped the best. The scores of the others, divided by 1e-40, overflow a float."""
    steps = [("xtc_threshold", 0.12), ("temperature", 1e-40)]
    assert kernels.filter(P, steps)[0].tolist() == [2]
    assert kernels.draws(P, steps, [0.0, 0.5, 0.99]) == [2, 2, 2]


def test_a_chain_has_the_same_bits_on_every_instruction_set(run_python):
    """Each runs in its own process, because a process chooses its scans once."""
    source = """
import hashlib, test_filters
for row in test_filters.rows(20011).values():
    steps = [("top_n_sigma", 4), ("top_k", 9000), ("top_p", 0.97), ("typical_p", 0.95)]
    for array in test_filters.kernels.filter(row, [*steps, ("temperature", 0.9)]):
        print(hashlib.sha256(array.tobytes()).hexdigest())
"""
    outputs = {
        isa: run_python(source, ONWARD_CPU_ISA=isa).stdout for isa in _core.kernels.available()
    }
    assert outputs["generic"].count("\n") == 2 * len(rows(1))
    assert set(outputs.values()) == {outputs["generic"]}, outputs


def test_a_row_of_a_batch_equals_the_row_alone():
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
