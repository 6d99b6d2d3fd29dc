"""``onward compare``: verdicts just below and just above each threshold, and the first sentence of
a report for known figures.

The expected numbers are literals, so a threshold that is changed by mistake fails.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.compare_sides import FIRST, SECOND
from onward.lab.compare.agreement import Agreement, positions
from onward.lab.compare.comparison import Comparison, Ratios, SideReport
from onward.lab.compare.cost import fault_sentence, headline, names
from onward.lab.compare.divergence import Divergence, Judgement, judge
from onward.lab.compare.fail_on import failures, parse_conditions
from onward.lab.compare.side import Footprint, Text

VOCAB, ROWS, EXPECTED = 300, 20, 0.01
TEXT = Text((1,) * 5, (0,) * ROWS)
SIGNS = np.where(np.arange(VOCAB) % 2 == 0, 1.0, -1.0)
"""Mean 0 and standard deviation 1 over the vocabulary."""


def first_logits() -> NDArray[np.float64]:
    """Token 0 is the most likely by 3, and token 2 is the second."""
    rows = np.random.default_rng(3).standard_normal((ROWS, VOCAB))
    rows[:, 0], rows[:, 2] = 12, 9
    return rows


def verdict(a: NDArray[np.float64], noise: float | NDArray[np.float64]) -> Judgement:
    """B has exactly this relative noise in each row, and no token that flips."""
    levels = np.broadcast_to(noise, ROWS)[:, None]
    b = a + levels * a.std(axis=1, keepdims=True) * SIGNS
    rows = [x.astype(np.float32) for x in (a, b)]
    found = positions(rows[0], rows[1], TEXT.written)
    return judge([TEXT], [rows[0]], [rows[1]], [found], EXPECTED)


@pytest.mark.parametrize(("times", "fault"), [(2.97, False), (3.03, True)])
def test_the_noise_of_a_text_may_be_three_times_the_expected(times: float, fault: bool) -> None:
    judgement = verdict(first_logits(), times * EXPECTED)
    assert judgement.worst_text_noise == pytest.approx(times * EXPECTED, rel=1e-3)
    assert (judgement.verdict, judgement.fault) == (
        "suspected fault" if fault else "agreement",
        fault,
    )


@pytest.mark.parametrize(("times", "fault"), [(11.9, False), (12.1, True)])
def test_the_noise_of_one_position_may_be_twelve_times_the_expected(
    times: float, fault: bool
) -> None:
    noise = np.zeros(ROWS)
    noise[7] = times * EXPECTED
    judgement = verdict(first_logits(), noise)
    assert judgement.worst_position_noise == pytest.approx(times * EXPECTED, rel=1e-3)
    assert judgement.fault is fault


@pytest.mark.parametrize(("times", "fault"), [(4.8, False), (5.2, True)])
def test_a_token_may_flip_within_five_times_the_noise(times: float, fault: bool) -> None:
    a = first_logits()
    level = EXPECTED * a.std(axis=1)
    b = a + level[:, None] * SIGNS
    noise = math.sqrt(2) * level[7]
    a[7, 1] = a[7, 0] - times * noise
    b[7, 1] = b[7, 0] + 1e-4  # only this logit, which hardly changes the noise over the vocabulary
    b[7, 3:] = a[7, 3:] + level[7] * SIGNS[3:] * math.sqrt(1 - times**2 * 2 / VOCAB)
    rows = [x.astype(np.float32) for x in (a, b)]
    found = positions(rows[0], rows[1], TEXT.written)
    judgement = judge([TEXT], [rows[0]], [rows[1]], [found], EXPECTED)
    (flip,) = judgement.divergences
    assert flip.times == pytest.approx(times, rel=0.03)
    assert judgement.fault is fault and flip.coin_flip is not fault


def comparison(
    *,
    top1: float = 1.0,
    perplexity_ratio: float = 1.0,
    ratios: tuple[Ratios, ...] = (),
    **more: Any,
) -> Comparison:
    """The parts of ``Comparison`` that headlines and conditions read."""
    agreement = {"tokens": 192, "identical": False, "top1": top1}
    agreement["perplexity_ratio"] = perplexity_ratio
    found = cast(Any, object.__new__(Agreement))
    vars(found).update(agreement)
    made = cast(Any, object.__new__(Comparison))
    sides = []
    for description, footprint in (
        (FIRST, Footprint(2.0, 400, None)),
        (SECOND, Footprint(0.5, 112, None)),
    ):
        sides.append(SideReport(description, footprint, ()))
    vars(made).update(
        a=sides[0],
        b=sides[1],
        texts=(TEXT,) * 4,
        agreement=found,
        ratios=ratios,
        judgement=Judgement("agreement", (), EXPECTED, 0.01, 0.02, None, ()),
    )
    return cast(Comparison, made)


TWO_DEPTHS = (Ratios(0, None, 2.1), Ratios(512, 0.8, 1.2), Ratios(2048, 0.9, 1.6))


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("decode_ratio<1.3", True),
        ("decode_ratio>1.3", False),
        ("prefill_ratio<0.85", True),
        ("prefill_ratio>0.85", False),
        ("load_ratio<0.3", True),
        ("load_ratio>1", False),
        ("weight_ratio<0.3", True),
        ("weight_ratio>1", False),
    ],
)
def test_ratios_are_b_over_a_at_the_worst_depth(condition: str, holds: bool) -> None:
    found = failures(parse_conditions(condition), comparison(ratios=TWO_DEPTHS))
    assert bool(found) is holds


def test_the_first_sentence_gives_the_costs() -> None:
    """A model in four bits compared with its float original: a cost, not a coin flip."""
    found = comparison(top1=0.69, perplexity_ratio=1.19, ratios=TWO_DEPTHS)
    assert headline(found) == (
        "cpu:bf16 picks the same token as cpu:f32 in 69.0 % of 192 places; perplexity +19 %; "
        "decodes 1.20 to 2.10 times as fast; its weights take 0.28 times the memory."
    )


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (1.0004, "perplexity unchanged"),
        (1.0006, "perplexity +0.06 %"),
        (0.97, "perplexity -3.0 %"),
        (1.5, "perplexity +50 %"),
    ],
)
def test_perplexity_is_given_in_percent(ratio: float, said: str) -> None:
    assert f"; {said};" in headline(comparison(perplexity_ratio=ratio))


def test_one_difference_in_many_tokens_is_not_rounded_to_zero() -> None:
    assert "in 99.9 % of 192 places" in headline(comparison(top1=0.99999))
    assert "in all 192 places" in headline(comparison(top1=1.0))


def test_equal_settings_are_called_a_and_b() -> None:
    found = comparison()
    vars(found)["b"] = replace(found.b, description=found.a.description)
    assert names(found) == ("A, cpu:f32", "B, cpu:f32")


def test_coin_flips_are_counted_and_are_not_a_fault() -> None:
    flip = Divergence(0, 5, 0, 0, 1, 0.1, 0.1, 1, 0.1, 1.25)
    found = comparison(top1=0.69)
    judgement = Judgement("coin flip", ("x",), 0.3, 0.29, 0.5, None, (flip,) * 3)
    vars(found)["judgement"] = judgement
    assert fault_sentence(found) == (
        "No fault is suspected: the noise of 0.29 in the worst text is within 3 times the 0.3 that "
        "these dtypes are expected to make; 3 of 4 texts part at a coin flip, where A's margin is "
        "at most 1.2 times the noise (5 are allowed)."
    )
