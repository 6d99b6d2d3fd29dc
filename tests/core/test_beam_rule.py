"""The engine's beam search equals the simple implementation (builders/beam_oracle.py): every
hypothesis and its score, on random models, with processors, with groups, and the settled tokens.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.beam_oracle import Processors, Rule, Search, beam_search
from builders.beam_requests import Beams, log_probs_after, search
from builders.core_engine import Shape, new_engine, seeded_model
from builders.distributions import table_engine
from onward import _core

MODELS = 300
PROCESSED = 100
RULED = 60
TIED = 60
GROUPED = 100
SAME_SCORE = 1e-5


class Case:
    """A random model, prompt and rule; even seeds have attention, odd ones a table."""

    def __init__(self, seed: int, *, groups: bool = False, ties: bool = False) -> None:
        self.random = np.random.default_rng(seed)
        self.vocab = int(self.random.integers(12, 41))
        table = 1.5 * self.random.standard_normal((self.vocab, self.vocab))
        if seed % 2 == 1 or ties:
            self.engine = table_engine(table.round() if ties else table)
        else:
            self.engine = self._transformer(seed)
        size = int(self.random.integers(1, 9))
        self.prompt = tuple(self.random.integers(0, self.vocab, size).tolist())
        eos = self.random.choice(self.vocab, self.random.integers(1, 3), replace=False)
        self.rule = Rule(
            num_beams=int(self.random.integers(2, 5)),
            max_new_tokens=int(self.random.integers(1, 13)),
            eos=tuple(sorted(eos.tolist())),
            length_penalty=float(self.random.choice([-1, 0, 0.5, 1, 2])),
            early_stopping=(True, False, "never")[self.random.integers(3)],
        )
        if groups:
            beams, parts = ((2, 2), (4, 2), (4, 4), (6, 3), (6, 2))[self.random.integers(5)]
            penalty = float(self.random.choice([0, 0.3, 1.0, 5.0]))
            self.rule = replace(
                self.rule, num_beams=beams, num_beam_groups=parts, diversity_penalty=penalty
            )

    def _transformer(self, seed: int) -> _core.Engine:
        sizes = {"hidden_size": 32, "intermediate_size": 40, "num_heads": 2, "num_kv_heads": 1}
        shape = Shape(vocab_size=self.vocab, num_layers=1, head_dim=16, **sizes)
        return new_engine(seeded_model("f32", shape, seed), threads=1)

    def expected(self, processors: Processors | None = None) -> Search:
        @functools.cache
        def log_probs(output: tuple[int, ...]) -> Any:
            row = log_probs_after(self.engine, self.prompt + output)
            if processors is None:
                return row
            return processors.apply(row, self.prompt, output, self.rule.eos)

        return beam_search(log_probs, self.rule)

    def found(self, **options: Any) -> Beams:
        beams = dict(self.rule.__dict__)
        del beams["eos"], beams["stops"]
        return search(
            self.engine, self.prompt, stop_token_ids=list(self.rule.eos), **beams, **options
        )


def assert_equal(found: Beams, expected: Search, rule: Rule) -> None:
    assert [tokens for tokens, _ in found.scored] == [list(h.tokens) for h in expected.results]
    for rank, hypothesis in found.hypotheses.items():
        assert hypothesis.score == pytest.approx(expected.results[rank].score, abs=SAME_SCORE)
        ended = rule.ends(tuple(hypothesis.tokens))
        assert hypothesis.finish == ("stop" if ended else "length")
    assert found.reported == [*expected.settled[:-1], len(expected.results[0].tokens)]


@pytest.mark.parametrize("seed", range(MODELS))
def test_all_hypotheses_and_scores_of_a_random_model(seed):
    """Each token is reported in the step in which all possible results share it."""
    case = Case(seed)
    assert_equal(case.found(), case.expected(), case.rule)


@pytest.mark.parametrize("seed", range(PROCESSED))
def test_processors_change_log_probabilities(seed):
    """Processors run in the order of the chain, on the log-probabilities of each beam."""
    case = Case(1000 + seed)
    processors = Processors(
        repetition_penalty=float(case.random.choice([1.0, 1.3, 0.8])),
        no_repeat_ngram_size=int(case.random.choice([0, 2, 3])),
        suppress_tokens=tuple(case.random.integers(0, case.vocab, 2).tolist()),
        min_new_tokens=int(case.random.integers(0, case.rule.max_new_tokens + 1)),
    )
    assert_equal(case.found(**processors.__dict__), case.expected(processors), case.rule)


@pytest.mark.parametrize("seed", range(RULED))
def test_rules_end_hypotheses_like_end_tokens(seed):
    """A step considers no additional candidates for them, so fewer beams, or none, may stay
    alive."""
    case = Case(3000 + seed, groups=seed % 3 == 0)
    divisor = int(case.random.choice([2, 3, 7]))
    case.rule = replace(case.rule, stops=lambda output: sum(output[-3:]) % divisor == 0)
    size = len(case.prompt)

    def rule(token_ids: NDArray[np.int32]) -> bool:
        return bool(token_ids[size:][-3:].sum() % divisor == 0)

    assert_equal(case.found(end_rules=[rule]), case.expected(), case.rule)


@pytest.mark.parametrize("seed", range(TIED))
def test_ties_go_to_the_lower_beam_then_the_lower_token(seed):
    """Logits are whole numbers from a few: most steps have a tie among their best candidates. Of
    equal finished hypotheses the older one is first."""
    case = Case(4000 + seed, groups=seed % 4 == 0, ties=True)
    assert_equal(case.found(), case.expected(), case.rule)


@pytest.mark.parametrize("seed", range(GROUPED))
def test_groups_search_one_after_another(seed):
    """Each group has its own finished hypotheses. A token costs the penalty for every beam of an
    earlier group that chose it in this step."""
    case = Case(2000 + seed, groups=True)
    assert_equal(case.found(), case.expected(), case.rule)


def test_the_random_cases_cover_every_kind_of_end():
    """Hypotheses that end and that are cut, early stops, tokens that are settled before the end."""
    endings, early, settled_before_the_end = set(), 0, 0
    for seed in range(60):
        case = Case(seed)
        expected = case.expected()
        endings |= {hypothesis.tokens[-1] in case.rule.eos for hypothesis in expected.results}
        early += len(expected.settled) < case.rule.max_new_tokens
        settled_before_the_end += any(expected.settled[:-1])
    assert endings == {True, False}
    assert early >= 5
    assert settled_before_the_end >= 5
