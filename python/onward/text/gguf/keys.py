"""Typed reading of the `tokenizer.ggml.*` metadata of a GGUF file; errors name the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onward.errors import TokenizerError
from onward.machine.caller import warn_caller
from onward.message_text import shown

PREFIX = "tokenizer.ggml."
MAX_TOKENS = 1 << 19  # the largest published vocabularies have about 262,000
MAX_MERGES = 1 << 20  # the largest published lists have about 450,000
_NONE = 0xFFFFFFFF  # the value of llama.cpp for "no such token"


class TokenizerKeys:
    """The keys below "tokenizer.ggml.". Arrays may be lists or numpy arrays."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata

    def get(self, key: str) -> Any:
        """A value; None if the key is missing. Scalars of numpy become Python values."""
        value: Any = self._metadata.get(PREFIX + key)
        is_scalar = hasattr(value, "item") and not getattr(value, "shape", ())
        return value.item() if is_scalar else value

    def wrong(self, key: str, problem: str) -> TokenizerError:
        return TokenizerError(f"{PREFIX}{key}: {problem}")

    def strings(self, key: str, limit: int) -> list[str]:
        values = self._array(key, limit)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise self.wrong(key, f"entry {i} is {shown(value)}, expected a string")
        return values

    def integers(self, key: str, count: int) -> list[int] | None:
        """One integer per token; None if the key is missing."""
        if self.get(key) is None:
            return None
        values = self._array(key, MAX_TOKENS)
        if len(values) != count or not all(type(value) is int for value in values):
            raise self.wrong(key, f"{len(values)} entries, expected {count} integers, one a token")
        return values

    def numbers(self, key: str, count: int) -> list[float]:
        values = self._array(key, MAX_TOKENS)
        if len(values) != count or not all(type(value) in (int, float) for value in values):
            raise self.wrong(key, f"{len(values)} entries, expected {count} numbers, one a token")
        return values

    def needed_id(self, key: str, count: int) -> int | None:
        """The id of a token that the text depends on; an id out of range is an error."""
        value = self.get(key)
        if value is None or value == _NONE:
            return None
        if type(value) is not int or not 0 <= value < count:
            raise self.wrong(key, f"found {shown(value)}, expected 0 to {count - 1}")
        return value

    def optional_id(self, key: str, count: int) -> int | None:
        """The id of a token that generation does not need; an id out of range is a warning."""
        try:
            return self.needed_id(key, count)
        except TokenizerError as error:
            warn_caller(f"{error}; the key is ignored")
            return None

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, f"found {shown(value)}, expected true or false")
        return value

    def _array(self, key: str, limit: int) -> list[Any]:
        value = self._metadata.get(PREFIX + key)
        if value is None:
            raise self.wrong(key, "the key is missing")
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise self.wrong(key, f"found a {type(value).__name__}, expected an array")
        if len(value) > limit:
            raise self.wrong(key, f"{len(value)} entries, expected at most {limit}")
        return list(value)
