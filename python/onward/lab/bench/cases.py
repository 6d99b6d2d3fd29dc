"""The two timed things, prefill and decode, each as runs of one engine.

Runs are greedy, on token ids, and no token ends them. For each run the result is its time, its
bytes read and multiply-adds, and its tokens.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onward import _core
from onward.lab.bench.plan import Case
from onward.lab.counts.costs import Cost, Slice, StepCosts

CHUNK_TOKENS = 256
"""Tokens of one step at most: what an LLM has."""


@dataclass(frozen=True)
class Reading:
    """One timed run."""

    seconds: float
    tokens: int
    cost: Cost
    chosen: tuple[tuple[int, ...], ...]
    """The tokens that each sequence was given."""


class Bench:
    """An engine under measurement. It keeps no beginnings: a prompt that comes again is read
    again.

    ``kv``: arguments of the core's Engine that say how keys and values are kept. ``cache`` False:
    each token that is written computes all before it anew, and costs that.
    """

    def __init__(
        self,
        model: _core.Model,
        costs: StepCosts,
        threads: int,
        batch: int,
        kv: Mapping[str, Any] | None = None,
        *,
        cache: bool = True,
    ) -> None:
        self.engine = _core.Engine(
            model,
            threads=threads,
            prefill_chunk_tokens=CHUNK_TOKENS,
            max_sequences=max(batch, 1),
            prefix_cache=False,
            **(kv or {}),
        )
        self.costs, self.cache = costs, cache
        self.vocab_size = model.spec.vocab_size
        self.max_context = model.spec.max_context

    def prompt(self, index: int, tokens: int) -> NDArray[np.int32]:
        """The prompt of the sequence of that index in a batch, in its first tokens always the
        same."""
        generator = np.random.default_rng((1, index))
        return generator.integers(0, self.vocab_size, tokens).astype(np.int32)


class Batch:
    """Sequences of one engine, each with its tokens so far."""

    def __init__(self, bench: Bench, *, watched: bool) -> None:
        self._bench = bench
        self._watched = watched
        self._requests: list[int] = []
        self._last_logits: list[list[NDArray[np.float32]]] = []
        self.written: dict[int, list[int]] = {}

    def submit(self, prompt: NDArray[np.int32], max_new_tokens: int) -> None:
        sampling = _core.SamplingOptions()
        last: list[NDArray[np.float32]] = []
        if self._watched:

            def keep(token_ids: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
                last[:] = [scores]

            sampling.set_logits_processor(keep)
        request = self._bench.engine.submit(
            prompt,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            cache=self._bench.cache,
        )
        self._requests.append(request)
        self._last_logits.append(last)
        self.written[request] = []

    def step(self) -> None:
        for event in self._bench.engine.step():
            event.raise_failure()
            self.written[event.request].append(event.token)

    def begun(self) -> bool:
        """Whether every sequence has a token of its own."""
        return all(self.written.values())

    def counts(self) -> list[int]:
        return [len(tokens) for tokens in self.written.values()]

    def tokens_from(self, firsts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """What each sequence has written from its token of that index on."""
        return tuple(
            tuple(tokens[first:])
            for tokens, first in zip(self.written.values(), firsts, strict=True)
        )

    def close(self) -> None:
        for request in self._requests:
            self._bench.engine.cancel(request)

    def logits_hash(self) -> str:
        """SHA-256 of the last logits of all sequences, in order, as float32: its first 8 digits."""
        digest = hashlib.sha256()
        for (scores,) in self._last_logits:
            digest.update(scores.astype("<f4").tobytes())
        return digest.hexdigest()[:8]


class Prefill:
    """Reads all prompts from the first token to the first output."""

    def __init__(self, bench: Bench, case: Case, *, watched: bool = False) -> None:
        self._bench, self._case, self._watched = bench, case, watched
        total = case.batch * case.tokens
        self._cost = Cost()
        for begin in range(0, total, CHUNK_TOKENS):
            end = min(begin + CHUNK_TOKENS, total)
            self._cost += bench.costs(chunk_slices(begin, end, case.tokens))
        self.logits_hash = ""

    def run(self) -> Reading:
        case, batch = self._case, Batch(self._bench, watched=self._watched)
        prompts = [self._bench.prompt(index, case.tokens) for index in range(case.batch)]
        try:
            started = time.perf_counter()
            for prompt in prompts:
                batch.submit(prompt, 1)
            while not batch.begun():
                batch.step()
            seconds = time.perf_counter() - started
        finally:
            batch.close()
        if self._watched:
            self.logits_hash = batch.logits_hash()
        chosen = batch.tokens_from([0] * case.batch)
        return Reading(seconds, case.batch * case.tokens, self._cost, chosen)

    def close(self) -> None:
        """Nothing is left of a run."""


class Decode:
    """Steps of one token for each sequence. The runs follow one another, so the first one begins
    with ``case.tokens`` tokens in the cache, and the next with ``steps`` more. Without the cache it
    is one sequence, and so many tokens are computed anew before the next one comes."""

    def __init__(self, bench: Bench, case: Case, steps: int, *, watched: bool = False) -> None:
        self._bench, self._case, self._steps, self._watched = bench, case, steps, watched
        self._batch = Batch(bench, watched=watched)
        self._cached: list[int] = []
        self.logits_hash = ""
        groups = _groups(case.batch, case.tokens)
        lengths = _prompt_lengths(groups, case.tokens)
        index = 0
        try:
            for size, length in zip(groups, lengths, strict=True):
                for _ in range(size):
                    self._batch.submit(bench.prompt(index, length), bench.max_context)
                    self._cached.append(length)
                    index += 1
                while case.tokens > 0 and not self._batch.begun():
                    self._batch.step()
        except BaseException:
            self.close()
            raise
        # The last token chosen is not in the cache yet; with nothing chosen, nothing is.
        self._cached = [
            length + count - 1
            for length, count in zip(self._cached, self._batch.counts(), strict=True)
        ]

    @property
    def cached(self) -> list[int]:
        """Tokens that each sequence has in the cache."""
        return self._cached

    def run(self) -> Reading:
        batch, before = self._batch, self._batch.counts()
        cost = Cost()
        for step in range(self._steps):
            cost += self._step_cost(step)
        started = time.perf_counter()
        if self._bench.cache:
            for _ in range(self._steps):
                batch.step()
        else:  # a sequence longer than a chunk takes several steps to a token
            while batch.counts()[0] < before[0] + self._steps:
                batch.step()
        seconds = time.perf_counter() - started
        self._cached = [count + self._steps for count in self._cached]
        chosen = batch.tokens_from(before)
        if self._watched:
            self.logits_hash = batch.logits_hash()
        return Reading(seconds, sum(map(len, chosen)), cost, chosen)

    def _step_cost(self, step: int) -> Cost:
        if self._bench.cache:
            return self._bench.costs([Slice(count + step, 1, 1) for count in self._cached])
        length = self._cached[0] + step + 1
        cost = Cost()
        for begin in range(0, length, CHUNK_TOKENS):
            end = min(begin + CHUNK_TOKENS, length)
            cost += self._bench.costs(chunk_slices(begin, end, length))
        return cost

    def close(self) -> None:
        self._batch.close()


def chunk_slices(begin: int, end: int, length: int) -> list[Slice]:
    """Tokens [begin, end) of prompts of that length laid end to end."""
    slices = []
    while begin < end:
        first = begin % length
        tokens = min(end - begin, length - first)
        slices.append(Slice(first, tokens, int(first + tokens == length)))
        begin += tokens
    return slices


def _groups(batch: int, depth: int) -> list[int]:
    """How many prompts are handed over together: those that one step reads."""
    size = max(1, (CHUNK_TOKENS - batch) // max(depth, 1))
    return [min(size, batch - begin) for begin in range(0, batch, size)]


def _prompt_lengths(groups: Sequence[int], depth: int) -> list[int]:
    """The length of each group's prompts, so that all sequences are equally deep when the last
    group has been read: those that were read before write a token in each of its steps."""
    lengths: list[int] = []
    steps_after = 0
    writing = sum(groups)
    for size in reversed(groups):
        writing -= size
        length = max(1, depth - steps_after)
        lengths.append(length)
        steps_after += -(-size * length // (CHUNK_TOKENS - writing))
    return lengths[::-1]
