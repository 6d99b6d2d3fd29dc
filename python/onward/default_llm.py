"""``onward.generate``, ``stream`` and ``chat``: one LLM per model name, loaded once and kept.

They live as long as the process. For other settings, or to have the memory back, make an ``LLM``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from onward.generation import Stream
from onward.llm import LLM, Messages
from onward.options import with_options
from onward.prompts import TokenIds
from onward.result import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from onward.option_table import GenerationKwargs

_llms: dict[str | None, LLM] = {}
_loading = threading.Lock()


def _renew_lock() -> None:
    global _loading
    _loading = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _llm(model: str | os.PathLike[str] | None) -> LLM:
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
    answer: Result | list[Result] = _llm(model).generate(prompt, **options)
    return answer


@with_options
def stream(
    prompt: str | TokenIds,
    model: str | os.PathLike[str] | None = None,
    **options: Unpack[GenerationKwargs],
) -> Stream:
    """``LLM(model).stream(prompt)``, with an LLM that is loaded once and kept."""
    return _llm(model).stream(prompt, **options)


@with_options
def chat(
    messages: Messages,
    model: str | os.PathLike[str] | None = None,
    *,
    template_options: Mapping[str, Any] | None = None,
    **options: Unpack[GenerationKwargs],
) -> Result:
    """``LLM(model).chat(messages)``, with an LLM that is loaded once and kept."""
    return _llm(model).chat(messages, template_options=template_options, **options)
