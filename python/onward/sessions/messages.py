"""The messages of a session: checked when they come from a caller or a file, and always copied.

Messages may contain only what JSON can hold, because sessions are saved as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.options.chat import with_system
from onward.options.values import shown
from onward.text.template.messages import plain

if TYPE_CHECKING:
    from typing import TypeAlias

Message: TypeAlias = "dict[str, Any]"
Asked: TypeAlias = "str | Mapping[str, Any] | Sequence[Mapping[str, Any]]"
"""Text or parts of a user message, or a whole message of any role."""
_DECIDED = ("add_generation_prompt", "continue_final_message", "messages")
"""Template variables that a session sets itself."""


def read_messages(
    system: object, messages: object, template_options: object
) -> tuple[list[Message], dict[str, Any]]:
    """Copies of the first messages of a session and of its template variables."""
    if messages is None:
        messages = []
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise ArgumentTypeError(
            f"messages: found a {type(messages).__name__}, expected a list of dicts"
        )
    read = [read_message(f"messages[{i}]", message) for i, message in enumerate(messages)]
    if system is not None:
        read = with_system(system, read)
    return read, read_template_options(template_options)


def read_template_options(value: object) -> dict[str, Any]:
    """A copy of the template variables."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"template_options: is {shown(value)}, expected a dict")
    for name in _DECIDED:
        if name in value:
            raise InvalidArgument(f"template_options: has {name}, which a session sets itself")
    return _plain("template_options", value)


def read_message(where: str, value: object) -> Message:
    """A copy of a message. A string, or a list of parts, becomes a message of the user.

    Message objects of client libraries are accepted as ``chat`` accepts them.
    """
    if isinstance(value, str):
        return {"role": "user", "content": value}
    value = plain(value, where)
    if isinstance(value, list) and value and all(_is_part(item) for item in value):
        return {"role": "user", "content": value}
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"{where}: found a {type(value).__name__}, expected text or a dict")
    message = _plain(where, value)
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise ArgumentTypeError(f"{where}: its role is {shown(role)}, expected text")
    if content is None and not message.get("tool_calls"):
        raise InvalidArgument(f"{where}: it has neither content nor tool_calls")
    if content is not None and not isinstance(content, (str, list)):
        raise ArgumentTypeError(
            f"{where}: its content is {shown(content)}, expected text or a list of parts"
        )
    return message


def _is_part(value: object) -> bool:
    return isinstance(value, Mapping) and "type" in value and "role" not in value


def copies(messages: Sequence[Message]) -> list[Message]:
    """Copies, so that a caller cannot change the messages of a session."""
    return [_plain("messages", message) for message in messages]


def text_of(message: Message) -> tuple[str, str]:
    """Role and text of a message, for display. Parts that are not text are shown as JSON."""
    content = message.get("content")
    if isinstance(content, str):
        return message["role"], content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    if texts and all(isinstance(text, str) for text in texts):
        return message["role"], "".join(map(str, texts))
    rest = {name: value for name, value in message.items() if name != "role" and value is not None}
    return message["role"], json.dumps(rest, ensure_ascii=False)


def exchanges(messages: Sequence[Message]) -> list[int]:
    """Indexes of the messages that begin an exchange: the messages of the user."""
    return [i for i, message in enumerate(messages) if message["role"] == "user"]


def _plain(where: str, value: Mapping[Any, Any]) -> dict[str, Any]:
    """A copy that contains JSON types only."""
    try:
        copy: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except TypeError as error:
        raise ArgumentTypeError(f"{where}: {error}, expected what JSON can hold") from None
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{where}: {error}, expected what JSON can hold") from None
    return copy
