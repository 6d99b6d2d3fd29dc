"""The table of keywords that a conversation takes in addition to the generation options.

The signatures, docstrings and checks of ``LLM.chat``, ``LLM.chat_token_ids``, ``LLM.session`` and
``onward.chat`` come from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.options.generation import GenerationKwargs
from onward.options.values import plain, shown, wrong_type


@dataclass(frozen=True)
class ChatKeyword:
    """One row of the table."""

    name: str
    type: str
    """"list", "flag" or "text"."""
    help: str
    of_sessions: bool = True
    """Whether a session takes it too. A session sets the other keywords itself."""


CHAT_KEYWORDS: dict[str, ChatKeyword] = {
    keyword.name: keyword
    for keyword in (
        ChatKeyword("tools", "list", "JSON descriptions of functions that the model may call"),
        ChatKeyword("documents", "list", "texts for the model to answer from, as dicts"),
        ChatKeyword(
            "enable_thinking",
            "flag",
            "whether the model reasons before it answers, if its template has this switch",
        ),
        ChatKeyword("chat_template", "text", "name of the template, if the model has several"),
        ChatKeyword("system", "text", "text of a system message that comes first", False),
        ChatKeyword(
            "add_generation_prompt",
            "flag",
            "whether the prompt ends with the start of an answer (yes, except to continue one)",
            False,
        ),
        ChatKeyword(
            "continue_final_message",
            "flag",
            "whether the answer continues the last message instead of answering it",
            False,
        ),
    )
}
SESSION_KEYWORDS: dict[str, ChatKeyword] = {
    name: keyword for name, keyword in CHAT_KEYWORDS.items() if keyword.of_sessions
}


class SessionKwargs(GenerationKwargs, total=False):
    """The keyword arguments of ``LLM.session``, each with its type."""

    tools: Sequence[Mapping[str, Any]] | None
    documents: Sequence[Mapping[str, Any]] | None
    enable_thinking: bool | None
    chat_template: str | None


class ChatKwargs(SessionKwargs, total=False):
    """The keyword arguments of ``LLM.chat`` and ``onward.chat``, each with its type."""

    system: str | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None


def split(
    given: Mapping[str, Any], template_options: object
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the variables of a chat template, and the remaining keywords of a call.

    A keyword of the table counts as absent if it is None.

    Raises:
        ArgumentTypeError: a value has the wrong type.
        InvalidArgument: a keyword is in ``template_options`` too.
    """
    variables: dict[str, Any] = {}
    if template_options is not None:
        if not isinstance(template_options, Mapping):
            raise wrong_type("template_options", template_options, "a dict")
        for name in template_options:
            if not isinstance(name, str):
                raise wrong_type("template_options: a key", name, "the name of a variable")
        variables.update(template_options)
    for name, keyword in CHAT_KEYWORDS.items():
        value = plain(given.get(name))
        if value is None:
            continue
        if name in variables:
            raise InvalidArgument(
                f"{name}: is given as a keyword and in template_options, expected one of them"
            )
        variables[name] = _checked(keyword, value)
    return variables, {name: value for name, value in given.items() if name not in CHAT_KEYWORDS}


def conversation(messages: object, system: object = None) -> Any:
    """The messages of a call. A string is one message of the user; ``system`` comes first.

    ``ChatTemplate.render`` checks the single messages.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if isinstance(messages, (bytes, Mapping)) or not isinstance(messages, Sequence):
        raise wrong_type("messages", messages, "text or a list of dicts")
    return messages if system is None else with_system(system, messages)


def with_system(system: object, messages: Sequence[Any]) -> list[Any]:
    """A system message with this text, then the messages."""
    if not isinstance(system, str):
        raise ArgumentTypeError(f"system: is {shown(system)}, expected text")
    first = messages[0] if messages else None
    if isinstance(first, Mapping) and first.get("role") == "system":
        raise InvalidArgument(
            "system: is given beside messages that begin with a system message, "
            "expected one of them"
        )
    return [{"role": "system", "content": system}, *messages]


def _checked(keyword: ChatKeyword, value: object) -> object:
    match keyword.type:
        case "flag" if not isinstance(value, bool):
            raise wrong_type(keyword.name, value, "True or False")
        case "text" if not isinstance(value, str):
            raise wrong_type(keyword.name, value, "text")
        case "list" if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise wrong_type(keyword.name, value, "a list of dicts")
    return value
