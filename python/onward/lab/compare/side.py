"""The interface of a side of a comparison: its methods and the records that they return.

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
"""(tokens, vocab_size): token i was chosen from row i."""


@dataclass(frozen=True)
class Description:
    """The build, machine, model and settings of a side, which may explain a difference."""

    setting: str
    onward: str
    build: str
    core: str
    """A digest of the compiled core."""
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
    """All dtypes of matrices."""
    kv_dtype: str
    cache: bool
    """Whether a token reads cached keys and values, or computes the whole sequence again."""
    vocab_size: int
    context: int
    parameters: int


@dataclass(frozen=True)
class Text:
    """A prompt and the output after it, as token ids."""

    prompt: tuple[int, ...]
    written: tuple[int, ...]


@dataclass(frozen=True)
class Footprint:
    """The time to load a model, and its memory."""

    load_s: float
    weight_bytes: int
    """Bytes of the weights, by the model's own count."""
    resident_bytes: int | None
    """Growth of the process while it loaded the model; None: unknown."""


@dataclass(frozen=True)
class Round:
    """One timed run: a prompt of ``depth`` tokens (one token for depth 0) and output after it.

    Shares are of the limits of the device, probed around the run. None: no figure, or no probe.
    """

    depth: int
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float
    bytes_per_token: float
    """Bytes read for a token of decode, counted from the spec."""
    gigabytes_per_s: float
    read_share: float | None
    """Share of the read bandwidth in decode."""
    arithmetic_share: float | None
    """Share of the arithmetic peak in prefill."""


class Side(Protocol):
    """One side. Its methods can be called in any order; ``close`` is the last call."""

    def describe(self) -> Description: ...

    def tokenize(self, prompts: Sequence[str]) -> list[tuple[int, ...]]: ...

    def write(self, prompt: Sequence[int], tokens: int) -> tuple[Text, Logits]:
        """Generate ``tokens`` tokens after the prompt by greedy choice. Returns the text and the
        logits."""

    def follow(self, text: Text) -> Logits:
        """The logits for the tokens of ``text``, which replace the choices of this side."""

    def spell(self, tokens: Sequence[int]) -> list[str]:
        """The text of each token. Raises TokenizerError if the side has no tokenizer."""

    def footprint(self) -> Footprint: ...

    def run(self, depth: int) -> Round:
        """One timed run."""

    def close(self) -> None: ...
