"""The options of one call: their effective values, and which options go together.

A value comes from the call, else from the model's generation_config.json, else from the table
(table.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypeVar

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.options.chat import (
    CHAT_KEYWORDS,
    SESSION_KEYWORDS,
    ChatKeyword,
    ChatKwargs,
    SessionKwargs,
)
from onward.options.generation import CORE_OPTIONS, GenerationKwargs, OptionValues
from onward.options.grammar import CONSTRAINT_OPTIONS, Grammar
from onward.options.table import BY_NAME, OPTIONS
from onward.options.values import check

_DEFAULTS = {option.name: option.default for option in OPTIONS}
_ANY_VOCABULARY = 2**31
_DRAFT_TOKENS = 4  # guesses a step with a draft model, unless the call gives a number
# Options that have an effect only beside num_beams.
_OF_BEAMS = tuple(
    option.name
    for option in CORE_OPTIONS["beams"]
    if option.name not in ("num_beams", "num_return_sequences")
)
_NOT_WITH_BEAMS = (
    "best_of",
    "mirostat",
    "dynatemp_range",
    "prompt_lookup_num_tokens",
    "num_assistant_tokens",
)


@dataclass(frozen=True)
class GenerationOptions(OptionValues):
    """The values in effect for one request.

    ``stop_token_ids`` has the model's end-of-sequence tokens too, unless ``ignore_eos``.
    """

    def but(self, **changes: Any) -> GenerationOptions:
        """Like ``dataclasses.replace``, in a tenth of its time: every request replaces its seed."""
        twin = object.__new__(GenerationOptions)
        vars(twin).update(vars(self), **changes)
        return twin


@dataclass(frozen=True)
class ModelDefaults:
    """The defaults in a model's own files."""

    vocab_size: int
    eos_token_ids: tuple[int, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """Option name -> value, checked."""
    sampling_temperature: float = 1.0
    """The temperature of a call that turns sampling on and gives no temperature."""
    says_whether_to_sample: bool = False
    """Whether generation_config.json has ``do_sample``."""


def resolve(given: Mapping[str, object], model: ModelDefaults) -> GenerationOptions:
    """Check a call's keyword arguments and fill in the rest.

    A call with a filter (``top_k``, ``top_p``, ``mirostat``, ...) and without a temperature
    samples, at the model's temperature or at 1. ``temperature=0`` in the call stays greedy.
    """
    refuse_unknown(given)
    called = {name: check(BY_NAME[name], value, model.vocab_size) for name, value in given.items()}
    values = {**_DEFAULTS, **model.values, **called}
    samples = any(BY_NAME[n].samples and value != _DEFAULTS[n] for n, value in called.items())
    if samples and "temperature" not in called and not values["temperature"] > 0:
        values["temperature"] = model.sampling_temperature
    if values["min_new_tokens"] > values["max_new_tokens"]:
        if "min_new_tokens" in called:
            raise InvalidArgument(
                f"min_new_tokens: is {values['min_new_tokens']}, "
                f"expected at most max_new_tokens, which is {values['max_new_tokens']}"
            )
        values["min_new_tokens"] = values["max_new_tokens"]
    _refuse_what_has_no_effect(called, values)
    _refuse_contradictions(values)
    eos = () if values["ignore_eos"] else model.eos_token_ids
    values["stop_token_ids"] = tuple(sorted({*eos, *values["stop_token_ids"]}))
    values["logit_bias"] = dict(
        values["logit_bias"]
    )  # a copy, so that the table's dict does not change
    return GenerationOptions(**values)


def with_draft(options: GenerationOptions, available: bool) -> GenerationOptions:
    """The options with the effective ``num_assistant_tokens``.

    ``available``: the LLM has a draft model.
    """
    wanted = options.num_assistant_tokens
    if wanted and not available:
        raise InvalidArgument(
            f"num_assistant_tokens: is {wanted}, expected 0, because the LLM has no draft_model"
        )
    if wanted is None and available and options.num_beams == 1 and options.cache:
        return options.but(num_assistant_tokens=_DRAFT_TOKENS)
    return options


def _refuse_what_has_no_effect(called: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    def asked_for(name: str) -> bool:
        return bool(called.get(name, BY_NAME[name].default) != BY_NAME[name].default)

    for name in _OF_BEAMS:
        if values["num_beams"] == 1 and asked_for(name):
            raise InvalidArgument(f"{name}: is given without beams, expected num_beams above 1")
    if values["num_beam_groups"] == 1 and asked_for("diversity_penalty"):
        raise InvalidArgument("diversity_penalty: needs groups, expected num_beam_groups above 1")
    if not values["prompt_lookup_num_tokens"] and asked_for("max_matching_ngram_size"):
        raise InvalidArgument(
            "max_matching_ngram_size: is given without prompt_lookup_num_tokens, "
            "expected both or neither"
        )


def _refuse_contradictions(values: Mapping[str, Any]) -> None:
    wanted, beams = values["num_return_sequences"], values["num_beams"]
    if beams > 1:
        if beams % values["num_beam_groups"]:
            raise InvalidArgument(
                f"num_beam_groups: is {values['num_beam_groups']}, "
                f"expected a divisor of num_beams, which is {beams}"
            )
        if wanted > beams:
            raise InvalidArgument(
                f"num_return_sequences: is {wanted}, expected at most num_beams, which is {beams}"
            )
        for name in _NOT_WITH_BEAMS:
            if values[name]:
                raise InvalidArgument(f"{name}: is {values[name]}, expected none with beams")
    else:
        best_of = values["best_of"]
        if best_of is not None and best_of < wanted:
            raise InvalidArgument(
                f"best_of: is {best_of}, expected at least num_return_sequences, which is {wanted}"
            )
        name = "best_of" if best_of is not None else "num_return_sequences"
        if (best_of or wanted) > 1 and values["temperature"] == 0:
            raise InvalidArgument(
                f"{name}: is {best_of or wanted}, expected 1, or a temperature above 0, or beams: "
                "greedy choice gives the same output every time"
            )
    if not values["cache"]:
        for name in ("prompt_lookup_num_tokens", "num_assistant_tokens"):
            if values[name]:
                raise InvalidArgument(f"{name}: is {values[name]}, expected none with cache=False")
    Grammar.of(**{name: values[name] for name in CONSTRAINT_OPTIONS})


# Names of other libraries that the search for similar names would not find.
_ELSEWHERE = {
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "max_length": "max_new_tokens",
    "n_predict": "max_new_tokens",
    "num_predict": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "do_sample": "temperature",
    "stop_strings": "stop",
    "stop_sequences": "stop",
    "eos_token_id": "stop_token_ids",
    "use_cache": "cache",
    "random_seed": "seed",
    "repeat_penalty": "repetition_penalty",
    "sequence_bias": "logit_bias",
    "bad_words": "bad_words_ids",
    "n": "num_return_sequences",
    "beam_size": "num_beams",
    "guided_json": "json_schema",
    "response_format": "json_schema",
    "format": "json_schema",
    "guided_regex": "regex",
    "guided_choice": "choices",
    "guided_grammar": "grammar",
    "assistant_model": "num_assistant_tokens",
    "top_logprobs": "logprobs",
    "output_scores": "logprobs",
    "functions": "tools",
    "system_prompt": "system",
    "system_message": "system",
    "thinking": "enable_thinking",
    "think": "enable_thinking",
    "reasoning": "enable_thinking",
    "chat_template_kwargs": "template_options",
    "template_kwargs": "template_options",
    "streaming": "stream",
}


OF_LLM = (
    "device",
    "dtype",
    "head_dtype",
    "threads",
    "prefill_chunk_tokens",
    "max_sequences",
    "draft_model",
    "packed_cache",
    "kv_dtype",
    "kv_window_tokens",
    "kv_sinks",
    "kv_cache_bytes",
    "max_context",
    "attention_window",
    "prefix_cache",
)
"""Arguments of ``LLM``, which stands above this module; a test compares the two."""


def check_each(given: Mapping[str, object], also: Collection[str] = ()) -> None:
    """Check the names and the values of options one by one, for a model that is not loaded yet.

    ``also``: further names that the call takes. Their values are not checked.
    """
    refuse_unknown(given, also)
    for name, value in given.items():
        if name in BY_NAME:
            check(BY_NAME[name], value, _ANY_VOCABULARY)


def refuse_unknown(given: Mapping[str, object], also: Collection[str] = ()) -> None:
    """Raise ArgumentTypeError for an unknown name, with the nearest known name.

    ``also``: names that the call takes beside the generation options.
    """
    for name in given:
        if name not in BY_NAME and name not in also:
            raise ArgumentTypeError(f"{name}: no such option, {_hint(name, also)}")


def named_elsewhere(name: str) -> str | None:
    """Our name of the option that other libraries call ``name``."""
    return _ELSEWHERE.get(name)


def _hint(name: str, also: Collection[str]) -> str:
    """A hint for an unknown name, in half a line."""
    if keyword := CHAT_KEYWORDS.get(name):
        return f"it is an argument of {'chat() and session()' if keyword.of_sessions else 'chat()'}"
    if name == "stream":
        return "call stream() instead, or chat() with stream=True"
    if name == "template_options":
        return "it is an argument of chat() and session()"
    if name in OF_LLM:
        return "it is an argument of LLM()"
    spelling = name.lower().replace("-", "_")
    if spelling in _ELSEWHERE:
        return f"did you mean {_ELSEWHERE[spelling]}?"
    if near := get_close_matches(spelling, [*BY_NAME, *also], n=2, cutoff=0.7):
        return f"did you mean {' or '.join(near)}?"
    return "help(onward.LLM.generate) lists all options"


Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(function: Function) -> Function:
    """Add every option to the signature and the docstring of a function that takes ``**options``.

    ``help()`` and editors that inspect the running object show them.
    """
    return _spelled_out(function, {}, {})


def with_chat_options(function: Function) -> Function:
    """Like ``with_options``, with the keywords of a conversation too."""
    return _spelled_out(function, CHAT_KEYWORDS, ChatKwargs.__annotations__)


def with_session_options(function: Function) -> Function:
    """Like ``with_options``, with the keywords of a session too."""
    return _spelled_out(function, SESSION_KEYWORDS, SessionKwargs.__annotations__)


def _spelled_out(
    function: Function, keywords: Mapping[str, ChatKeyword], types: Mapping[str, Any]
) -> Function:
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    annotations = {
        name: getattr(hint, "__forward_arg__", hint)
        for name, hint in {**types, **GenerationKwargs.__annotations__}.items()
    }
    defaults = {**dict.fromkeys(keywords), **_DEFAULTS}
    rows = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotations[name]
        )
        for name, default in defaults.items()
    ]
    described = ""
    if keywords:
        lines = "\n".join(f"    {k.name}: {k.help}" for k in keywords.values())
        described = f"Keywords of the conversation:\n{lines}\n\n"
    meanings = {o.name: f", {o.absent}" for o in OPTIONS if o.absent != "none"}
    lines = "\n".join(
        f"    {o.name} (default {o.default!r}{meanings.get(o.name, '')}): {o.help}" for o in OPTIONS
    )
    function.__doc__ = (
        f"{inspect.cleandoc(function.__doc__ or '')}\n\n{described}"
        "Options (the model's generation_config.json overrides these defaults):\n"
        f"{lines}\n"
    )
    vars(function)["__signature__"] = signature.replace(parameters=own + rows)
    return function
