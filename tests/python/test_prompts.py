"""Prompts: accepted ids and texts, and batches."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest

from builders import hostile_values as hostile
from onward.calls.prompts import PromptReader, prompts_of
from onward.errors import ArgumentTypeError, InvalidArgument

VOCAB = 100


class Letters:
    """Encodes a text as the positions of its letters in the alphabet."""

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
    ("token", "reported"),
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
def test_a_bad_token_id_is_named_with_its_position(token: object, reported: str) -> None:
    expected = f"prompt: token id .*{reported}.* at position 1, expected integers 0 to 99"
    with pytest.raises(InvalidArgument, match=expected):
        READER.read("prompt", [5, token], None)


@pytest.mark.parametrize(
    "array", [np.array([5.0, 1.5]), np.array([True]), np.array([2**63], np.uint64), np.array([-1])]
)
def test_bad_arrays(array: Any) -> None:
    with pytest.raises(InvalidArgument, match="prompt: token id"):
        READER.read("prompt", array, None)


@pytest.mark.parametrize("prompt", [None, 3, 2.5, b"bytes", {1: 2}, {1}, np.int64(4), iter([1])])
def test_values_of_other_types_are_type_errors(prompt: object) -> None:
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
        ([], False),
        (np.array([], np.int64), False),
        (range(3), False),
        (np.array("text"), False),
        (np.zeros((0, 4), np.int64), True),
        (np.array([], np.str_), True),
        (np.array(["a", "b"]), True),
        (np.array(["a", "b"], object), True),
        (np.array([1, 2], object), False),
        (deque(["a", "b"]), True),
        ([range(2), range(3)], True),
        (["a"], True),
        (("a", "b"), True),
        ([[1], [2, 3]], True),
        ([np.array([1])], True),
        (np.array([[1, 2], [3, 4]]), True),
        ([1, "a"], False),
    ],
)
def test_values_that_are_batches(prompt: object, expected: bool) -> None:
    assert prompts_of(prompt)[1] is expected


class Tensor:
    """What other libraries' arrays have in common: they convert to numpy's."""

    def __init__(self, values: Any) -> None:
        self._array = np.asarray(values)
        self.dtype, self.ndim = f"torch.{self._array.dtype}", self._array.ndim

    def __array__(self, *arguments: object, **options: object) -> Any:
        return self._array

    def __int__(self) -> int:
        return int(self._array)

    def tolist(self) -> Any:
        return self._array.tolist()


class OnAnotherDevice(Tensor):
    def __array__(self, *arguments: object, **options: object) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy.\nUse Tensor.cpu()")


def ids_of(prompt: object) -> list[list[int]]:
    return [READER.read("prompt", row, Letters()).tolist() for row in prompts_of(prompt)[0]]


@pytest.mark.parametrize(
    "prompt",
    [
        np.array([[0, 1], [2, 3]]),
        np.array([[0, 1], [2, 3]], np.uint8),
        Tensor([[0, 1], [2, 3]]),
        [Tensor([0, 1]), Tensor([2, 3])],
        [[Tensor(0), Tensor(1)], [np.array(2), np.int8(3)]],
        np.array(["ab", "cd"]),
        np.array(["ab", "cd"], object),
        Tensor(["ab", "cd"]),
        (np.str_("ab"), "cd"),
        deque(["ab", [2, 3]]),
    ],
)
def test_rows_of_arrays_and_tensors_are_prompts(prompt: object) -> None:
    assert ids_of(prompt) == [[0, 1], [2, 3]]


def test_one_prompt_in_an_array() -> None:
    assert ids_of(Tensor([0, 1])) == ids_of(np.array("ab")) == ids_of([Tensor(0), Tensor(1)])


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (np.zeros((2, 2, 2), np.int64), r"an array of 3 dimensions, expected one .* two for a"),
        (np.array(5), r"an array of 0 dimensions"),
        (OnAnotherDevice([1]), r"OnAnotherDevice that cannot become .*convert cuda:0.*list of int"),
        ((i for i in [1, 2]), "generator.*; make it a list first$"),
        (map(str, "ab"), "map.*; make it a list first$"),
        ({1, 2}, r"\(set\).*; make it a list first$"),
        (b"ab", r"\(bytes\), expected text.*; decode bytes into text first$"),
        ([b"ab"], r"\(bytes\), expected text.*; decode bytes into text first$"),
        (bytearray(b"ab"), r"; decode bytes into text first$"),
    ],
)
def test_values_that_are_not_prompts_are_refused_with_the_next_step(
    prompt: object, expected: str
) -> None:
    with pytest.raises(ArgumentTypeError, match=expected):
        ids_of(prompt)


@pytest.mark.parametrize("prompt", [np.array([[1.0, 2.0]]), np.array([[True]]), Tensor([0.5])])
def test_arrays_of_other_kinds_are_not_rounded(prompt: object) -> None:
    with pytest.raises(InvalidArgument, match=r"token id .* at position 0, expected"):
        ids_of(prompt)


@pytest.mark.parametrize("prompt", hostile.NESTED, ids=hostile.NAMES)
def test_a_prompt_that_is_nested_too_deep_or_holds_itself(prompt: object) -> None:
    with pytest.raises((ArgumentTypeError, InvalidArgument), match="expected"):
        ids_of(prompt)
