"""Prompts: which ids and texts are taken, and what is a batch of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.prompts import PromptReader, is_batch

VOCAB = 100


class Letters:
    """Encodes a text as its letters' places in the alphabet."""

    bos_token_id: int | None = None

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]


READER = PromptReader(vocab_size=VOCAB, context=16)


@pytest.mark.parametrize(
    "ids",
    [
        [1, 2, 3],
        (1, 2, 3),
        range(1, 4),
        [np.int64(1), np.uint8(2), 3],
        np.array([1, 2, 3]),
        np.array([1, 2, 3], np.uint32),
        np.array([1, 0, 2, 0, 3, 0])[::2],
        np.array([1, 2, 3], object),
    ],
)
def test_integers_of_every_kind_are_the_same_prompt(ids: Any) -> None:
    read = READER.read("prompt", ids, None)
    assert read.dtype == np.int32 and read.flags.c_contiguous
    assert read.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (VOCAB, "100"),
        (-1, "-1"),
        (2**31, "2147483648"),
        (2**63, "9223372036854775808"),
        pytest.param(10**5000, "thousands of digits", id="huge"),
        (1.5, "1.5"),
        (True, "True"),
        (None, "None"),
        ("a", "'a'"),
    ],
)
def test_a_bad_token_id_is_named_with_its_position(token: object, told: str) -> None:
    expected = f"prompt: token id .*{told}.* at position 1, expected integers 0 to 99"
    with pytest.raises(InvalidArgument, match=expected):
        READER.read("prompt", [5, token], None)


@pytest.mark.parametrize(
    "array", [np.array([5.0, 1.5]), np.array([True]), np.array([2**63], np.uint64), np.array([-1])]
)
def test_bad_arrays(array: Any) -> None:
    with pytest.raises(InvalidArgument, match="prompt: token id"):
        READER.read("prompt", array, None)


@pytest.mark.parametrize("prompt", [None, 3, 2.5, b"bytes", {1: 2}, {1}, np.int64(4), iter([1])])
def test_other_things_are_type_errors(prompt: object) -> None:
    with pytest.raises(ArgumentTypeError, match=r"prompt: .*expected"):
        READER.read("prompt", prompt, None)


def test_a_prompt_longer_than_the_context_states_both_numbers() -> None:
    assert READER.read("prompt", [1] * 16, None).size == 16
    with pytest.raises(InvalidArgument, match=r"has 17 tokens, .*context of 16"):
        READER.read("prompt", [1] * 17, None)


def test_an_empty_text_is_the_bos_or_an_error() -> None:
    encoder = Letters()
    with pytest.raises(InvalidArgument, match=r"prompt\[1\]: is empty and the model has no begin"):
        READER.read("prompt[1]", "", encoder)
    encoder.bos_token_id = 7
    assert READER.read("prompt", "", encoder).tolist() == [7]
    for empty in ([], np.array([], np.int64), np.array([])):
        with pytest.raises(InvalidArgument, match="is empty"):
            READER.read("prompt", empty, encoder)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("text", False),
        ([1, 2], False),
        ((1, 2), False),
        (np.array([1, 2]), False),
        ([], True),
        (["a"], True),
        (("a", "b"), True),
        ([[1], [2, 3]], True),
        ([np.array([1])], True),
        (np.array([[1, 2], [3, 4]]), True),
        ([1, "a"], False),
    ],
)
def test_what_is_a_batch(prompt: object, expected: bool) -> None:
    assert is_batch(prompt) is expected
