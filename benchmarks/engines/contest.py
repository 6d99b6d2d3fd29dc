"""The interface of an engine in a benchmark: requests go in, tokens come back."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Clock = Callable[[], float]


@dataclass(frozen=True)
class Request:
    """A prompt, and the exact number of tokens to generate after it."""

    prompt: tuple[int, ...]
    new_tokens: int


@dataclass(frozen=True)
class Timed:
    """The result of one request alone: its tokens and their times, in seconds since the
    submission."""

    tokens: list[int]
    first_s: float
    last_s: float


class Contestant(Protocol):
    """One engine in one setting."""

    name: str
    """The heading of its column in the table."""
    setting: str
    """A description of the setting, for the reader of the table."""
    serial: bool
    """Whether it serves one request after another, so that its speed does not depend on their
    number."""

    def prepare(self, requests: Sequence[Request], clock: Clock) -> str:
        """Warm up and choose the fastest way to run these requests; returns its name."""
        ...

    def run(self, requests: Sequence[Request]) -> list[list[int]]:
        """Run all requests at once, greedy; returns the generated tokens in the given order."""
        ...

    def follow(self, request: Request) -> Timed:
        """Run one request alone, greedy."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


class Stopwatch:
    """Records tokens and their times since its creation."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._tokens: list[int] = []
        self._times: list[float] = []

    def note(self, token: int) -> None:
        self._times.append(time.perf_counter() - self._started)
        self._tokens.append(token)

    def timed(self) -> Timed:
        return Timed(self._tokens, self._times[0], self._times[-1])


class OneByOne(ABC):
    """Many requests for an engine that serves one request after another."""

    serial = True

    @abstractmethod
    def follow(self, request: Request) -> Timed:
        """See Contestant."""

    def prepare(self, requests: Sequence[Request], clock: Clock) -> str:
        self.run(requests[:1])
        return "one after another"

    def run(self, requests: Sequence[Request]) -> list[list[int]]:
        return [self.follow(request).tokens for request in requests]


class Absent(Exception):
    """An engine cannot be run here; the message says why, or how to install it."""


def mixed_requests(
    count: int, prompt_lengths: tuple[int, int], new_lengths: tuple[int, int], vocab_size: int
) -> list[Request]:
    """``count`` requests of mixed lengths; the same for the same arguments.

    Lengths are spread evenly between the two bounds, in different orders for prompts and outputs.
    So a short list is as mixed as a long one, and the mean does not depend on ``count``. The tokens
    are random, because the cost of generation does not depend on the text.
    """
    rng = np.random.default_rng(count)

    def spread(low: int, high: int) -> list[int]:
        middles = (np.arange(count) + 0.5) / count
        return rng.permutation(np.rint(low + (high - low) * middles).astype(int)).tolist()

    prompts, outputs = spread(*prompt_lengths), spread(*new_lengths)
    return [
        Request(tuple(rng.integers(0, vocab_size, length).tolist()), new_tokens)
        for length, new_tokens in zip(prompts, outputs, strict=True)
    ]
