"""What a caller may pass as a prompt -> token ids the engine can take.

A prompt is text or a sequence of token ids; a batch is a list of prompts. Everything is checked
before anything is computed, and what is wrong with one row of a batch is told with its index. Knows
nothing of generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.option_values import shown

if TYPE_CHECKING:
    from typing import TypeAlias

TokenIds: TypeAlias = "Sequence[int] | NDArray[np.integer[Any]]"
Prompt: TypeAlias = "str | TokenIds"
EXPECTED = "text, token ids, or a list of those"


class Encoder(Protocol):
    """The part of a tokenizer that prompts need."""

    @property
    def bos_token_id(self) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True)
class PromptReader:
    """Turns prompts into ids for one model."""

    vocab_size: int
    context: int

    def read(self, where: str, prompt: object, encoder: Encoder | None) -> NDArray[np.int32]:
        """The ids of one prompt: at least one, all in the vocabulary, within the context."""
        if isinstance(prompt, str):
            assert encoder is not None
            ids = self.ids(where, self._encode(where, prompt, encoder))
        else:
            ids = self.ids(where, prompt)
        if ids.size > self.context:
            raise InvalidArgument(
                f"{where}: has {ids.size} tokens, "
                f"expected at most the model's context of {self.context}"
            )
        return ids

    def ids(self, where: str, prompt: object) -> NDArray[np.int32]:
        """Token ids in any integer form, none of them outside the vocabulary."""
        values = _as_sequence(where, prompt)
        if len(values) == 0:
            raise InvalidArgument(f"{where}: is empty, expected at least one token id")
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
            outside = np.flatnonzero((values < 0) | (values >= self.vocab_size))
            if outside.size:
                self._refuse(where, int(outside[0]), values[outside[0]].item())
        else:
            for index, token in enumerate(values):
                if isinstance(token, (bool, np.bool_)) or not isinstance(token, Integral):
                    self._refuse(where, index, token)
                elif not 0 <= int(token) < self.vocab_size:
                    self._refuse(where, index, int(token))
        return np.array(values, dtype=np.int32)

    def _refuse(self, where: str, index: int, token: object) -> None:
        raise InvalidArgument(
            f"{where}: token id {shown(token)} at position {index}, "
            f"expected integers 0 to {self.vocab_size - 1}"
        )

    @staticmethod
    def _encode(where: str, text: str, encoder: Encoder) -> list[int]:
        try:
            ids = encoder.encode(text)
        except InvalidArgument as error:  # a lone surrogate, or longer than any context
            told = str(error)
            raise InvalidArgument(told if where == "prompt" else f"{where}: {told}") from None
        if ids:
            return ids
        if encoder.bos_token_id is None:
            raise InvalidArgument(
                f"{where}: is empty and the model has no beginning-of-sequence token, "
                "expected text or token ids"
            )
        return [encoder.bos_token_id]


def is_batch(prompt: object) -> bool:
    """Whether this is a list of prompts. A list of integers is one prompt, [] a batch of none."""
    if isinstance(prompt, np.ndarray):
        return prompt.ndim == 2
    if not isinstance(prompt, (list, tuple)):
        return False
    return len(prompt) == 0 or isinstance(prompt[0], (str, list, tuple, np.ndarray))


def _as_sequence(where: str, prompt: object) -> Sequence[object] | NDArray[Any]:
    if hasattr(prompt, "__array__"):
        array = np.asarray(prompt)
        if array.ndim != 1:
            raise ArgumentTypeError(
                f"{where}: is an array of {array.ndim} dimensions, expected token ids in one"
            )
        return array
    if isinstance(prompt, Sequence) and not isinstance(prompt, (str, bytes, bytearray, memoryview)):
        return prompt
    raise ArgumentTypeError(
        f"{where}: is {shown(prompt)} ({type(prompt).__name__}), expected {EXPECTED}"
    )
