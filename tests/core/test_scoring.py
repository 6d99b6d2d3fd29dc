"""LLM.score: log-probabilities and perplexity, whole and in windows.

In M-TABLE the probability of a token is in a row of a table, so it is known.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from builders.core_engine import Shape, new_engine, random_prompt, seeded_model
from closed_form import chain, write_pieces_tokenizer, write_table
from onward.calls.scoring import windows
from onward.errors import InvalidArgument, NumericsError, TokenizerError

TABLE = np.full((8, 8), -100.0)
TABLE[3, [4, 5]] = np.log([0.75, 0.25])
TABLE[4, [3, 5, 6]] = np.log([0.5, 0.3, 0.2])
TABLE[5, 3] = 0.0
LOOP = [3, 4, 5]  # .75, .3, and back to 3 with certainty


@pytest.fixture
def table(tmp_path, open_llm):
    folder = write_table(tmp_path / "table", TABLE)
    write_pieces_tokenizer(folder, ["<pad>", "<s>", "</s>", "a", "b", "c", "d", "e"])
    return open_llm(folder)


def test_each_token_after_the_first_has_its_log_probability(table):
    score = table.score([3, 4, 3, 5])
    assert score.token_ids == (3, 4, 3, 5)
    np.testing.assert_allclose(score.log_probabilities, np.log([0.75, 0.5, 0.25]), atol=1e-5)
    assert score.total == pytest.approx(math.log(0.75 * 0.5 * 0.25), abs=1e-5)
    assert score.perplexity == pytest.approx((0.75 * 0.5 * 0.25) ** (-1 / 3), rel=1e-5)


def test_text_is_scored_by_its_tokens(table):
    assert table.score("a|b|c").token_ids == (3, 4, 5)
    assert table.score("a|b|c") == table.score([3, 4, 5])


def test_windows_score_every_token_once(table):
    """The probability depends only on the token before, so windows change nothing here. The context
    is 64, the text has 150 tokens."""
    text = LOOP * 50
    expected = np.tile(np.log([0.75, 0.3, 1.0]), 50)[:149]
    for cut in ({}, {"window": 2}, {"window": 2, "stride": 1}, {"window": 7, "stride": 6}):
        found = table.score(text, **cut).log_probabilities
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("tokens", "window", "stride"), [(10, 4, 2), (10, 4, 3), (3, 8, 4), (9, 2, 1)]
)
def test_the_windows_of_a_text(tokens, window, stride):
    """Scored tokens are contiguous. Each has at least window - stride tokens before it, if they
    exist."""
    scored = []
    for begin, end, first in windows(tokens, window, stride):
        assert 0 <= begin < first < end <= begin + window
        assert first - begin >= min(window - stride, first)
        scored.extend(range(first, end))
    assert scored == list(range(1, tokens))


@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
def test_a_score_is_the_softmax_of_the_logits(chunk):
    """The score has the same bits for any size of chunks."""
    model = seeded_model("f32", Shape(num_layers=1))
    ids = np.array(random_prompt(100), np.int32)
    logits = new_engine(model).logits(ids).astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    scores = new_engine(model, chunk=chunk).score(ids)
    np.testing.assert_allclose(scores, expected[np.arange(99), ids[1:]], atol=1e-9)
    assert np.array_equal(scores, new_engine(model).score(ids))


@pytest.mark.parametrize(
    ("text", "options", "reported"),
    [
        ([3], {}, "text: has 1 tokens, expected at least 2"),
        ([], {}, "text: is empty"),
        ([3, 99], {}, "text: token id 99"),
        ([3, 4], {"window": 1}, "window: is 1, expected an integer from 2 to 64"),
        ([3, 4], {"window": 65}, "window: is 65"),
        ([3, 4], {"window": 4, "stride": 4}, "stride: is 4, expected an integer from 1 to 3"),
        ([3, 4], {"stride": 0}, "stride: is 0"),
    ],
)
def test_inputs_that_cannot_be_scored_are_refused(table, text, options, reported):
    with pytest.raises(InvalidArgument, match=reported):
        table.score(text, **options)


def test_a_model_without_tokenizer_scores_ids(tmp_path, open_llm):
    llm = open_llm(write_table(tmp_path / "ids", chain(8, {3: 4})))
    assert llm.score([3, 4]).total == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(TokenizerError):
        llm.score("ab")


def test_logits_that_are_not_finite_are_an_error(tmp_path, open_llm):
    table = chain(8, {3: 4})
    table[3, 6] = np.nan
    llm = open_llm(write_table(tmp_path / "nan", table))
    with pytest.raises(NumericsError, match="token 6 has a non-finite logit"):
        llm.score([3, 4])
    assert llm.stats()["cache_blocks_in_use"] == 0
