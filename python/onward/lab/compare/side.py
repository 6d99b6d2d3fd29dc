"""The interface of a side of a comparison: its questions and its answers.

Answers are plain data that JSON and arrays can hold, because a side may be another process or a
file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
"""(tokens, vocab_size): row i is what token i was chosen from."""


@dataclass(frozen=True)
class Description:
    """What computed a side: everything that might explain a difference."""

    setting: str
    onward: str
    build: str
    core: str
    """A digest of the compiled core: the same only for the same binary."""
    python: str
    system: str
    processor: str
    device: str
    isa: str
    threads: int
    model: str
    fingerprint: str
    """A digest of the decoder's shape and constants and of samples of its weights."""
    dtype: str
    weight_dtypes: tuple[str, ...]
    """All that matrices are held in."""
    kv_dtype: str
    cache: bool
    """Whether tokens are computed from kept keys and values, or each from all before it anew."""
    vocab_size: int
    context: int
    parameters: int


@dataclass(frozen=True)
class Text:
    """A prompt and what was written after it, as token ids."""

    prompt: tuple[int, ...]
    written: tuple[int, ...]


@dataclass(frozen=True)
class Footprint:
    """What loading took and what the model holds."""

    load_s: float
    weight_bytes: int
    """The weights, by the model's own count."""
    resident_bytes: int | None
    """What the process grew by while it loaded; None: not known."""


@dataclass(frozen=True)
class Round:
    """One timed run: a prompt of ``depth`` tokens is read (one token, where depth is 0), and tokens
    are written after it. Shares are of what the device was probed at beside the run; None where
    there is nothing to tell, or no probe."""

    depth: int
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float
    bytes_per_token: float
    """Read a token of decode, counted."""
    gigabytes_per_s: float
    read_share: float | None
    """Of decode, of the read bandwidth."""
    arithmetic_share: float | None
    """Of prefill, of the arithmetic peak."""


class Side(Protocol):
    """Can be asked in any order; ``close`` is the last call."""

    def describe(self) -> Description: ...

    def tokenize(self, prompts: Sequence[str]) -> list[tuple[int, ...]]: ...

    def write(self, prompt: Sequence[int], tokens: int) -> tuple[Text, Logits]:
        """So many tokens after the prompt, each the likeliest, and their logits."""

    def follow(self, text: Text) -> Logits:
        """The logits where it is given the text's tokens, whatever it would have chosen."""

    def spell(self, tokens: Sequence[int]) -> list[str]:
        """The text of each token. TokenizerError where there is no tokenizer."""

    def footprint(self) -> Footprint: ...

    def run(self, depth: int) -> Round:
        """One timed run."""

    def close(self) -> None: ...
