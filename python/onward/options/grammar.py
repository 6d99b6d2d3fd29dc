"""What an output has to be: a JSON schema, a regular expression, one of some choices, Lark rules.

The options of a call become one text that llguidance reads. Types and contradictions are found
here, without llguidance; what the text means, and for which model, is constraints.py's matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.options.values import shown, wrong_type

CONSTRAINT_OPTIONS = ("json_schema", "regex", "choices", "grammar")

# The model chooses how a text that is forced is cut into tokens, as it does everywhere else.
_SETTINGS = '\n%llguidance {"no_forcing": true, "allow_invalid_utf8": false}\n'
# Between the parts of JSON: nothing, a space, or a new line and its indentation. Small models that
# may write any white space go on writing it.
_WHITE_SPACE = r"( |\n[ \t]{0,32})?"


@dataclass(frozen=True)
class Grammar:
    """What an output has to be, whatever the model.

    Attributes:
        option: the option that asked for it, one of CONSTRAINT_OPTIONS.
        text: the grammar as llguidance reads it.
    """

    option: str
    text: str

    @classmethod
    def of(
        cls,
        *,
        json_schema: Mapping[str, Any] | bool | str | None = None,
        regex: str | None = None,
        choices: Sequence[str] | None = None,
        grammar: str | None = None,
    ) -> Grammar | None:
        """The grammar that the options of a call ask for; None if they ask for none.

        Types and contradictions are found here; what a schema, an expression or a grammar says is
        understood by ``Constraint``.

        Raises:
            InvalidArgument: more than one is given, a list is empty, JSON is not valid.
            ArgumentTypeError: a value has the wrong type.
        """
        values = (json_schema, regex, choices, grammar)
        given = [
            name
            for name, value in zip(CONSTRAINT_OPTIONS, values, strict=True)
            if value is not None
        ]
        if len(given) > 1:
            raise InvalidArgument(
                f"{given[1]}: is given together with {given[0]}, expected one of them"
            )
        if json_schema is not None:
            return cls("json_schema", _of_schema(json_schema))
        if regex is not None:
            text = _checked_text("regex", regex, "a regular expression")
            return cls("regex", _of_regex("regex", text))
        if choices is not None:
            return cls("choices", _of_choices(choices))
        if grammar is not None:
            text = _checked_text("grammar", grammar, "a Lark grammar")
            return cls("grammar", _top("grammar", text))
        return None


def _top(option: str, lark: str, **schemas: Any) -> str:
    """Lark rules, and JSON schemas that they refer to by `@name`, as one grammar."""
    grammars: list[dict[str, Any]] = [{"lark_grammar": lark + _SETTINGS}]
    grammars += [{"name": name, "json_schema": schema} for name, schema in schemas.items()]
    text = json.dumps({"grammars": grammars}, ensure_ascii=False, allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X}"
        raise InvalidArgument(
            f"{option}: holds a lone surrogate ({found}), expected valid Unicode"
        ) from None
    return text


def _of_schema(value: object) -> str:
    schema = value
    if isinstance(value, str):
        try:
            schema = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"json_schema: is not valid JSON: {error}") from None
        if not isinstance(schema, (dict, bool)):
            raise InvalidArgument(
                f"json_schema: is {shown(value)}, expected a JSON object, true or false"
            )
    if isinstance(schema, Mapping):
        own = schema.get("x-guidance", {})
        if isinstance(own, Mapping) and not any(str(key).startswith("whitespace") for key in own):
            own = {"whitespace_pattern": _WHITE_SPACE, **own}
        schema = {**schema, "x-guidance": own}
    elif not isinstance(schema, bool):
        raise wrong_type("json_schema", value, "a dict, a bool or JSON text")
    try:
        return _top("json_schema", "start: @schema", schema=schema)
    except InvalidArgument:
        raise
    except TypeError as error:
        raise ArgumentTypeError(f"json_schema: cannot be written as JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"json_schema: cannot be written as JSON: {error}") from None


def _of_regex(option: str, regex: str) -> str:
    """As a Lark terminal: between slashes, in one line. Digits are 0 to 9, as people mean."""
    if re.search(r"(?<!\\)(?:\\\\)*\\$", regex):
        raise InvalidArgument(f"{option}: ends in a backslash, expected something after it")
    inside = {"/": r"\/", "\n": r"\n", "\\\n": r"\n", r"\d": "[0-9]", r"\D": "[^0-9]"}
    quoted = re.sub(r"\\.|[/\n]", lambda m: inside.get(m[0], m[0]), regex, flags=re.DOTALL)
    return _top(option, f"start: /{quoted}/")


def _of_choices(value: object) -> str:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise wrong_type("choices", value, "a list of strings")
    if not value:
        raise InvalidArgument("choices: is empty, expected at least one string")
    texts = []
    for choice in value:
        if not isinstance(choice, str):
            raise wrong_type("choices", value, "a list of strings")
        if not choice:
            raise InvalidArgument("choices: holds an empty string, expected text to choose")
        texts.append(re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", choice))
    return _of_regex("choices", "|".join(texts))


def _checked_text(option: str, value: object, expected: str) -> str:
    if not isinstance(value, str):
        raise wrong_type(option, value, expected)
    if not value:
        raise InvalidArgument(f"{option}: is empty, expected {expected}")
    return value
