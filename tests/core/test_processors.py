"""Biases, penalties and bans: they change the scores for greedy choice and for sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.core_engine import complete, drain, submit
from builders.distributions import assert_distribution, draws_over_seeds, table_engine
from closed_form import write_table
from onward import LLM
from onward.errors import InvalidArgument
from onward.options.for_engine import chain

ROW = (0.0, 3.0, 2.0, 1.0, -1.0)
"""The same logits after every token: 1 is the most likely, then 2, 3, 0, 4."""


@pytest.fixture
def run() -> Callable[..., list[int]]:
    engine = table_engine(np.tile(ROW, (5, 1)))

    def tokens(prompt: tuple[int, ...] = (0,), count: int = 4, **options: Any) -> list[int]:
        return complete(engine, [prompt], max_new_tokens=count, **options)[0]

    return tokens


def test_without_processors_the_most_likely_token_is_chosen(run):
    assert run() == [1, 1, 1, 1]


class TestLogitBias:
    def test_a_bias_is_added_to_the_logit(self, run):
        """-1 + 4.5 = 3.5 > 3, -1 + 3.5 = 2.5 < 3."""
        assert run(logit_bias={4: 4.5}) == [4] * 4
        assert run(logit_bias={4: 3.5}) == [1] * 4

    @pytest.mark.parametrize("bias", [-100, -math.inf, -1e300])
    def test_a_bias_can_exclude_the_most_likely_token(self, run, bias):
        assert run(logit_bias={1: bias}) == [2] * 4

    def test_a_bias_changes_the_distribution(self):
        """A bias of ln 3 turns .5 and .5 into .75 and .25."""
        tokens = draws_over_seeds([0.0, 0.0], logit_bias={0: math.log(3)})
        assert_distribution(tokens, {0: 0.75, 1: 0.25})

    def test_a_bias_comes_before_the_repetition_penalty(self, run):
        """Token 4: (-1 + 4) / 2 = 1.5 < 1.8; the other way round -1 * 2 + 4 = 2 > 1.8."""
        bias = {4: 4.0, 1: -10.0, 2: -10.0, 3: 0.8}  # token 3 gets 1.8
        assert run((4,), 1, logit_bias=bias, repetition_penalty=2.0) == [3]

    def test_scores_stay_finite_under_any_finite_bias(self, run):
        """Both logits become the largest float32, and the tokens are equally likely."""
        tokens = run(logit_bias={4: 1e300, 3: 1e300}, temperature=1.0, count=200)
        assert set(tokens) == {3, 4}


class TestCountPenalties:
    def test_presence_once_frequency_each_time(self, run):
        """Presence 1.5: 1 has 1.5 after it came, so 2 (2.0); 2 then has .5: 1 (1.5) for good."""
        assert run(count=5, presence_penalty=1.5) == [1, 2, 1, 1, 1]
        # Frequency .6: 1: 3 -> 2.4 -> 1.8 < 2, so 2, which falls to 1.4; then 1 (1.8 -> 1.2), 2.
        assert run(count=5, frequency_penalty=0.6) == [1, 1, 2, 1, 2]

    def test_the_prompt_is_not_penalised(self, run):
        assert run((1, 1, 1), 1, presence_penalty=5.0, frequency_penalty=5.0) == [1]

    def test_they_come_after_the_repetition_penalty(self, run):
        """Token 1, once out: 3 / 1.5 - .5 = 1.5 < 1.6; (3 - .5) / 1.5 = 1.67 would stay ahead."""
        options = {"logit_bias": {2: -0.4}, "repetition_penalty": 1.5, "presence_penalty": 0.5}
        assert run(count=2, **options) == [1, 2]

    def test_negative_penalties_make_tokens_more_likely(self, run):
        options = {"logit_bias": {1: -1.5}, "frequency_penalty": -5.0}
        assert run(count=3, **options) == [2, 2, 2]


class TestNoRepeatNgram:
    def test_bigrams(self, run):
        """0 1 | then 1 1 is new; 1 1 exists: 2 (1 2); 2 1; 1 1 and 1 2 exist: 3."""
        assert run((0,), 6, no_repeat_ngram_size=2) == [1, 1, 2, 1, 3, 1]

    def test_size_one_bans_all_earlier_tokens_and_the_prompt(self, run):
        assert run((1, 0), 3, no_repeat_ngram_size=1) == [2, 3, 4]

    def test_a_request_without_an_allowed_token_fails_alone(self):
        engine = table_engine(np.tile(ROW, (5, 1)))
        stuck = submit(engine, [0], max_new_tokens=9, no_repeat_ngram_size=1)
        fine = submit(engine, [0], max_new_tokens=9)
        outputs = drain(engine, [stuck, fine])
        assert outputs[stuck].tokens == [1, 2, 3, 4]
        assert "every token is masked" in outputs[stuck].error
        assert outputs[fine].tokens == [1] * 9

    @pytest.mark.parametrize("size", range(1, 5))
    def test_no_ngram_of_the_size_is_repeated(self, size):
        engine = table_engine(np.tile(np.zeros(8), (8, 1)))
        request = submit(
            engine,
            [3, 4, 3, 5],
            max_new_tokens=300,
            temperature=1.0,
            no_repeat_ngram_size=size,
        )
        tokens = [3, 4, 3, 5, *drain(engine, [request])[request].tokens]
        grams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
        added = grams[max(0, 4 - size + 1) :]  # those that the output completed
        assert len(set(added)) == len(added)
        assert not set(added) & set(grams[: max(0, 4 - size + 1)])


class TestBadWords:
    def test_one_id_is_never_chosen(self, run):
        assert run(bad_words_ids=[[1]]) == [2] * 4

    def test_a_bad_sequence_is_banned_at_its_last_id(self, run):
        assert run((0,), 6, bad_words_ids=[[1, 1, 1]]) == [1, 1, 2, 1, 1, 2]

    def test_a_bad_sequence_may_begin_in_the_prompt(self, run):
        assert run((4, 0), 2, bad_words_ids=[[4, 0, 1]]) == [2, 1]
        assert run((0,), 1, bad_words_ids=[[4, 0, 1]]) == [1]


class TestAllowedAndSuppressed:
    def test_only_allowed_tokens_are_chosen(self, run):
        assert run(allowed_token_ids=[4, 3]) == [3] * 4
        assert set(run(count=200, allowed_token_ids=[4, 3, 4], temperature=5.0)) == {3, 4}

    def test_suppressed_tokens_are_never_chosen(self, run):
        assert run(suppress_tokens=[1, 2]) == [3] * 4

    @pytest.mark.parametrize(
        "options",
        [
            {"allowed_token_ids": [3], "suppress_tokens": [3]},
            {"logit_bias": dict.fromkeys(range(5), -math.inf)},
            {"suppress_tokens": [0, 1, 2, 3, 4]},
        ],
    )
    @pytest.mark.parametrize("temperature", [0.0, 1.0])
    def test_masking_all_tokens_is_an_error(self, options, temperature):
        engine = table_engine(np.tile(ROW, (5, 1)))
        request = submit(engine, [0], max_new_tokens=1, temperature=temperature, **options)
        output = drain(engine, [request])[request]
        assert output.finish == "error"
        assert "every token is masked" in output.error

    def test_a_penalty_does_not_lift_a_ban(self, run):
        """A penalty of a banned token leaves it banned."""
        options = {"logit_bias": {1: -math.inf}, "repetition_penalty": 0.5}
        assert run((1,), 2, **options, presence_penalty=-9.0) == [2, 2]


class TestDry:
    def test_a_repetition_is_penalised_by_its_length(self, run):
        """0 1 2 0 1: 2 would make a repetition of 2 longer and loses the multiplier, 2 -> 1.5; so
        with 1 suppressed it still beats 3 (1.0), and with a multiplier of 1.5 it does not. After
        4 0 1 2 4 0 1 the repetition has 3, and with a base of 4 2 falls to 2 - .5 * 4 = 0."""
        options = {"suppress_tokens": [1], "dry_base": 4.0}
        short, long = (0, 1, 2, 0, 1), (4, 0, 1, 2, 4, 0, 1)
        assert run(short, 1, **options, dry_multiplier=0.5) == [2]
        assert run(short, 1, **options, dry_multiplier=1.5) == [3]
        assert run(long, 1, **options, dry_multiplier=0.5) == [3]

    def test_shorter_repetitions_are_allowed(self, run):
        options = {"suppress_tokens": [1], "dry_multiplier": 9.0}
        assert run((0, 1, 2, 0, 1), 1, **options, dry_allowed_length=3) == [2]
        assert run((4, 0, 1, 2, 4, 0, 1), 1, **options, dry_allowed_length=3) == [3]

    def test_a_breaker_ends_a_repetition(self, run):
        options = {"suppress_tokens": [1], "dry_multiplier": 9.0}
        assert run((0, 1, 2, 0, 1), 1, **options, dry_sequence_breakers=[0]) == [2]
        assert run((0, 1, 2, 0, 1), 1, **options, dry_sequence_breakers=[2]) == [2]
        assert run((0, 1, 2, 0, 1), 1, **options, dry_sequence_breakers=[4]) == [3]

    def test_penalties_equal_a_plain_search(self):
        """Random texts of three tokens: the penalties by comparing every pair of positions."""
        generator = np.random.default_rng(0)
        engine = table_engine(np.tile([0.3, 0.2, 0.1], (3, 1)))
        for _ in range(60):
            text = generator.integers(0, 3, 24).tolist()
            scores = [0.3, 0.2, 0.1]
            longest: dict[int, int] = {}
            for i in range(1, len(text)):
                n = 0
                while n < i and text[i - 1 - n] == text[-1 - n]:
                    n += 1
                longest[text[i]] = max(longest.get(text[i], 0), n)
            for token, n in longest.items():
                if n >= 2:
                    scores[token] -= 0.15 * 1.2 ** (n - 2)
            [found] = complete(engine, [text], max_new_tokens=1, dry_multiplier=0.15, dry_base=1.2)
            assert found == [int(np.argmax(scores))]

    def test_a_thousand_repetitions_do_not_overflow(self, run):
        """1.75 ** 999 overflows float32. The token is still allowed, as the last choice."""
        assert run((1,) * 1000, 1, dry_multiplier=1.0) == [2]
        assert run((1,) * 1000, 1, dry_multiplier=1.0, allowed_token_ids=[1]) == [1]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_of_a_batch_equals_the_row_alone(temperature):
    engine = table_engine(np.random.default_rng(1).standard_normal((12, 12)))
    options = {
        "max_new_tokens": 24,
        "temperature": temperature,
        "seed": 7,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "no_repeat_ngram_size": 3,
        "bad_words_ids": [[1, 2], [5]],
        "dry_multiplier": 0.5,
        "logit_bias": {3: 0.5},
    }
    prompts = [[1], [2, 3, 2, 3], [4] * 7, [1, 2]]
    assert complete(engine, prompts, **options) == [
        complete(engine, [prompt], **options)[0] for prompt in prompts
    ]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("logit_bias", {5: 1.0}),
        ("logit_bias", {0: math.nan}),
        ("logit_bias", {0: math.inf}),
        ("presence_penalty", math.nan),
        ("frequency_penalty", math.inf),
        ("no_repeat_ngram_size", -1),
        ("bad_words_ids", [[]]),
        ("bad_words_ids", [[-1]]),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [5]),
        ("suppress_tokens", [-1]),
        ("dry_multiplier", -1.0),
        ("dry_base", 0.5),
        ("dry_allowed_length", 0),
        ("dry_sequence_breakers", [5]),
    ],
)
def test_the_core_refuses_by_name(option, value):
    engine = table_engine(np.tile(ROW, (5, 1)))
    with pytest.raises(ValueError, match=rf"{option}: found .*, expected "):
        submit(engine, [0], **{option: value})


def test_all_processors_work_in_the_public_interface(tmp_path: Path):
    llm = LLM(write_table(tmp_path, np.tile([*ROW, -2, -3, -4], (8, 1)), eos_token_id=7))
    result = llm.generate([0], max_new_tokens=3, logit_bias={1: -100}, suppress_tokens=[2])
    assert result.token_ids == (3, 3, 3)
    assert result.options.logit_bias == {1: -100.0}
    assert chain(result.options) == ["logit_bias", "suppress_tokens", "greedy"]
    banned = llm.generate([0], max_new_tokens=1, logit_bias={1: -math.inf})
    assert banned.token_ids == (2,)
    assert banned.to_dict()["options"]["logit_bias"] == {1: "-inf"}
    with pytest.raises(InvalidArgument, match="every token is masked"):
        llm.generate([0], logit_bias=dict.fromkeys(range(8), -math.inf))
    huge = llm.generate([0], max_new_tokens=2, no_repeat_ngram_size=2**70, dry_multiplier=1)
    assert huge.token_ids == (1, 1)
