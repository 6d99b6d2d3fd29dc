"""The options of the decoding strategies: legal values and combinations.

test_options.py tests rules for every option; test_grammar.py tests constrained output.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from onward import _core
from onward.errors import ArgumentTypeError, InvalidArgument
from onward.options.for_engine import request_options
from onward.options.resolution import GenerationOptions, ModelDefaults
from onward.options.resolution import resolve as resolve_options
from onward.options.table import OPTIONS
from onward.options.values import Option

VOCAB = 100
HUGE = 10**400


def resolve(**options: Any) -> GenerationOptions:
    return resolve_options(options, ModelDefaults(VOCAB))


def rule(*arguments: object) -> None:
    """A rule that does nothing."""


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("best_of", None, None),
        ("best_of", 1, 1),
        ("num_beams", 2**31 - 1, 2**31 - 1),
        ("sampling_order", "llama.cpp", "llama.cpp"),
        ("logits_processor", None, ()),
        ("logits_processor", rule, (rule,)),
        ("logits_processor", [rule, print], (rule, print)),
        ("stopping_criteria", [], ()),
        ("stopping_criteria", rule, (rule,)),
        ("logprobs", 0, 0),
        ("logprobs", None, None),
        ("prompt_logprobs", 2**70, 2**70),
        ("prompt_lookup_num_tokens", 2**70, 2**70),
        ("num_assistant_tokens", 0, 0),
        ("num_assistant_tokens", None, None),
        ("priority", -1_000_000, -1_000_000),
        ("priority", 1_000_000, 1_000_000),
    ],
)
def test_legal_values(name: str, value: object, expected: object) -> None:
    assert getattr(resolve(**{name: value}), name) == expected


@pytest.mark.parametrize("value", [True, False, "never"])
def test_early_stopping_of_beams(value: object) -> None:
    options = resolve(num_beams=2, early_stopping=value)
    assert options.early_stopping is value
    request = request_options(options, vocab_size=VOCAB, context=64)
    assert request["beams"].early_stopping == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_return_sequences", 0),
        ("num_return_sequences", -1),
        ("best_of", 0),
        ("num_beams", 0),
        ("num_beams", 2**31),
        ("num_beam_groups", 0),
        ("diversity_penalty", -0.1),
        ("diversity_penalty", math.nan),
        ("length_penalty", math.inf),
        ("length_penalty", math.nan),
        ("length_penalty", HUGE),
        ("sampling_order", "ollama"),
        ("sampling_order", ""),
        ("logprobs", -1),
        ("prompt_logprobs", -1),
        ("prompt_lookup_num_tokens", -1),
        ("max_matching_ngram_size", 0),
        ("num_assistant_tokens", -1),
        ("priority", 1_000_001),
        ("priority", -1_000_001),
    ],
)
def test_illegal_values_name_the_option_and_what_was_found(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{name}: ") as caught:
        resolve(**{name: value})
    assert isinstance(caught.value, ValueError)
    assert "expected" in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_return_sequences", None),
        ("num_return_sequences", 1.0),
        ("num_return_sequences", True),
        ("best_of", "2"),
        ("num_beams", None),
        ("length_penalty", "1"),
        ("early_stopping", "yes"),
        ("early_stopping", "Never"),
        ("early_stopping", 1),
        ("early_stopping", None),
        ("sampling_order", None),
        ("sampling_order", 1),
        ("logits_processor", 3),
        ("logits_processor", [rule, 3]),
        ("logits_processor", "rule"),
        ("stopping_criteria", {rule: rule}),
        ("logprobs", True),
        ("logprobs", 1.0),
        ("prompt_logprobs", "all"),
        ("prompt_lookup_num_tokens", None),
        ("max_matching_ngram_size", None),
        ("num_assistant_tokens", 1.5),
        ("priority", 0.5),
        ("priority", None),
    ],
)
def test_wrong_types_are_type_errors(name: str, value: object) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"^{name}: ") as caught:
        resolve(**{name: value})
    assert isinstance(caught.value, TypeError)
    assert ", expected " in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("n", "num_return_sequences"),
        ("beam_size", "num_beams"),
        ("num_beam", "num_beams"),
        ("top_logprobs", "logprobs"),
        ("output_scores", "logprobs"),
        ("assistant_model", "num_assistant_tokens"),
        ("guided_json", "json_schema"),
        ("response_format", "json_schema"),
        ("guided_regex", "regex"),
        ("guided_choice", "choices"),
        ("guided_grammar", "grammar"),
        ("logits_processors", "logits_processor"),
        ("stopping_criterion", "stopping_criteria"),
        ("best_off", "best_of"),
        ("priorty", "priority"),
    ],
)
def test_names_of_other_libraries_suggest_ours(name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: no such option, did you mean .*{meant}"):
        resolve(**{name: 1})


# Combinations

BEAMS: dict[str, Any] = {"num_beams": 4}
SAMPLED: dict[str, Any] = {"temperature": 1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beam_groups": 2}, "num_beam_groups: is given without beams, expected num_beams"),
        ({"length_penalty": 2}, "length_penalty: is given without beams"),
        ({"early_stopping": True}, "early_stopping: is given without beams"),
        ({"early_stopping": "never"}, "early_stopping: is given without beams"),
        ({"diversity_penalty": 1}, "diversity_penalty: is given without beams"),
        ({**BEAMS, "diversity_penalty": 1}, "diversity_penalty: needs groups"),
        ({**BEAMS, "num_beam_groups": 3}, "num_beam_groups: is 3, expected a divisor of num_beams"),
        ({**BEAMS, "num_return_sequences": 5}, "num_return_sequences: is 5, .* num_beams, .* 4"),
        ({**BEAMS, "best_of": 2}, "best_of: is 2, expected none with beams"),
        ({**BEAMS, "mirostat": 2}, "mirostat: is 2, expected none with beams"),
        ({**BEAMS, "dynatemp_range": 0.5}, "dynatemp_range: is 0.5, expected none with beams"),
        ({**BEAMS, "prompt_lookup_num_tokens": 2}, "prompt_lookup_num_tokens: is 2, .* with beams"),
        ({**BEAMS, "num_assistant_tokens": 2}, "num_assistant_tokens: is 2, .* with beams"),
        (
            {"num_return_sequences": 2},
            "num_return_sequences: is 2, .* greedy choice gives the same",
        ),
        ({"best_of": 2}, "best_of: is 2, .* greedy choice gives the same"),
        ({"best_of": 2, "num_return_sequences": 2}, "best_of: is 2"),
        ({**SAMPLED, "best_of": 2, "num_return_sequences": 3}, "best_of: is 2, expected at least"),
        ({"max_matching_ngram_size": 3}, "max_matching_ngram_size: is given without prompt_lookup"),
        ({"cache": False, "prompt_lookup_num_tokens": 2}, "prompt_lookup_num_.* with cache=False"),
        ({"cache": False, "num_assistant_tokens": 2}, "num_assistant_tokens: .* with cache=False"),
    ],
)
def test_contradictions_name_the_option(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{message}"):
        resolve(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"num_beam_groups": 1, "length_penalty": 1.0, "early_stopping": False},
        {"diversity_penalty": 0, "max_matching_ngram_size": 2},
        {**BEAMS, "num_return_sequences": 4, "num_beam_groups": 2, "diversity_penalty": 0.5},
        {**BEAMS, "length_penalty": -1, "early_stopping": "never", "best_of": None},
        {**BEAMS, **SAMPLED, "num_return_sequences": 2},
        {**BEAMS, "prompt_lookup_num_tokens": 0, "num_assistant_tokens": 0, "cache": False},
        {**SAMPLED, "best_of": 3, "num_return_sequences": 3},
        {"top_k": 5, "num_return_sequences": 3},
        {"best_of": 1},
        {"prompt_lookup_num_tokens": 4, "max_matching_ngram_size": 3},
        {"cache": False, "logprobs": 2, "prompt_logprobs": 2},
        {"regex": "a", "logits_processor": rule, "stopping_criteria": rule},
    ],
)
def test_consistent_options_are_accepted(options: dict[str, Any]) -> None:
    effective = resolve(**options)
    request = request_options(effective, vocab_size=VOCAB, context=64)
    assert ("beams" in request) == (effective.num_beams > 1)


def test_large_numbers_are_limited_to_the_vocabulary_and_the_context() -> None:
    options = resolve(
        logprobs=2**70,
        prompt_logprobs=2**70,
        prompt_lookup_num_tokens=2**70,
        max_matching_ngram_size=2**70,
        num_assistant_tokens=2**70,
        max_new_tokens=2**70,
    )
    request = request_options(options, vocab_size=VOCAB, context=64)
    assert (request["sampling"].logprobs, request["prompt_logprobs"]) == (VOCAB, VOCAB)
    speculation = request["speculation"]
    assert (speculation.lookup_tokens, speculation.lookup_ngram) == (64, 64)
    assert (speculation.draft_tokens, request["max_new_tokens"]) == (64, 64)


def test_the_request_of_the_engine() -> None:
    request = request_options(resolve(priority=3), vocab_size=VOCAB, context=64, stream=7)
    assert (request["num_sequences"], request["priority"], request["cache"]) == (1, 3, True)
    assert (request["sampling"].stream, request["prompt_logprobs"]) == (7, -1)
    assert request["sampling"].logprobs == -1
    best = request_options(resolve(**SAMPLED, best_of=5), vocab_size=VOCAB, context=64)
    assert (best["num_sequences"], best["sampling"].logprobs) == (5, 0)
    beams = request_options(
        resolve(num_beams=4, num_return_sequences=2, length_penalty=0.5),
        vocab_size=VOCAB,
        context=64,
    )["beams"]
    assert (beams.num_beams, beams.num_return_sequences, beams.length_penalty) == (4, 2, 0.5)


def test_every_name_of_the_cores_options_is_an_option() -> None:
    """So every option of the sampler and the beams is available in calls, except ``stream``, which
    the engine sets."""
    names = set(GenerationOptions.__dataclass_fields__)
    for kind in (_core.SamplingOptions, _core.BeamOptions):
        attributes = {n for n, v in vars(kind).items() if isinstance(v, property)}
        assert attributes - names <= {"stream"}


# Of every row of the table


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_object_of_a_wrong_type_is_a_type_error_that_names_the_option(option: Option) -> None:
    with pytest.raises(TypeError, match=rf"^{option.name}: .*expected"):
        resolve(**{option.name: object()})


@pytest.mark.parametrize(
    "option", [o for o in OPTIONS if math.isfinite(o.low)], ids=lambda option: option.name
)
def test_a_number_outside_the_range_is_a_value_error_that_names_the_option(option: Option) -> None:
    outside: list[float] = [option.low - 1]
    if option.above_low:
        outside.append(option.low)
    if math.isfinite(option.high):
        outside.append(option.high + 1)
    if option.kind == "number":
        outside += [math.nan, math.inf, -math.inf]
    for value in outside:
        with pytest.raises(ValueError, match=rf"^{option.name}: .*expected"):
            resolve(**{option.name: value})
