"""Generating in C++ on the engine of an ``onward.LLM``, without the interpreter lock."""

import onward._core  # noqa: F401  loads libonward.so for the module below
from shared_engine._shared_engine import generate

__all__ = ["generate"]
