"""What may be asked of a generation: every option's name, meaning, legal values and default.

``OPTIONS`` is the one table. Call signatures, docstrings, the command line's flags and the
validation all come from it; ``GenerationKwargs`` repeats only the names and types, for editors and
type checkers, and a test holds the two together.

A value comes from the call, else from the model's generation_config.json, else from the table.
Knows nothing of prompts, engines or models beyond the size of the vocabulary.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, Literal, TypedDict, TypeVar

from onward.errors import ArgumentTypeError, InvalidArgument

Kind = Literal["integer", "number", "flag", "seed", "texts", "ids"]


@dataclass(frozen=True)
class Option:
    """One row of the table."""

    name: str
    kind: Kind
    default: Any
    help: str
    low: float = -math.inf
    high: float = math.inf
    above_low: bool = False
    """The lowest value itself is not legal."""


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
    Option("top_k", "integer", 0, "keep the k likeliest tokens, and ties; 0 or -1 is off", low=-1),
    Option(
        "top_p",
        "number",
        1.0,
        "keep the likeliest tokens up to the one that brings their sum to p; 1 is off",
        low=0,
        high=1,
    ),
    Option(
        "min_p",
        "number",
        0.0,
        "drop tokens less likely than this share of the likeliest one; 0 is off",
        low=0,
        high=1,
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
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
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
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
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

    A call that filters (``top_k``, ``top_p``, ``min_p``) without naming a temperature wants to
    sample: it gets the model's temperature, or 1. ``temperature=0`` in the call stays greedy.
    """
    _refuse_unknown(given)
    called = {name: check(BY_NAME[name], value, model.vocab_size) for name, value in given.items()}
    values = {option.name: option.default for option in OPTIONS} | dict(model.values) | called
    filters = called.get("top_k", 0) > 0 or called.get("top_p", 1) < 1 or called.get("min_p", 0) > 0
    if filters and "temperature" not in called and not values["temperature"] > 0:
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
    return GenerationOptions(**values)


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
}


def _refuse_unknown(given: Mapping[str, object]) -> None:
    for name in given:
        if name in BY_NAME:
            continue
        near = [_ELSEWHERE[name]] if name in _ELSEWHERE else get_close_matches(name, BY_NAME, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"expected {', '.join(BY_NAME)}"
        raise ArgumentTypeError(f"{name}: no such option, {hint}")


def check(option: Option, value: object, vocab_size: int) -> Any:
    """The value as the engine takes it. InvalidArgument or ArgumentTypeError names the option."""
    match option.kind:
        case "flag":
            if not isinstance(value, bool):
                raise _wrong_type(option.name, value, "True or False")
            return value
        case "texts":
            return _check_texts(option.name, value)
        case "ids":
            return _check_ids(option.name, value, vocab_size)
        case "seed" if value is None:
            return None
        case "number":
            return _check_number(option, value)
        case _:
            number = check_integer(option.name, value, option.low, option.high)
            return max(number, 0) if option.name == "top_k" else number


def check_integer(name: str, value: object, low: float, high: float = math.inf) -> int:
    """An integer (of numpy too, never a bool) from low to high."""
    expected = f"an integer of at least {low}"
    if high != math.inf:
        expected = f"an integer from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _wrong_type(name, value, expected)
    number = int(value)
    if not low <= number <= high:
        raise InvalidArgument(f"{name}: is {shown(number)}, expected {expected}")
    return number


def _check_number(option: Option, value: object) -> float:
    low = f"above {option.low}" if option.above_low else f"of at least {option.low}"
    expected = f"a finite number {low}"
    if option.high != math.inf:
        expected = f"a number from {option.low} to {option.high}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _wrong_type(option.name, value, expected)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    inside = option.low <= number <= option.high and not (option.above_low and number == option.low)
    if not math.isfinite(number) or not inside:
        raise InvalidArgument(f"{option.name}: is {shown(value)}, expected {expected}")
    return number


def _check_texts(name: str, value: object) -> tuple[str, ...]:
    texts: Any = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise _wrong_type(name, value, "a string or a list of strings")
    if "" in texts:
        raise InvalidArgument(f"{name}: holds an empty string, expected text to stop at")
    return tuple(texts)


def _check_ids(name: str, value: object, vocab_size: int) -> tuple[int, ...]:
    ids = () if value is None else value
    if not isinstance(ids, Sequence) or isinstance(ids, (str, bytes)):
        raise _wrong_type(name, value, "a list of token ids")
    return tuple(check_integer(name, token, 0, vocab_size - 1) for token in ids)


def shown(value: object) -> str:
    """A value for a message: never longer than a line."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python agrees to print
        text = f"an {type(value).__name__} of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong_type(name: str, value: object, expected: str) -> ArgumentTypeError:
    kind = type(value).__name__
    return ArgumentTypeError(f"{name}: is {shown(value)} ({kind}), expected {expected}")


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
