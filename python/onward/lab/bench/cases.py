"""Timed runs of one engine: prefill and decode.

Runs are greedy, on token ids, and no token ends them. The result of a run is its time, its bytes
read and multiply-adds, and its tokens.
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
"""Most tokens of one step, the default of ``LLM``."""


@dataclass(frozen=True)
class Reading:
    """One timed run."""

    seconds: float
    tokens: int
    cost: Cost
    chosen: tuple[tuple[int, ...], ...]
    """The tokens that were chosen, for each sequence."""


class Bench:
    """An engine under measurement. It has no prefix cache, so a repeated prompt is computed again.

    ``kv``: the arguments of the core's Engine for the KV cache. ``cache`` False: each generated
    token computes the whole sequence before it again, and this cost is counted.
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
        """The prompt of sequence ``index`` of a batch. A longer prompt begins with the shorter
        ones."""
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
        """Whether every sequence has generated a token."""
        return all(self.written.values())

    def counts(self) -> list[int]:
        return [len(tokens) for tokens in self.written.values()]

    def tokens_from(self, firsts: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """The tokens that each sequence generated, from its index in ``firsts`` on."""
        return tuple(
            tuple(tokens[first:])
            for tokens, first in zip(self.written.values(), firsts, strict=True)
        )

    def close(self) -> None:
        for request in self._requests:
            self._bench.engine.cancel(request)

    def logits_hash(self) -> str:
        """The first 8 digits of the SHA-256 of the last logits of all sequences, as float32."""
        digest = hashlib.sha256()
        for (scores,) in self._last_logits:
            digest.update(scores.astype("<f4").tobytes())
        return digest.hexdigest()[:8]


class Prefill:
    """Runs all prompts up to the first output token."""

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
        """Does nothing: a run leaves nothing open."""


class Decode:
    """Steps that generate one token for each sequence.

    Each run continues the one before. The first run begins with ``case.tokens`` tokens in the
    cache, and each later run with ``steps`` more. Without the cache there is one sequence, and all
    its tokens are computed again for each generated token.
    """

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
        # The last token chosen is not in the cache yet. Before the first one the cache is empty.
        self._cached = [
            length + count - 1
            for length, count in zip(self._cached, self._batch.counts(), strict=True)
        ]

    @property
    def cached(self) -> list[int]:
        """The number of tokens of each sequence in the cache."""
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
        else:  # a sequence longer than a chunk takes several steps for a token
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
    """The slices of tokens [begin, end) of a concatenation of prompts of ``length`` tokens."""
    slices = []
    while begin < end:
        first = begin % length
        tokens = min(end - begin, length - first)
        slices.append(Slice(first, tokens, int(first + tokens == length)))
        begin += tokens
    return slices


def _groups(batch: int, depth: int) -> list[int]:
    """The numbers of prompts that are submitted together, so that one step can read a group."""
    size = max(1, (CHUNK_TOKENS - batch) // max(depth, 1))
    return [min(size, batch - begin) for begin in range(0, batch, size)]


def _prompt_lengths(groups: Sequence[int], depth: int) -> list[int]:
    """The length of each group's prompts.

    All sequences have the same length when the last group has been read. Earlier groups generate a
    token in each step of the later groups, so their prompts are shorter.
    """
    lengths: list[int] = []
    steps_after = 0
    writing = sum(groups)
    for size in reversed(groups):
        writing -= size
        length = max(1, depth - steps_after)
        lengths.append(length)
        steps_after += -(-size * length // (CHUNK_TOKENS - writing))
    return lengths[::-1]
