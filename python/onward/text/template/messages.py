"""The messages of a conversation as a chat template receives them.

Callers write messages in several ways, and templates read some of them. This file checks messages,
copies them into plain values, gives reasoning the names that templates read, and joins the parts of
a content for templates that want text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onward.errors import ArgumentTypeError, InvalidArgument

Message = dict[str, Any]
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of the text that a model writes before its answer; the first one is the usual name."""
_MAX_DEPTH = 48


def read_messages(messages: object, source: str) -> list[Message]:
    """Checked copies of ``messages``, with the names of reasoning that ``source``, the template,
    may read.

    Raises:
        InvalidArgument: there are none, or one has no role, or neither content nor tool calls.
        ArgumentTypeError: something has the wrong type.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise ArgumentTypeError(
            f"messages: found a {type(messages).__name__}, expected a list of dicts"
        )
    if not messages:
        raise InvalidArgument("messages: found none, expected at least one")
    return [
        _with_reasoning(_read(f"messages[{i}]", message), source)
        for i, message in enumerate(messages)
    ]


def _read(where: str, message: object) -> Message:
    copy = plain(message, where)
    if not isinstance(copy, dict):
        raise ArgumentTypeError(f"{where}: found a {type(message).__name__}, expected a dict")
    if "role" not in copy:
        raise InvalidArgument(f"{where}: it has no role")
    if not isinstance(copy["role"], str):
        raise ArgumentTypeError(
            f"{where}.role: found a {type(copy['role']).__name__}, expected a str"
        )
    content = copy.get("content")
    if content is None and not copy.get("tool_calls"):
        raise InvalidArgument(f"{where}: it has neither content nor tool_calls")
    if content is not None and not isinstance(content, (str, list)):
        raise ArgumentTypeError(
            f"{where}.content: found a {type(content).__name__}, expected a str or a list of parts"
        )
    return copy


def _with_reasoning(message: Message, source: str) -> Message:
    """The message with its reasoning under every name, as in transformers 5.24: templates of
    some models read ``reasoning_content``, others ``thinking``."""
    given = (message[name] for name in REASONING if message.get(name) is not None)
    reasoning = next(given, None)
    if reasoning is None:
        return message
    filled = {"thinking": reasoning, **message, "reasoning_content": reasoning}
    if re.search(r"\breasoning\b", source):
        filled.setdefault("reasoning", reasoning)
    return filled


def text_parts(message: Message) -> list[str]:
    """The texts in a content of parts; empty for other contents."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return [text for text in texts if isinstance(text, str)]


def with_joined_parts(messages: Sequence[Message]) -> list[Message]:
    """The messages with the texts of their parts joined by newlines.

    Raises:
        InvalidArgument: a part is no text, and the template has no place for it.
    """
    joined = []
    for i, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list):
            for k, part in enumerate(content):
                if not isinstance(part, dict) or not isinstance(part.get("text"), str):
                    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
                    raise InvalidArgument(
                        f"messages[{i}].content[{k}]: is a part of type {kind!r}, but this model's "
                        "chat template takes text only, expected parts of type 'text'"
                    )
            message = {**message, "content": "\n".join(text_parts(message))}
        joined.append(message)
    return joined


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """A copy made of dicts, lists, strings, numbers, booleans and None only, so that a template
    can neither change nor call it. Dataclasses, numbers of numpy and objects with ``model_dump``
    (of the OpenAI client) become plain values."""
    if depth > _MAX_DEPTH:
        raise InvalidArgument(f"{where}: it is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if value.bit_length() > 64:
            raise InvalidArgument(f"{where}: an integer has {value.bit_length()} bits")
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {
            _key(key, where): plain(item, f"{where}.{key}", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return plain(fields, where, depth + 1)
    if not isinstance(value, type) and callable(getattr(value, "model_dump", None)):
        return plain(value.model_dump(), where, depth + 1)
    if callable(value) and where.startswith("tools"):
        raise ArgumentTypeError(
            f"{where}: found a Python function, expected its description as JSON: "
            '{"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}'
        )
    raise ArgumentTypeError(
        f"{where}: found a {type(value).__name__}, "
        "expected dicts, lists, strings, numbers, booleans or None"
    )


def _key(key: object, where: str) -> Any:
    if isinstance(key, np.generic):
        key = key.item()
    if key is None or isinstance(key, (str, int, float)):
        return plain(key, where)
    raise ArgumentTypeError(f"{where}: a key is a {type(key).__name__}, expected text")
