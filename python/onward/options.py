"""What may be asked of a generation: every option's name, meaning, legal values and default.

``OPTIONS`` is the one table. Call signatures, docstrings, the command line's flags and the
validation all come from it; ``GenerationKwargs`` repeats only the names and types, for editors and
type checkers, and a test holds the two together.

A value comes from the call, else from the model's generation_config.json, else from the table.
Knows nothing of prompts, engines or models beyond the size of the vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, TypedDict, TypeVar

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.option_values import Option, check

OPTIONS: tuple[Option, ...] = (
    Option("max_new_tokens", "integer", 256, "tokens to generate at most; 0 gives no text", low=0),
    Option(
        "min_new_tokens",
        "integer",
        0,
        "tokens before which no stop token can be chosen; at most max_new_tokens",
        low=0,
    ),
    Option(
        "temperature",
        "number",
        0.0,
        "divides the logits: below 1 sharpens, above 1 flattens; 0 is greedy, always the likeliest",
        low=0,
    ),
    Option(
        "dynatemp_range",
        "number",
        0.0,
        "temperature from this much below (sure) to above (unsure), by the entropy; 0 is off",
        low=0,
        samples=True,
    ),
    Option(
        "dynatemp_exponent",
        "number",
        1.0,
        "power of the entropy's share in dynatemp_range",
        low=0,
    ),
    Option(
        "top_n_sigma",
        "number",
        0.0,
        "keep logits within n standard deviations of the largest; 0 is off",
        low=0,
        samples=True,
    ),
    Option(
        "top_k",
        "integer",
        0,
        "keep the k likeliest tokens, and ties; 0 or -1 is off",
        low=-1,
        samples=True,
    ),
    Option(
        "top_p",
        "number",
        1.0,
        "keep the likeliest tokens up to the one that brings their sum to p; 1 is off",
        low=0,
        high=1,
        samples=True,
    ),
    Option(
        "min_p",
        "number",
        0.0,
        "drop tokens less likely than this share of the likeliest one; 0 is off",
        low=0,
        high=1,
        samples=True,
    ),
    Option(
        "typical_p",
        "number",
        1.0,
        "keep tokens of nearly typical surprise until their sum reaches p; 1 is off",
        low=0,
        high=1,
        above_low=True,
        samples=True,
    ),
    Option(
        "epsilon_cutoff",
        "number",
        0.0,
        "drop tokens less likely than this; 0 is off",
        low=0,
        high=1,
        samples=True,
    ),
    Option(
        "eta_cutoff",
        "number",
        0.0,
        "drop tokens less likely than this, or than less where the entropy is high; 0 is off",
        low=0,
        high=1,
        samples=True,
    ),
    Option(
        "xtc_probability",
        "number",
        0.0,
        "how often XTC drops all but the least likely of the likely tokens; 0 is off",
        low=0,
        high=1,
        samples=True,
    ),
    Option(
        "xtc_threshold",
        "number",
        0.1,
        "what XTC calls likely",
        low=0,
        high=1,
    ),
    Option(
        "mirostat",
        "integer",
        0,
        "2: a cut that steers the surprise to mirostat_tau, in place of all filters; 0 is off",
        low=0,
        high=2,
        choices=(0, 2),
        samples=True,
    ),
    Option(
        "mirostat_tau",
        "number",
        5.0,
        "mirostat's aim, in bits a token",
        low=0,
    ),
    Option(
        "mirostat_eta",
        "number",
        0.1,
        "how fast mirostat's cut follows",
        low=0,
    ),
    Option(
        "repetition_penalty",
        "number",
        1.0,
        "divides positive and multiplies negative logits of tokens in prompt and output; 1 is off",
        low=0,
        above_low=True,
    ),
    Option(
        "presence_penalty",
        "number",
        0.0,
        "taken from the logit of every token of the output; 0 is off",
    ),
    Option(
        "frequency_penalty",
        "number",
        0.0,
        "taken from the logit of every token of the output, each time it came; 0 is off",
    ),
    Option(
        "dry_multiplier",
        "number",
        0.0,
        "DRY: penalty of a token that prolongs a repetition; 0 is off",
        low=0,
    ),
    Option(
        "dry_base",
        "number",
        1.75,
        "what DRY's penalty grows by for each token more of repetition",
        low=1,
    ),
    Option(
        "dry_allowed_length",
        "integer",
        2,
        "the shortest repetition that DRY penalises to prolong",
        low=1,
    ),
    Option(
        "dry_sequence_breakers",
        "ids",
        (),
        "tokens that no repetition of DRY's reaches over",
    ),
    Option(
        "no_repeat_ngram_size",
        "integer",
        0,
        "no so many tokens in a row come twice in prompt and output; 0 is off",
        low=0,
    ),
    Option(
        "logit_bias",
        "biases",
        {},
        "token id -> number added to its logit before all else; -inf bans",
    ),
    Option(
        "bad_words_ids",
        "id_lists",
        (),
        "lists of token ids that may not come in that order",
    ),
    Option(
        "allowed_token_ids",
        "allowed_ids",
        None,
        "the only tokens that can be chosen; None is all",
    ),
    Option(
        "suppress_tokens",
        "ids",
        (),
        "tokens that cannot be chosen",
    ),
    Option(
        "seed",
        "seed",
        None,
        "0 to 2**64 - 1: same seed, prompt and options, same tokens, wherever the prompt stands in "
        "a batch; the k-th copy of a prompt in one call draws from stream k; None: a new seed",
        low=0,
        high=2**64 - 1,
    ),
    Option("stop", "texts", (), "text, or several, before which the output ends"),
    Option("stop_token_ids", "ids", (), "tokens that end the output, beside the model's own"),
    Option("ignore_eos", "flag", False, "do not end at the model's end-of-sequence tokens"),
    Option("skip_special_tokens", "flag", True, "leave special tokens out of the text"),
    Option("cache", "flag", True, "False computes the whole sequence anew for every token"),
)
BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}


class GenerationKwargs(TypedDict, total=False):
    """The keyword arguments of ``generate``, ``stream`` and ``chat``, each with its type."""

    max_new_tokens: int
    min_new_tokens: int
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_n_sigma: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    epsilon_cutoff: float
    eta_cutoff: float
    xtc_probability: float
    xtc_threshold: float
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_sequence_breakers: Sequence[int] | None
    no_repeat_ngram_size: int
    logit_bias: Mapping[int, float] | None
    bad_words_ids: Sequence[Sequence[int]] | None
    allowed_token_ids: Sequence[int] | None
    suppress_tokens: Sequence[int] | None
    seed: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool
    skip_special_tokens: bool
    cache: bool


@dataclass(frozen=True)
class GenerationOptions:
    """The values in effect for one request."""

    max_new_tokens: int
    min_new_tokens: int
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_n_sigma: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    epsilon_cutoff: float
    eta_cutoff: float
    xtc_probability: float
    xtc_threshold: float
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_sequence_breakers: tuple[int, ...]
    no_repeat_ngram_size: int
    logit_bias: dict[int, float]
    bad_words_ids: tuple[tuple[int, ...], ...]
    allowed_token_ids: tuple[int, ...] | None
    suppress_tokens: tuple[int, ...]
    seed: int | None
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    """The model's end-of-sequence tokens too, unless ``ignore_eos``."""
    ignore_eos: bool
    skip_special_tokens: bool
    cache: bool


@dataclass(frozen=True)
class ModelDefaults:
    """What a model's own files say about generating with it."""

    vocab_size: int
    eos_token_ids: tuple[int, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """Option name -> value, checked."""
    sampling_temperature: float = 1.0
    """The temperature when a call asks for sampling and names none."""


def resolve(given: Mapping[str, object], model: ModelDefaults) -> GenerationOptions:
    """Check a call's keyword arguments and fill in the rest.

    A call that filters (``top_k``, ``top_p``, ``mirostat``, ...) without naming a temperature wants
    to sample: it gets the model's temperature, or 1. ``temperature=0`` in the call stays greedy.
    """
    _refuse_unknown(given)
    called = {name: check(BY_NAME[name], value, model.vocab_size) for name, value in given.items()}
    values = {option.name: option.default for option in OPTIONS} | dict(model.values) | called
    samples = any(o.samples and called.get(o.name, o.default) != o.default for o in OPTIONS)
    if samples and "temperature" not in called and not values["temperature"] > 0:
        values["temperature"] = model.sampling_temperature
    if values["min_new_tokens"] > values["max_new_tokens"]:
        if "min_new_tokens" in called:
            raise InvalidArgument(
                f"min_new_tokens: is {values['min_new_tokens']}, "
                f"expected at most max_new_tokens, which is {values['max_new_tokens']}"
            )
        values["min_new_tokens"] = values["max_new_tokens"]
    eos = () if values["ignore_eos"] else model.eos_token_ids
    values["stop_token_ids"] = tuple(sorted({*eos, *values["stop_token_ids"]}))
    values["logit_bias"] = dict(values["logit_bias"])  # the table's stays what it is
    return GenerationOptions(**values)


def chain(options: GenerationOptions) -> list[str]:
    """What turns logits into a token under these options, in order: each active stage by the option
    that turns it on, then ``"greedy"``, or ``"draw"``."""
    stages = [name for name in _PROCESSORS if getattr(options, name) != BY_NAME[name].default]
    if options.temperature == 0:
        return [*stages, "greedy"]
    stages.append("temperature")
    if options.dynatemp_range > 0:
        stages.append("dynatemp_range")
    if options.mirostat:
        return [*stages, "mirostat", "draw"]
    filters = [name for name in _FILTERS if getattr(options, name) != BY_NAME[name].default]
    return [*stages, *filters, "draw"]


_PROCESSORS = (
    "logit_bias",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "min_new_tokens",
    "allowed_token_ids",
    "suppress_tokens",
)
_FILTERS = (
    "top_n_sigma",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "xtc_probability",
)


# Names that people bring from elsewhere and that no spelling distance would find.
_ELSEWHERE = {
    "max_tokens": "max_new_tokens",
    "max_length": "max_new_tokens",
    "n_predict": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "do_sample": "temperature",
    "stop_strings": "stop",
    "eos_token_id": "stop_token_ids",
    "use_cache": "cache",
    "random_seed": "seed",
    "repeat_penalty": "repetition_penalty",
    "sequence_bias": "logit_bias",
    "bad_words": "bad_words_ids",
}


def _refuse_unknown(given: Mapping[str, object]) -> None:
    for name in given:
        if name in BY_NAME:
            continue
        near = [_ELSEWHERE[name]] if name in _ELSEWHERE else get_close_matches(name, BY_NAME, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"expected {', '.join(BY_NAME)}"
        raise ArgumentTypeError(f"{name}: no such option, {hint}")


Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(function: Function) -> Function:
    """Spell the table out in the signature and the docstring of a function that takes
    ``**options``, for ``help()`` and for editors that look at the running object."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    types = {
        name: getattr(hint, "__forward_arg__", hint)
        for name, hint in GenerationKwargs.__annotations__.items()
    }
    rows = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=types[option.name],
        )
        for option in OPTIONS
    ]
    told = "\n".join(f"    {o.name} (default {o.default!r}): {o.help}" for o in OPTIONS)
    function.__doc__ = (
        f"{inspect.cleandoc(function.__doc__ or '')}\n\n"
        "Options; the model's generation_config.json goes before these defaults:\n"
        f"{told}\n"
    )
    vars(function)["__signature__"] = signature.replace(parameters=own + rows)
    return function
