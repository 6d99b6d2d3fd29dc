"""Beam search under a grammar: hypotheses with the same text count as one.

The logits of the model depend only on the last token, so the score of every spelling of every text
is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llguidance")

from closed_form import write_pieces_tokenizer, write_table
from onward import LLM

PIECES = ["<pad>", "<s>", "</s>", "a", "b", "c", "ab", "bc", "abc", "x", "y", "xy", "z", "ca"]
PROMPT = 1


@pytest.fixture(params=range(4))
def table(request: pytest.FixtureRequest) -> Any:
    return np.random.default_rng(request.param).normal(0, 1.5, (16, 16)).astype(np.float32)


@pytest.fixture
def llm(table: Any, tmp_path: Path, open_llm: Callable[..., LLM]) -> LLM:
    folder = write_table(tmp_path / "m", table)
    write_pieces_tokenizer(folder, [*PIECES, "q", "r"])
    return open_llm(folder)


def spellings(text: str) -> Iterator[list[int]]:
    """All ways to write a text in tokens."""
    if not text:
        yield []
    for token, piece in enumerate(PIECES):
        if token > 2 and text.startswith(piece):
            yield from ([token, *rest] for rest in spellings(text[len(piece) :]))


def score(table: Any, ids: list[int]) -> float:
    """The sum of log-probabilities over the number of tokens, each after the one before."""
    logits = np.asarray(table, np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    before = [PROMPT, *ids[:-1]]
    return sum(logprobs[b, i] for b, i in zip(before, ids, strict=True)) / len(ids)


CHOICES = ["abc", "xy", "z", "bca"]


@pytest.mark.parametrize("beams", [4, 6, 12])
def test_each_choice_is_returned_once(llm: LLM, table: Any, beams: int) -> None:
    """With 12 beams every spelling fits into the first step, and all choices are found."""
    assert sum(len(list(spellings(choice))) for choice in CHOICES) == 10
    result = llm.generate([PROMPT], num_beams=beams, num_return_sequences=4, choices=CHOICES)
    texts = [sequence.text for sequence in result.sequences]
    assert len({*texts}) == len(texts) >= (4 if beams == 12 else 3)
    assert {*texts} <= {*CHOICES}
    for sequence in result.sequences:
        assert list(sequence.token_ids) in list(spellings(sequence.text))
        assert sequence.score == pytest.approx(score(table, list(sequence.token_ids)), abs=1e-4)
    scores = [sequence.score for sequence in result.sequences]
    assert scores == sorted(scores, reverse=True)
    assert result.usage.completion_tokens == sum(len(s.token_ids) for s in result.sequences)


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "(ab|bc|ca){1,3}(x|y)?"},
        {"grammar": 'start: ("a" | "b" | "ab" | "xy")+ "z"'},
        {"regex": "[abc]{2,4}", "num_beam_groups": 2, "diversity_penalty": 0.2},
        {"regex": "(abc|bca)+", "stop_token_ids": [2]},
        {"regex": "[abcxyz]+", "temperature": 1.0, "seed": 5},
        {"choices": ["abc"]},
    ],
)
def test_texts_are_distinct_under_every_grammar(llm: LLM, constraint: dict[str, Any]) -> None:
    given = {"num_beams": 6, "num_return_sequences": 6, "max_new_tokens": 6, **constraint}
    result = llm.generate([PROMPT], **given)
    texts = [sequence.text for sequence in result.sequences]
    assert len({*texts}) == len(texts) >= 1
    if constraint == {"choices": ["abc"]}:
        assert texts == ["abc"]
    assert all(
        sequence.score is not None and sequence.score > -100 for sequence in result.sequences
    )


def test_streams_and_batches_give_the_same(llm: LLM) -> None:
    given = {"num_beams": 5, "num_return_sequences": 4, "choices": CHOICES}
    alone = llm.generate([PROMPT], **given)
    for result in llm.generate([[PROMPT], [3, 4], [PROMPT]], **given)[::2]:
        assert result.sequences == alone.sequences
    stream = llm.stream([PROMPT], **given)
    assert "".join(stream) == alone.text
    assert stream.result.sequences == alone.sequences


def test_without_a_grammar_equal_texts_stay_separate_hypotheses(llm: LLM) -> None:
    """The same text in other tokens is another hypothesis, as in transformers."""
    found = llm.generate(
        [PROMPT], num_beams=8, num_return_sequences=8, max_new_tokens=2, allowed_token_ids=[3, 4, 6]
    )
    ids = [sequence.token_ids for sequence in found.sequences]
    assert len({*ids}) == 8
    assert {*ids} <= {*itertools.product([3, 4, 6], repeat=2)}
