"""``onward.generate``, ``stream`` and ``chat``: one LLM per model name, loaded once and kept.

They live as long as the process. To use other settings, or to free the memory, create an ``LLM``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from onward.calls.generation import Stream
from onward.calls.prompts import TokenIds
from onward.calls.result import Result
from onward.llm import LLM
from onward.options.chat import conversation, split
from onward.options.resolution import check_each, with_chat_options, with_options
from onward.options.values import wrong_type
from onward.text_calls import Messages, check_chat

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from onward.options.chat import ChatKwargs
    from onward.options.generation import GenerationKwargs

_llms: dict[str | None, LLM] = {}
_loading = threading.Lock()


def _renew_lock() -> None:
    global _loading
    _loading = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _llm(model: str | os.PathLike[str] | None) -> LLM:
    if model is not None and not isinstance(model, (str, os.PathLike)):
        raise wrong_type("model", model, "a path, a hub id or None")
    key = None if model is None else os.fspath(model)
    with _loading:
        if key not in _llms:
            _llms[key] = LLM(model)
        return _llms[key]


@overload
def generate(
    prompt: str | TokenIds,
    model: str | os.PathLike[str] | None = None,
    **options: Unpack[GenerationKwargs],
) -> Result: ...


@overload
def generate(
    prompt: list[str] | list[list[int]],
    model: str | os.PathLike[str] | None = None,
    **options: Unpack[GenerationKwargs],
) -> list[Result]: ...


@with_options
def generate(
    prompt: Any, model: str | os.PathLike[str] | None = None, **options: Any
) -> Result | list[Result]:
    """``LLM(model).generate(prompt)``, with an LLM that is loaded once and kept."""
    check_each(options, ("model",))
    answer: Result | list[Result] = _llm(model).generate(prompt, **options)
    return answer


@with_options
def stream(
    prompt: str | TokenIds,
    model: str | os.PathLike[str] | None = None,
    **options: Unpack[GenerationKwargs],
) -> Stream:
    """``LLM(model).stream(prompt)``, with an LLM that is loaded once and kept."""
    check_each(options, ("model",))
    return _llm(model).stream(prompt, **options)


@overload
def chat(
    messages: Messages,
    model: str | os.PathLike[str] | None = None,
    *,
    stream: Literal[False] = False,
    template_options: Mapping[str, Any] | None = None,
    **options: Unpack[ChatKwargs],
) -> Result: ...


@overload
def chat(
    messages: Messages,
    model: str | os.PathLike[str] | None = None,
    *,
    stream: Literal[True],
    template_options: Mapping[str, Any] | None = None,
    **options: Unpack[ChatKwargs],
) -> Stream: ...


@overload
def chat(
    messages: Messages,
    model: str | os.PathLike[str] | None = None,
    *,
    stream: bool,
    template_options: Mapping[str, Any] | None = None,
    **options: Unpack[ChatKwargs],
) -> Result | Stream: ...


@with_chat_options
def chat(
    messages: Messages,
    model: str | os.PathLike[str] | None = None,
    *,
    stream: bool = False,
    template_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result | Stream:
    """``LLM(model).chat(messages)``, with an LLM that is loaded once and kept.

    Args:
        messages: ``[{"role": "user", "content": "..."}, ...]``, or a string for one message.
        model: as for ``LLM``; None is the default model.
        stream: return a ``Stream`` instead of waiting for the whole answer.
        template_options: further variables for the template, in addition to the keywords below.
    """
    check_chat(stream, options)
    variables, _ = split(options, template_options)
    conversation(messages, variables.get("system"))
    return _llm(model).chat(messages, stream=stream, template_options=template_options, **options)
