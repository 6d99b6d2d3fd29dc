"""Text generation with nothing hidden: ``onward.chat("What is gravity?")``.

This file lists the public names. Each is imported when it is first used (PEP 562), so ``import
onward`` takes milliseconds, starts no thread and loads no model. ``generate``, ``stream`` and
``chat`` keep one ``LLM`` per model name for the life of the process. An ``LLM`` that you create
frees its memory when you close it.
"""

from __future__ import annotations

import importlib

from onward import errors
from onward.errors import Error

TYPE_CHECKING = False  # type checkers take it as true; typing takes milliseconds to import
if TYPE_CHECKING:
    from onward._core import __version__, kv_cache_bytes
    from onward.calls.generation import Stream
    from onward.calls.result import Result, Timings, Usage
    from onward.calls.scoring import Score
    from onward.default_llm import chat, generate, stream
    from onward.llm import LLM
    from onward.machine.devices import Device, devices
    from onward.machine.native_files import get_cmake_dir, get_include, get_lib_dir
    from onward.options.resolution import GenerationOptions
    from onward.quantization import Quantization, quantize
    from onward.sessions.session import Session

_HOMES = {
    "__version__": "onward._core",
    "kv_cache_bytes": "onward._core",
    "LLM": "onward.llm",
    "Device": "onward.machine.devices",
    "devices": "onward.machine.devices",
    "chat": "onward.default_llm",
    "generate": "onward.default_llm",
    "stream": "onward.default_llm",
    "Stream": "onward.calls.generation",
    "GenerationOptions": "onward.options.resolution",
    "Quantization": "onward.quantization",
    "quantize": "onward.quantization",
    "Result": "onward.calls.result",
    "Score": "onward.calls.scoring",
    "Session": "onward.sessions.session",
    "Timings": "onward.calls.result",
    "get_cmake_dir": "onward.machine.native_files",
    "get_include": "onward.machine.native_files",
    "get_lib_dir": "onward.machine.native_files",
    "Usage": "onward.calls.result",
}

__all__ = [
    "LLM",
    "Device",
    "Error",
    "GenerationOptions",
    "Quantization",
    "Result",
    "Score",
    "Session",
    "Stream",
    "Timings",
    "Usage",
    "__version__",
    "chat",
    "devices",
    "errors",
    "generate",
    "get_cmake_dir",
    "get_include",
    "get_lib_dir",
    "kv_cache_bytes",
    "quantize",
    "stream",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'onward' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
