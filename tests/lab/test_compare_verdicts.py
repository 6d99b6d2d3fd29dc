"""``onward compare``: figures of agreement compared with a hand calculation, and verdicts on
synthetic logits. No model is loaded.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from builders.compare_sides import FIRST
from onward.errors import InvalidArgument, NumericsError
from onward.lab.compare import noise
from onward.lab.compare.agreement import joined, positions, summary
from onward.lab.compare.divergence import Judgement, judge
from onward.lab.compare.side import Text

VOCAB = 400  # columns of the logits that these tests draw


class TestAgreement:
    # Two tokens: A's distributions 1/2 : 1/2 and 3/4 : 1/4, B's 3/4 : 1/4 and 1/4 : 3/4.
    A = np.log(np.array([[0.5, 0.5], [0.75, 0.25]])).astype(np.float32)
    B = np.log(np.array([[0.75, 0.25], [0.25, 0.75]])).astype(np.float32)
    KL = (0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25), 0.5 * math.log(3))

    def test_figures_match_a_hand_calculation(self) -> None:
        found = positions(self.A, self.B, [0, 0])
        assert found.divergence == pytest.approx(self.KL, rel=1e-6)
        assert found.same.tolist() == [
            True,
            False,
        ]  # of equal logits the first is the most likely token
        assert found.loss_a == pytest.approx([math.log(2), -math.log(0.75)], rel=1e-6)
        assert found.loss_b == pytest.approx([-math.log(0.75), math.log(4)], rel=1e-6)
        assert found.largest == pytest.approx([math.log(2), math.log(3)], rel=1e-6)
        # Row 1: a is (ln 3/4, ln 1/4), whose deviation is ln 3 / 2, and b - a is (-ln 3, ln 3).
        assert found.noise[1] == pytest.approx(2, rel=1e-6)
        total = summary(found)
        assert total.kl_mean == pytest.approx(sum(self.KL) / 2, rel=1e-6)
        assert total.kl_max == pytest.approx(self.KL[1], rel=1e-6)
        assert total.max_difference == pytest.approx(math.log(3), rel=1e-6)
        squares = math.log(1.5) ** 2 + math.log(2) ** 2 + 2 * math.log(3) ** 2
        assert total.rms_difference == pytest.approx(math.sqrt(squares / 4), rel=1e-6)
        assert (total.top1, total.tokens, total.identical) == (0.5, 2, False)
        assert total.top1_error == pytest.approx(math.sqrt(0.25 / 2))
        assert total.perplexity_a == pytest.approx(math.sqrt(2 / 0.75), rel=1e-6)
        assert total.perplexity_ratio == pytest.approx(math.sqrt(2), rel=1e-6)

    def test_the_same_bits(self) -> None:
        total = summary(positions(self.A, self.A.copy(), [1, 0]))
        assert total.identical and total.top1 == 1 and total.kl_max == 0 and total.noise == 0
        assert total.top1_error == 0.5  # one of two tokens, instead of no error

    def test_the_sign_of_a_zero_counts_as_a_bit(self) -> None:
        zeros = np.zeros((1, 2), np.float32)
        assert not positions(zeros, -zeros, [0]).identical

    def test_a_shift_of_all_logits_is_no_noise(self) -> None:
        found = positions(self.A, self.A + np.float32(2), [0, 0])
        assert found.noise == pytest.approx([0, 0], abs=1e-6)
        assert found.divergence == pytest.approx([0, 0], abs=1e-6)
        assert found.largest == pytest.approx([2, 2])

    def test_figures_cover_the_rows_of_several_texts(self) -> None:
        parts = [positions(self.A[:1], self.B[:1], [0]), positions(self.A[1:], self.B[1:], [0])]
        assert summary(joined(parts)) == summary(positions(self.A, self.B, [0, 0]))

    def test_more_rows_than_one_step_sums(self) -> None:
        a = np.tile(self.A, (20, 1))
        found = positions(a, np.tile(self.B, (20, 1)), [0] * 40)
        assert found.divergence == pytest.approx(self.KL * 20, rel=1e-6)

    def test_different_shapes_and_bad_logits_are_refused(self) -> None:
        with pytest.raises(InvalidArgument, match="logits: are "):
            positions(self.A, self.B[:, :1], [0, 0])
        wrong = self.B.copy()
        wrong[0, 0] = np.inf
        with pytest.raises(NumericsError, match="of B are not all finite"):
            positions(self.A, wrong, [0, 0])


class TestExpectation:
    def test_the_larger_noise_of_both_sides_is_expected(self) -> None:
        bf16 = replace(FIRST, dtype="bf16", weight_dtypes=("bf16",), kv_dtype="bf16", core="d")
        assert noise.expected(FIRST, bf16) == noise.of_side(bf16)
        assert noise.expected(bf16, FIRST) == noise.of_side(bf16)
        assert noise.of_side(bf16) == pytest.approx(
            math.hypot(noise.WEIGHTS["bf16"], noise.CACHE["bf16"])
        )

    def test_every_name_has_an_expectation(self) -> None:
        from onward.load.weights.dtypes import DTYPES
        from onward.options.kv_dtypes import KV_DTYPES

        assert set(noise.CACHE) == set(KV_DTYPES) - {"auto"}
        assert set(noise.WEIGHTS) >= set(DTYPES) - {"auto", "int8", "int4"}

    @pytest.mark.parametrize(
        ("changes", "same"),
        [
            ({}, True),
            ({"threads": 7, "python": "4", "setting": "x", "model": "n", "cache": False}, True),
            ({"isa": "avx512"}, True),
            ({"core": "d"}, False),
            ({"device": "cuda"}, False),
            ({"fingerprint": "n"}, False),
            ({"weight_dtypes": ("f16",)}, False),
            ({"kv_dtype": "f16"}, False),
        ],
    )
    def test_which_bits_are_promised(self, changes: dict[str, Any], same: bool) -> None:
        a, b = FIRST, replace(FIRST, **changes)
        assert noise.same_bits(a, b) is same
        assert (noise.expected(a, b) == 0) is same

    def test_instruction_sets_differ_in_bf16(self) -> None:
        a = replace(FIRST, weight_dtypes=("bf16",))
        assert not noise.same_bits(a, replace(a, isa="avx512"))

    def test_coded_caches_promise_bits_only_with_the_cache(self) -> None:
        a = replace(FIRST, kv_dtype="int8/f16")
        assert noise.same_bits(a, a) and not noise.same_bits(a, replace(a, cache=False))


EXPECTED = 0.01


class Logits:
    """Two texts of 20 tokens in which every first choice is clear: 12, 9, then noise of 1."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(3)
        self.a = [self._rows() for _ in range(2)]
        self.texts = [Text((1,) * 5, (0,) * 20), Text((1,) * 300, (0,) * 20)]

    def _rows(self) -> Any:
        rows = self.random.standard_normal((20, VOCAB))
        rows[:, 0], rows[:, 1] = 12, 9
        return rows.astype(np.float32)

    def noisy(self, scale: float) -> list[Any]:
        """The logits of B: noise of this many standard deviations of A's logits."""
        return [
            (a + scale * a.std() * self.random.standard_normal(a.shape)).astype(np.float32)
            for a in self.a
        ]

    def judge(self, b: list[Any], expected: float = EXPECTED) -> Judgement:
        found = [
            positions(x, y, text.written) for x, y, text in zip(self.a, b, self.texts, strict=True)
        ]
        return judge(self.texts, self.a, b, found, expected)


@pytest.fixture
def logits() -> Logits:
    return Logits()


class TestVerdicts:
    def test_the_same_bits(self, logits: Logits) -> None:
        judgement = logits.judge([a.copy() for a in logits.a])
        assert judgement.verdict == "bit-identical" and not judgement.fault
        assert judgement.reasons == ("all 40 rows of logits have the same bits",)

    def test_expected_noise_and_no_flip(self, logits: Logits) -> None:
        judgement = logits.judge(logits.noisy(EXPECTED))
        assert judgement.verdict == "agreement" and judgement.divergences == ()
        assert judgement.worst_text_noise == pytest.approx(EXPECTED, rel=0.1)
        assert judgement.growth == pytest.approx(1, abs=0.2)

    def test_a_near_tie_is_a_coin_flip(self, logits: Logits) -> None:
        logits.a[1][7, 1] = np.float32(12 - 1e-3)
        b = logits.noisy(EXPECTED)
        b[1][7, :2] = 12, 12.001
        judgement = logits.judge(b)
        assert judgement.verdict == "coin flip" and not judgement.fault
        (flip,) = judgement.divergences
        assert (flip.text, flip.written, flip.position) == (1, 7, 307)
        assert (flip.token_a, flip.token_b, flip.rank_b_in_a) == (0, 1, 1)
        assert flip.margin_a == pytest.approx(1e-3, rel=1e-2)
        assert flip.margin_b == pytest.approx(1e-3, rel=1e-2)
        # Two logits with noise of a hundredth of A's deviation each.
        assert flip.noise == pytest.approx(math.sqrt(2) * EXPECTED * logits.a[1].std(), rel=0.2)
        assert flip.times == pytest.approx(1e-3 / flip.noise, rel=1e-2)
        assert "text 2, written token 8" in judgement.reasons[0]
        assert "a coin flip, not a fault" in judgement.reasons[0]

    def test_a_clear_choice_that_flips_is_suspected(self, logits: Logits) -> None:
        b = logits.noisy(EXPECTED)
        b[0][3, 0] = 8  # only one logit, which no figure over the vocabulary shows
        judgement = logits.judge(b)
        assert judgement.verdict == "suspected fault" and judgement.fault
        assert not judgement.divergences[0].coin_flip
        assert any("far above it" in reason for reason in judgement.reasons)

    def test_noise_in_all_positions_does_not_excuse_a_flip(self, logits: Logits) -> None:
        """A fault in all positions adds noise, but the expected noise does not grow with it."""
        b = logits.noisy(0.5)
        b[0][3, :2] = 9, 12
        judgement = logits.judge(b)
        cap = math.sqrt(2) * noise.PEAK_FACTOR * EXPECTED * float(logits.a[0][3].std())
        assert judgement.fault and judgement.divergences[0].noise == pytest.approx(cap, rel=1e-3)

    def test_noise_beyond_expectation_without_a_flip(self, logits: Logits) -> None:
        judgement = logits.judge(logits.noisy(noise.LEVEL_FACTOR * EXPECTED * 1.2))
        assert judgement.fault and judgement.divergences == ()
        assert "times the 0.01 measured for these dtypes" in judgement.reasons[0]

    def test_noise_in_one_text_is_a_fault(self, logits: Logits) -> None:
        b = logits.noisy(EXPECTED / 10)
        b[1] = logits.noisy(noise.LEVEL_FACTOR * EXPECTED * 1.2)[1]
        judgement = logits.judge(b)
        assert judgement.fault
        assert judgement.reasons[0].startswith("text 2: noise ")
        assert judgement.growth is not None and judgement.growth > 10
        assert "rotary positions" in judgement.reasons[-1]

    def test_noise_at_one_position_is_a_fault(self, logits: Logits) -> None:
        b = logits.noisy(EXPECTED)
        b[0][5] = logits.noisy(noise.PEAK_FACTOR * EXPECTED * 1.2)[0][5]
        judgement = logits.judge(b)
        assert judgement.fault
        assert any(reason.startswith("one position: noise ") for reason in judgement.reasons)

    def test_different_bits_where_equal_bits_are_promised_are_a_fault(self, logits: Logits) -> None:
        b = [a.copy() for a in logits.a]
        b[0][0, 5] = np.nextafter(b[0][0, 5], np.float32(100))
        judgement = logits.judge(b, expected=0.0)
        assert judgement.fault and "promise the same bits" in judgement.reasons[0]
        assert logits.judge(b).verdict == "agreement"

    def test_equal_logits_are_no_preference(self, logits: Logits) -> None:
        logits.a[0][2, 1] = 12
        b = [a.copy() for a in logits.a]
        b[0][2, 1] = np.nextafter(np.float32(12), np.float32(13))
        judgement = logits.judge(b)
        assert judgement.verdict == "coin flip" and judgement.divergences[0].times == 0
