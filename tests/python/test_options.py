"""The options of a call: legal values, precedence, and values from the model's files."""

from __future__ import annotations

import inspect
import math
from dataclasses import fields
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onward
from onward import LLM
from onward.errors import ArgumentTypeError, ConfigError, InvalidArgument
from onward.options.for_engine import chain
from onward.options.generation import GenerationKwargs
from onward.options.model_defaults import read_model_defaults, without_counterpart
from onward.options.resolution import GenerationOptions, ModelDefaults
from onward.options.resolution import resolve as resolve_options
from onward.options.table import BY_NAME, OPTIONS

VOCAB = 100
PLAIN = ModelDefaults(VOCAB)
HUGE = 10**400


def resolve(model: ModelDefaults = PLAIN, **options: Any) -> GenerationOptions:
    return resolve_options(options, model)


def defaults(**generation_config: Any) -> ModelDefaults:
    return read_model_defaults(generation_config, {}, (), VOCAB)


# The table


def test_table_typed_dict_and_effective_options_have_the_same_names() -> None:
    names = [option.name for option in OPTIONS]
    assert list(GenerationKwargs.__annotations__) == names
    assert [field.name for field in fields(GenerationOptions)] == names
    assert len(BY_NAME) == len(names)


def test_typed_dict_types_match_the_kinds() -> None:
    hints = get_type_hints(GenerationKwargs, vars(onward.options.generation))
    kinds = {"integer": int, "number": float, "flag": bool}
    for option in OPTIONS:
        if option.kind in kinds:
            assert hints[option.name] is kinds[option.kind]


def test_library_defaults() -> None:
    options = resolve()
    assert options == GenerationOptions(
        max_new_tokens=256,
        min_new_tokens=0,
        num_return_sequences=1,
        best_of=None,
        num_beams=1,
        num_beam_groups=1,
        diversity_penalty=0.0,
        length_penalty=1.0,
        early_stopping=False,
        temperature=0.0,
        dynatemp_range=0.0,
        dynatemp_exponent=1.0,
        top_n_sigma=0.0,
        smoothing_factor=0.0,
        smoothing_curve=1.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        typical_p=1.0,
        epsilon_cutoff=0.0,
        eta_cutoff=0.0,
        xtc_probability=0.0,
        xtc_threshold=0.1,
        mirostat=0,
        mirostat_tau=5.0,
        mirostat_eta=0.1,
        repetition_penalty=1.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        dry_multiplier=0.0,
        dry_base=1.75,
        dry_allowed_length=2,
        dry_sequence_breakers=(),
        no_repeat_ngram_size=0,
        logit_bias={},
        bad_words_ids=(),
        allowed_token_ids=None,
        suppress_tokens=(),
        sampling_order="hf",
        seed=None,
        stop=(),
        stop_token_ids=(),
        ignore_eos=False,
        skip_special_tokens=True,
        json_schema=None,
        regex=None,
        choices=None,
        grammar=None,
        logits_processor=(),
        stopping_criteria=(),
        logprobs=None,
        prompt_logprobs=None,
        prompt_lookup_num_tokens=0,
        max_matching_ngram_size=2,
        num_assistant_tokens=None,
        priority=0,
        cache=True,
        prefill_progress=None,
    )


@pytest.mark.parametrize(
    "function",
    [
        *(onward.generate, onward.stream, onward.chat),
        *(LLM.generate, LLM.stream, LLM.chat, LLM.agenerate, LLM.astream),
    ],
)
def test_signatures_and_docstrings_list_every_option(function: Any) -> None:
    parameters = inspect.signature(function).parameters
    for option in OPTIONS:
        assert parameters[option.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[option.name].default == option.default
        assert f"{option.name} (default" in function.__doc__
        assert option.help in function.__doc__
    assert "options" not in parameters


# Legal values


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_new_tokens", 0, 0),
        ("max_new_tokens", np.int64(7), 7),
        ("max_new_tokens", 2**70, 2**70),
        ("min_new_tokens", 256, 256),
        ("temperature", 0, 0.0),
        ("temperature", 1e-45, 1e-45),
        ("temperature", np.float32(0.5), 0.5),
        ("top_k", -1, 0),
        ("top_k", 0, 0),
        ("top_k", 2**70, 2**70),
        ("top_p", 0, 0.0),
        ("top_p", 1, 1.0),
        ("min_p", 1, 1.0),
        ("repetition_penalty", 1e-9, 1e-9),
        ("seed", 0, 0),
        ("seed", 2**64 - 1, 2**64 - 1),
        ("seed", None, None),
        ("stop", "end", ("end",)),
        ("stop", ["a", "b"], ("a", "b")),
        ("stop", None, ()),
        ("stop_token_ids", [5, np.int32(3)], (3, 5)),
        ("stop_token_ids", None, ()),
        ("presence_penalty", -2, -2.0),
        ("logit_bias", {np.int64(3): -100, 0: -math.inf}, {3: -100.0, 0: -math.inf}),
        ("logit_bias", None, {}),
        ("bad_words_ids", [[1], (2, 3)], ((1,), (2, 3))),
        ("allowed_token_ids", [7], (7,)),
        ("allowed_token_ids", None, None),
        ("no_repeat_ngram_size", 2**70, 2**70),
        ("mirostat", 2, 2),
        ("typical_p", 1, 1.0),
        ("ignore_eos", True, True),
        ("skip_special_tokens", False, False),
        ("cache", False, False),
    ],
)
def test_legal_values(name: str, value: object, expected: object) -> None:
    assert getattr(resolve(**{name: value}), name) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", -1),
        ("min_new_tokens", -1),
        ("temperature", -1),
        ("temperature", -1e-300),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", HUGE),
        ("top_k", -2),
        ("top_p", -0.01),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("min_p", -0.01),
        ("min_p", 1.01),
        ("min_p", math.nan),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("repetition_penalty", math.inf),
        ("repetition_penalty", math.nan),
        ("seed", -1),
        ("seed", 2**64),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop_token_ids", [VOCAB]),
        ("stop_token_ids", [-1]),
        ("presence_penalty", math.nan),
        ("frequency_penalty", math.inf),
        ("logit_bias", {VOCAB: 5}),
        ("logit_bias", {-1: 5}),
        ("logit_bias", {"3": -100}),
        ("logit_bias", {3: math.inf}),
        ("logit_bias", {3: math.nan}),
        ("logit_bias", {3: HUGE}),
        ("bad_words_ids", [[]]),
        ("bad_words_ids", [[1, VOCAB]]),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [VOCAB]),
        ("suppress_tokens", [-1]),
        ("no_repeat_ngram_size", -1),
        ("typical_p", 0),
        ("typical_p", 1.1),
        ("top_n_sigma", -1),
        ("epsilon_cutoff", 1.1),
        ("eta_cutoff", -0.1),
        ("xtc_probability", 2),
        ("xtc_threshold", math.nan),
        ("dynatemp_range", -1),
        ("dynatemp_exponent", math.inf),
        ("dry_multiplier", -1),
        ("dry_base", 0.9),
        ("dry_allowed_length", 0),
        ("dry_sequence_breakers", [VOCAB]),
        ("mirostat", 1),
        ("mirostat", 3),
        ("mirostat_tau", -1),
        ("mirostat_eta", math.nan),
    ],
)
def test_illegal_values_name_the_option_and_what_was_found(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=rf"^{name}(\[3\])?: ") as caught:
        resolve(**{name: value})
    assert isinstance(caught.value, ValueError)
    assert "expected" in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", None),
        ("max_new_tokens", True),
        ("max_new_tokens", 2.5),
        ("max_new_tokens", 2.0),
        ("max_new_tokens", "3"),
        ("temperature", None),
        ("temperature", False),
        ("temperature", "0.5"),
        ("temperature", 1j),
        ("top_k", 1.0),
        ("seed", 1.5),
        ("seed", True),
        ("stop", 3),
        ("stop", [3]),
        ("stop", b"x"),
        ("stop_token_ids", 3),
        ("stop_token_ids", "3"),
        ("stop_token_ids", [1.0]),
        ("stop_token_ids", [True]),
        ("logit_bias", [3]),
        ("bad_words_ids", [3]),
        ("bad_words_ids", "ab"),
        ("allowed_token_ids", 3),
        ("suppress_tokens", [True]),
        ("presence_penalty", "1"),
        ("mirostat", 2.0),
        ("ignore_eos", 1),
        ("cache", None),
        ("skip_special_tokens", "no"),
    ],
)
def test_wrong_types_are_type_errors(name: str, value: object) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"^{name}: ") as caught:
        resolve(**{name: value})
    assert isinstance(caught.value, TypeError)
    assert ", expected " in str(caught.value)


def test_min_new_tokens_above_the_limit_names_both() -> None:
    with pytest.raises(InvalidArgument, match=r"min_new_tokens: is 9.*max_new_tokens.*is 8"):
        resolve(min_new_tokens=9, max_new_tokens=8)
    assert resolve(defaults(min_new_tokens=9), max_new_tokens=8).min_new_tokens == 8


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temprature", "temperature"),
        ("max_tokens", "max_new_tokens"),
        ("max_length", "max_new_tokens"),
        ("topk", "top_k"),
        ("repeat_penalty", "repetition_penalty"),
        ("do_sample", "temperature"),
        ("use_cache", "cache"),
    ],
)
def test_an_unknown_option_is_a_type_error_that_suggests_the_near_one(
    name: str, meant: str
) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: no such option, did you mean .*{meant}"):
        resolve(**{name: 1})


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(sorted(BY_NAME)), st.integers() | st.floats() | st.text("a1", max_size=2)
    )
)
def test_any_value_gives_options_or_a_typed_error(options: dict[str, Any]) -> None:
    try:
        effective = resolve(**options)
    except (InvalidArgument, ArgumentTypeError):
        return
    assert effective.temperature >= 0 and effective.top_k >= 0


# Sampling on and off


def test_a_filter_without_temperature_turns_sampling_on() -> None:
    assert resolve(top_p=0.9).temperature == 1.0
    assert resolve(top_k=5).temperature == 1.0
    assert resolve(min_p=0.1).temperature == 1.0
    for name in ("typical_p", "epsilon_cutoff", "eta_cutoff", "xtc_probability", "dynatemp_range"):
        assert resolve(**{name: 0.5}).temperature == 1.0
    assert resolve(mirostat=2).temperature == resolve(top_n_sigma=1).temperature == 1.0


def test_a_filter_at_its_neutral_value_does_not() -> None:
    assert resolve(top_p=1, top_k=0, min_p=0).temperature == 0.0
    assert resolve(top_k=-1).temperature == 0.0
    assert resolve(mirostat=0, typical_p=1, xtc_threshold=0.5, mirostat_tau=3).temperature == 0.0


def test_a_processor_without_temperature_stays_greedy() -> None:
    assert resolve(logit_bias={1: 2}, presence_penalty=1, dry_multiplier=1).temperature == 0.0


def test_explicit_temperature_0_stays_greedy() -> None:
    assert resolve(temperature=0, top_p=0.9).temperature == 0.0
    sampling = defaults(do_sample=True, temperature=0.7)
    assert resolve(sampling, temperature=0, top_k=3).temperature == 0.0


def test_a_filter_takes_the_files_temperature_even_without_do_sample() -> None:
    assert resolve(defaults(temperature=0.6), top_p=0.9).temperature == 0.6
    assert resolve(defaults(temperature=0.6)).temperature == 0.0


def test_sampling_fields_have_effect_only_with_do_sample() -> None:
    fields_ = {"temperature": 0.6, "top_k": 50, "top_p": 0.9, "min_p": 0.05}
    quiet = resolve(defaults(**fields_, do_sample=False))
    assert (quiet.temperature, quiet.top_k, quiet.top_p, quiet.min_p) == (0, 0, 1, 0)
    loud = resolve(defaults(**fields_, do_sample=True))
    assert (loud.temperature, loud.top_k, loud.top_p, loud.min_p) == (0.6, 50, 0.9, 0.05)


def test_alternative_names_of_transformers() -> None:
    filters = {"typical_p": 0.9, "epsilon_cutoff": 0.01, "eta_cutoff": 0.02}
    bans = {"no_repeat_ngram_size": 3, "bad_words_ids": [[1, 2]], "suppress_tokens": [4]}
    quiet = resolve(defaults(**filters, **bans))
    assert (quiet.typical_p, quiet.epsilon_cutoff, quiet.eta_cutoff) == (1, 0, 0)
    assert (quiet.no_repeat_ngram_size, quiet.bad_words_ids) == (3, ((1, 2),))
    assert quiet.suppress_tokens == (4,)
    loud = resolve(defaults(**filters, do_sample=True))
    assert (loud.typical_p, loud.epsilon_cutoff, loud.eta_cutoff) == (0.9, 0.01, 0.02)
    assert without_counterpart({**filters, **bans}) == []


def test_the_tables_empty_bias_cannot_be_changed_through_a_result() -> None:
    resolve().logit_bias[3] = 1.0
    assert resolve().logit_bias == {}


def test_the_chain_names_the_active_stages_in_order() -> None:
    assert chain(resolve()) == ["greedy"]
    assert chain(resolve(temperature=0, top_k=3, logit_bias={1: 1})) == ["logit_bias", "greedy"]
    assert chain(resolve(top_p=0.9, top_k=5, min_new_tokens=2, repetition_penalty=1.1)) == [
        "repetition_penalty",
        "min_new_tokens",
        "temperature",
        "top_k",
        "top_p",
        "draw",
    ]
    assert chain(resolve(mirostat=2, top_k=5, dynatemp_range=0.5)) == [
        "temperature",
        "dynatemp_range",
        "mirostat",
        "draw",
    ]


def test_do_sample_alone_is_temperature_1_without_top_k() -> None:
    options = resolve(defaults(do_sample=True))
    assert (options.temperature, options.top_k) == (1.0, 0)


def test_options_of_the_call_have_priority_over_the_file_and_the_library() -> None:
    model = defaults(do_sample=True, temperature=0.6, max_new_tokens=32, repetition_penalty=1.2)
    assert resolve(model).max_new_tokens == 32
    assert resolve(model).repetition_penalty == 1.2
    options = resolve(model, max_new_tokens=8, temperature=0.9, repetition_penalty=1)
    assert (options.max_new_tokens, options.temperature, options.repetition_penalty) == (8, 0.9, 1)


def test_null_fields_are_absent() -> None:
    assert resolve(defaults(temperature=None, do_sample=None, eos_token_id=None)) == resolve()


def test_stop_strings_of_the_file() -> None:
    assert resolve(defaults(stop_strings=["###"])).stop == ("###",)
    assert resolve(defaults(stop_strings=["###"]), stop=None).stop == ()


# End-of-sequence ids


def test_eos_ids_of_all_files_are_united() -> None:
    model = read_model_defaults({"eos_token_id": [2, 7]}, {"eos_token_id": 3}, [9, 2], VOCAB)
    assert resolve(model).stop_token_ids == (2, 3, 7, 9)
    assert resolve(model, stop_token_ids=[50]).stop_token_ids == (2, 3, 7, 9, 50)


def test_ignore_eos_keeps_the_callers_own_stops() -> None:
    model = read_model_defaults({"eos_token_id": 2}, {}, [], VOCAB)
    assert resolve(model, ignore_eos=True).stop_token_ids == ()
    assert resolve(model, ignore_eos=True, stop_token_ids=[5]).stop_token_ids == (5,)


def test_an_eos_of_the_tokenizer_beyond_the_vocabulary_is_ignored() -> None:
    assert read_model_defaults({}, {"eos_token_id": -1}, [VOCAB + 5], VOCAB).eos_token_ids == ()


@pytest.mark.parametrize("value", ["2", 2.0, True, [2, "3"], [True], VOCAB, [-5], {"a": 1}, 2**80])
@pytest.mark.parametrize("where", ["config.json", "generation_config.json"])
def test_hostile_eos_is_a_config_error(where: str, value: object) -> None:
    files = [{}, {"eos_token_id": value}]
    if where == "generation_config.json":
        files.reverse()
    with pytest.raises(ConfigError, match=rf"^{where}: eos_token_id is "):
        read_model_defaults(*files, (), VOCAB)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("do_sample", "yes"),
        ("do_sample", 1),
        ("temperature", "hot"),
        ("temperature", -1),
        ("temperature", True),
        ("temperature", HUGE),
        ("top_k", 2.5),
        ("top_k", [50]),
        ("top_p", 7),
        ("min_p", {}),
        ("repetition_penalty", 0),
        ("max_new_tokens", -3),
        ("max_new_tokens", "12"),
        ("min_new_tokens", 1e3),
        ("no_repeat_ngram_size", 2.5),
        ("bad_words_ids", [3]),
        ("bad_words_ids", [[]]),
        ("suppress_tokens", [VOCAB]),
        ("typical_p", 0),
        ("epsilon_cutoff", "small"),
        ("eta_cutoff", -1),
        ("stop_strings", [""]),
        ("stop_strings", 3),
    ],
)
def test_hostile_generation_config_is_a_config_error_that_names_the_field(
    field: str, value: object
) -> None:
    with pytest.raises(ConfigError, match=rf"^generation_config.json: {field} ") as caught:
        defaults(**{field: value})
    assert len(str(caught.value)) < 250


def test_fields_without_counterpart_are_reported_unless_neutral() -> None:
    neutral = {"penalty_alpha": 0.0, "guidance_scale": 1.0, "begin_suppress_tokens": None}
    assert without_counterpart(neutral) == []
    assert without_counterpart({"guidance_scale": 4}) == ["guidance_scale=4"]
