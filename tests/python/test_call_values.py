"""Values of every kind as arguments in Python: values of numpy and torch where their meaning is
clear, and nested or unusual values, which are errors of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onward
from builders import hostile_values as hostile
from builders.talking import write_talking
from onward import LLM
from onward.errors import ArgumentTypeError, Error, InvalidArgument
from onward.options.cache import CacheOptions
from onward.options.kv_dtypes import parse_kv_dtype
from onward.options.resolution import ModelDefaults
from onward.options.resolution import resolve as resolve_options
from onward.options.table import OPTIONS
from onward.options.values import shown

VOCAB = 100


def resolve(**options: Any) -> Any:
    return resolve_options(options, ModelDefaults(VOCAB))


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(write_talking(tmp_path_factory.mktemp("values") / "m"), dtype="f32")


class ZeroDimensional:
    """A tensor of no dimensions, as torch has them."""

    dtype, ndim = "torch.int64", 0

    def __init__(self, value: object) -> None:
        self._value = value

    def __array__(self, *arguments: object, **options: object) -> Any:
        return np.asarray(self._value)

    def tolist(self) -> object:
        return self._value


# Numpy's values


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ignore_eos", np.bool_(True), True),
        ("skip_special_tokens", np.array(False), False),
        ("cache", ZeroDimensional(True), True),
        ("max_new_tokens", np.int64(7), 7),
        ("max_new_tokens", np.array(7), 7),
        ("max_new_tokens", ZeroDimensional(7), 7),
        ("temperature", np.float32(0.5), 0.5),
        ("temperature", np.array(0.5), 0.5),
        ("temperature", np.int8(1), 1.0),
        ("seed", np.uint64(2**64 - 1), 2**64 - 1),
        ("sampling_order", np.str_("vllm"), "vllm"),
        ("stop", np.str_("x"), ("x",)),
        ("stop", np.array(["x", "y"]), ("x", "y")),
        ("stop_token_ids", np.array([3, 1]), (1, 3)),
        ("suppress_tokens", np.array([1, 2], np.uint8), (1, 2)),
        ("allowed_token_ids", (np.int16(1), np.array(2)), (1, 2)),
        ("bad_words_ids", np.array([[1, 2], [3, 4]]), ((1, 2), (3, 4))),
        ("bad_words_ids", [np.array([1, 2]), [3]], ((1, 2), (3,))),
        ("logit_bias", {np.int64(3): np.float32(0.5)}, {3: 0.5}),
        ("logit_bias", {3: np.array(0.5)}, {3: 0.5}),
        ("choices", np.array(["a", "b"]), ["a", "b"]),
        ("regex", np.str_("a+"), "a+"),
        ("logprobs", np.int64(2), 2),
    ],
)
def test_numpy_values_are_treated_as_python_values(
    name: str, value: object, expected: object
) -> None:
    found = getattr(resolve(**{name: value}), name)
    assert found == expected
    assert type(found) is type(expected) or isinstance(found, str)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", np.bool_(True)),
        ("max_new_tokens", np.float32(2)),
        ("max_new_tokens", np.array([2])),
        ("ignore_eos", np.int64(1)),
        ("temperature", np.bool_(True)),
        ("stop", np.array([1, 2])),
        ("sampling_order", np.array(["vllm"])),
    ],
)
def test_numpy_values_of_wrong_types_are_refused(name: str, value: object) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"^{name}: is .*, expected"):
        resolve(**{name: value})


def test_numpy_booleans_are_treated_as_python_booleans(llm: LLM) -> None:
    assert llm.tokenize("ab", add_special_tokens=np.bool_(False)) == [97, 98]
    assert llm.detokenize([97], skip_special_tokens=np.bool_(True)) == "a"
    assert CacheOptions.read("f32", 0, np.bool_(True), None, None, None, np.bool_(False)) == (
        CacheOptions("f32", 0, True, None, None, None, False)
    )


def test_default_shares_of_memory() -> None:
    """80 % of free memory is for the cache, and a quarter of that for finished requests. A budget
    of the caller may be used completely for them."""
    free = CacheOptions.read("f32", 0, False, None, None, None, True)
    given = free.engine_arguments(parse_kv_dtype("f32", "f32"), device_free_bytes=1000)
    assert (given["kv_cache_bytes"], given["prefix_cache_bytes"]) == (800, 200)
    mapped = free.engine_arguments(parse_kv_dtype("f32", "f32"), 950, device_free_bytes=1000)
    assert (mapped["kv_cache_bytes"], mapped["prefix_cache_bytes"]) == (80, 20)
    budget = CacheOptions.read("f32", 0, False, 500, None, None, True)
    given = budget.engine_arguments(parse_kv_dtype("f32", "f32"), device_free_bytes=1000)
    assert (given["kv_cache_bytes"], given["prefix_cache_bytes"]) == (500, None)


@pytest.mark.parametrize("name", ["stop", "stop_token_ids", "bad_words_ids", "choices"])
def test_iterators_and_sets_are_refused_with_the_next_step(name: str) -> None:
    for value in (iter(["x"]), {"x"}, (x for x in "x"), dict.fromkeys("x").keys()):
        with pytest.raises(ArgumentTypeError, match=rf"^{name}: .*make it a list first$"):
            resolve(**{name: value})


# Values of the wrong type


@pytest.mark.parametrize(
    ("call", "reported"),
    [
        (lambda llm: llm.logits("text"), r"token_ids: is 'text' \(str\), expected token ids$"),
        (lambda llm: llm.detokenize("text"), r"token_ids: is 'text' \(str\), expected token ids$"),
        (lambda llm: llm.detokenize(None), r"token_ids: is None \(NoneType\), expected"),
        (lambda llm: llm.score(b"ab"), "decode bytes into text first$"),
        (lambda llm: llm.tokenize("a", add_special_tokens=np.array([1])), "True or False$"),
        (lambda llm: llm.tokenize("a", add_special_tokens="no"), "add_special_tokens: is 'no'"),
        (lambda llm: llm.detokenize([1], skip_special_tokens=1), "True or False$"),
        (lambda llm: llm.chat("x", template_options={(1, 2): 3}), r"a key: is \(1, 2\) \(tuple\)"),
        (lambda llm: llm.session(template_options={1: 3}), r"a key: is 1 \(int\)"),
        (lambda llm: onward.chat("x", 3), r"model: is 3 \(int\), expected a path"),
        (lambda llm: onward.generate("x", []), r"model: is \[\] \(list\), expected a path"),
    ],
)
def test_wrong_types_are_errors_of_the_package(
    llm: LLM, call: Callable[[LLM], object], reported: str
) -> None:
    with pytest.raises(ArgumentTypeError, match=reported):
        call(llm)


def test_ids_outside_the_vocabulary_have_no_text(llm: LLM) -> None:
    for ids in ([256], [-1], np.array([3, 2**31])):
        with pytest.raises(
            InvalidArgument, match=r"token id \S+ at position \d, expected integers 0"
        ):
            llm.detokenize(ids)
    assert llm.detokenize([]) == ""


# Nested and strange values


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Wordy:
    def __repr__(self) -> str:
        return "two\nlines " + "x" * 1000


@pytest.mark.parametrize("value", hostile.NESTED, ids=hostile.NAMES)
@pytest.mark.parametrize("name", [option.name for option in OPTIONS])
def test_no_option_recurses_into_a_nested_value(name: str, value: object) -> None:
    for given in (value, [value], [[value]], {1: value}, [1, value], ["a", value]):
        with pytest.raises((ArgumentTypeError, InvalidArgument), match=rf"^{name}") as caught:
            resolve(**{name: given})
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "value",
    [*hostile.NESTED, Unprintable(), Wordy(), 10**5000, "x" * 10**6, list(range(10**6))],
    ids=[*hostile.NAMES, "fails", "lines", "huge", "long", "many"],
)
def test_every_value_is_shown_in_one_line(value: object) -> None:
    text = shown(value)
    assert 0 < len(text) <= 60 and "\n" not in text


def messages_with(value: object) -> list[Any]:
    return [{"role": "user", "content": "a", "extra": value}]


CALLS: dict[str, Callable[[LLM, Any], object]] = {
    "generate": lambda llm, value: llm.generate(value),
    "generate a batch": lambda llm, value: llm.generate(["a", value]),
    "stream": lambda llm, value: llm.stream(value),
    "score": lambda llm, value: llm.score(value),
    "logits": lambda llm, value: llm.logits(value),
    "detokenize": lambda llm, value: llm.detokenize(value),
    "tokenize": lambda llm, value: llm.tokenize(value),
    "chat": lambda llm, value: llm.chat(value),
    "chat, a message": lambda llm, value: llm.chat([value]),
    "chat, a content": lambda llm, value: llm.chat([{"role": "user", "content": value}]),
    "chat, a role": lambda llm, value: llm.chat([{"role": value, "content": "a"}]),
    "chat, a field": lambda llm, value: llm.chat(messages_with(value)),
    "chat, template_options": lambda llm, value: llm.chat("a", template_options={"x": value}),
    "chat, template_options itself": lambda llm, value: llm.chat("a", template_options=[value]),
    "chat, tools": lambda llm, value: llm.chat("a", tools=[value]),
    "chat, system": lambda llm, value: llm.chat("a", system=value),
    "session, messages": lambda llm, value: llm.session(messages=messages_with(value)),
    "session, system": lambda llm, value: llm.session(value),
    "session, an option": lambda llm, value: llm.session(stop=value),
    "session, tools": lambda llm, value: llm.session(tools=[value]),
    "send": lambda llm, value: llm.session().send(value),
    "edit": lambda llm, value: llm.session(messages=messages_with("b")).edit(0, value),
    "score, window": lambda llm, value: llm.score("ab", window=value),
    "device": lambda llm, value: LLM("nowhere", device=value),
    "dtype": lambda llm, value: LLM("nowhere", dtype=value),
    "kv_dtype": lambda llm, value: LLM("nowhere", kv_dtype=value),
    "threads": lambda llm, value: LLM("nowhere", threads=value),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_call_recurses_into_a_nested_value(llm: LLM, call: str) -> None:
    for value in hostile.NESTED:
        with pytest.raises(Error) as caught:
            CALLS[call](llm, value)
        assert isinstance(caught.value, (TypeError, ValueError))
        assert len(str(caught.value)) < 400
    assert len(llm.generate("a", max_new_tokens=2).token_ids) == 2
