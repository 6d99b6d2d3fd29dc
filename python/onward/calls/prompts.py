"""What a caller may pass as a prompt -> token ids the engine can take.

A prompt is text or a sequence of token ids; a batch is a list of prompts. Everything is checked
before anything is computed, and an error in one row of a batch names its index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.message_text import sentence
from onward.options.values import shown

if TYPE_CHECKING:
    from typing import TypeAlias

TokenIds: TypeAlias = "Sequence[int] | NDArray[np.integer[Any]]"
Prompt: TypeAlias = "str | TokenIds"
EXPECTED = "text, token ids, or a list of those"
_TEXT_OR_BYTES = (str, bytes, bytearray, memoryview)


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
        """The ids of one prompt: at least one, all in the vocabulary, within the context.

        Without an ``encoder`` only token ids are taken.
        """
        if isinstance(prompt, str) and encoder is not None:
            ids = self.ids(where, self._encode(where, prompt, encoder))
        else:
            ids = self.ids(where, prompt)
        if ids.size > self.context:
            raise InvalidArgument(
                f"{where}: has {ids.size} tokens, "
                f"expected at most the model's context of {self.context}"
            )
        return ids

    def ids(self, where: str, prompt: object, *, allow_empty: bool = False) -> NDArray[np.int32]:
        """Token ids in any integer form, none of them outside the vocabulary."""
        values = _as_sequence(where, prompt)
        if len(values) == 0 and not allow_empty:
            raise InvalidArgument(f"{where}: is empty, expected text or at least one token id")
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
            outside = np.flatnonzero((values < 0) | (values >= self.vocab_size))
            if outside.size:
                self._refuse(where, int(outside[0]), values[outside[0]].item())
        else:
            found = [_as_integer(token) for token in values]
            for index, integer in enumerate(found):
                if integer is None or not 0 <= integer < self.vocab_size:
                    self._refuse(where, index, values[index] if integer is None else integer)
            return np.array(found, dtype=np.int32)
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


def prompts_of(prompt: object) -> tuple[list[object], bool]:
    """The prompts of a call, and whether they came as a batch.

    A list of integers is one prompt. A list of texts or of id lists is a batch, and so is a
    two-dimensional array of integers or a one-dimensional array of texts. ``[]`` is one prompt
    without token ids, which ``PromptReader`` refuses.
    """
    prompt = _as_plain("prompt", prompt)
    if isinstance(prompt, np.ndarray):
        if prompt.ndim == 2 or (prompt.ndim == 1 and prompt.dtype.kind in "UT"):
            return list(prompt), True
        if prompt.dtype.kind == "O" and prompt.ndim == 1 and len(prompt):
            prompt = prompt.tolist()
        elif prompt.ndim == 0 and isinstance(prompt.item(), str):
            return [prompt.item()], False
    if isinstance(prompt, Sequence) and not isinstance(prompt, _TEXT_OR_BYTES) and len(prompt):
        first = prompt[0]
        several = isinstance(first, (str, Sequence)) or getattr(first, "ndim", 0) > 0
        return (list(prompt), True) if several else ([prompt], False)
    return [prompt], False


def _as_plain(where: str, value: object) -> object:
    """A tensor, a pandas Series or anything else that converts to an array, as that array."""
    if isinstance(value, (np.ndarray, np.generic)) or not hasattr(value, "__array__"):
        return value
    try:
        return np.asarray(value)
    except Exception as error:  # of another library: a tensor on a GPU, or of bfloat16
        reason = sentence(error)
        kind = type(value).__name__
        raise ArgumentTypeError(
            f"{where}: is a {kind} that cannot become a numpy array ({reason}), "
            "expected one in the memory of the processor, or a list of integers"
        ) from None


def _as_sequence(where: str, prompt: object) -> Sequence[object] | NDArray[Any]:
    prompt = _as_plain(where, prompt)
    if isinstance(prompt, np.ndarray):
        if prompt.ndim != 1:
            raise ArgumentTypeError(
                f"{where}: is an array of {prompt.ndim} dimensions, "
                "expected one dimension of token ids, or two for a batch"
            )
        return prompt
    if isinstance(prompt, Sequence) and not isinstance(prompt, _TEXT_OR_BYTES):
        return prompt
    expected = "token ids" if isinstance(prompt, str) else EXPECTED
    if isinstance(prompt, (bytes, bytearray, memoryview)):
        expected += "; decode bytes into text first"
    elif isinstance(prompt, (Iterator, Set)):
        expected += "; make it a list first"
    raise ArgumentTypeError(
        f"{where}: is {shown(prompt)} ({type(prompt).__name__}), expected {expected}"
    )


def _as_integer(token: object) -> int | None:
    """A token id as an int: Python's, numpy's, or an array or tensor of no dimensions."""
    if isinstance(token, (bool, np.bool_)):
        return None
    if isinstance(token, Integral):
        return int(token)
    if getattr(token, "ndim", None) == 0 and "int" in str(getattr(token, "dtype", "")):
        return int(token)  # type: ignore[call-overload, no-any-return]
    return None
