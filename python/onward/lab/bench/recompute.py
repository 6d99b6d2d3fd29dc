"""Measures the value of the cache: time to a token with it and without it, and the keys and values
computed.

Both are measured in turns on the same model. Without the cache a token costs a prefill of all
tokens before it, so the time grows with the length. n tokens after a prompt of one cost
n (n + 1) / 2 computations of keys and values without the cache, and n with it. The engine's own
counter must agree, and both runs must choose the same tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from onward import _core
from onward.errors import Error
from onward.lab.bench.cases import Batch, Bench, Decode
from onward.lab.bench.plan import COMPARED_LENGTHS, COUNTED_TOKENS, MAX_REPETITIONS, Case, within
from onward.lab.bench.subject import Subject, find_subject, require_memory
from onward.machine.progress import ProgressBar
from onward.options.values import check_integer

TOKENS_WITH, TOKENS_WITHOUT = 16, 1
"""Tokens generated in one timed run, with and without the cache."""


@dataclass(frozen=True)
class Question:
    lengths: Sequence[int] | None = None
    """Tokens before the timed one; None: the usual lengths that fit into the context."""
    counted: Sequence[int] | None = None
    """Numbers of tokens to generate while computations are counted; None: the usual numbers."""
    repetitions: int = 3

    def check(self) -> None:
        for tokens in self.lengths or ():
            check_integer("depth", tokens, 1)
        for tokens in self.counted or ():
            check_integer("count", tokens, 1)
        check_integer("repetitions", self.repetitions, 1, MAX_REPETITIONS)

    def lengths_in(self, context: int) -> Sequence[int]:
        """The lengths. Raises InvalidArgument for a requested length that exceeds ``context``."""
        return within("depth", self.lengths, COMPARED_LENGTHS, context - self._written)

    def counted_in(self, context: int) -> Sequence[int]:
        """The numbers of tokens to count. They must fit into ``context`` after a prompt of one."""
        return within("count", self.counted, COUNTED_TOKENS, context - 1)

    def cached_tokens(self, context: int) -> int:
        """The most tokens in one of the two caches."""
        lengths = (tokens + self._written for tokens in self.lengths_in(context))
        return max([1, *lengths, *self.counted_in(context)])

    @property
    def _written(self) -> int:
        """The most tokens generated after each length."""
        return TOKENS_WITH * (self.repetitions + 1) + 1


@dataclass(frozen=True)
class Line:
    """Time to a token at one length: medians over the repetitions."""

    tokens: int
    with_cache_s: float
    without_cache_s: float
    ratio: float
    """Time without the cache over time with it; the median of the rounds' ratios."""
    ratio_min: float
    ratio_max: float


@dataclass(frozen=True)
class Count:
    """Tokens whose keys and values were computed, by the engine's counter, to generate ``tokens``
    tokens after a prompt of one."""

    tokens: int
    with_cache: int
    without_cache: int


@dataclass(frozen=True)
class Comparison:
    model: str
    dtype: str
    kv_dtype: str
    isa: str
    threads: int
    repetitions: int
    lines: tuple[Line, ...]
    counts: tuple[Count, ...]


def bench(question: Question, **subject: Any) -> Comparison:
    """Load or make a model, and compare. ``subject``: the arguments of ``find_subject``."""
    question.check()
    found = find_subject(lambda spec: 2 * question.cached_tokens(spec.max_context), **subject)
    return compare(found, question)


def compare(subject: Subject, question: Question) -> Comparison:
    """All lengths and counts, in order.

    Raises Error if the runs with and without the cache choose different tokens, or if the counter
    differs from the formula.
    """
    question.check()
    lengths = question.lengths_in(subject.spec.max_context)
    counted = question.counted_in(subject.spec.max_context)
    longest = question.cached_tokens(subject.spec.max_context)
    require_memory(subject.name, cache=2 * subject.cache_bytes(longest))
    both = [
        Bench(subject.core, subject.costs, subject.threads, 1, subject.kv_arguments, cache=cache)
        for cache in (True, False)
    ]
    total = len(lengths) * (question.repetitions + 1) + len(counted)
    lines: list[Line] = []
    counts: list[Count] = []
    with ProgressBar("measuring") as progress:
        for tokens in lengths:

            def done(runs: int, before: int = len(lines) * (question.repetitions + 1)) -> None:
                progress(before + runs, total)

            lines.append(_line(both, tokens, question.repetitions, done))
        for tokens in counted:
            counts.append(_count(both, tokens))
            progress(total - len(counted) + len(counts), total)
    return Comparison(
        model=subject.name,
        dtype=subject.dtypes.name,
        kv_dtype=subject.kv_dtype,
        isa=_core.kernels.selected(),
        threads=subject.threads,
        repetitions=question.repetitions,
        lines=tuple(lines),
        counts=tuple(counts),
    )


def _line(
    both: Sequence[Bench], tokens: int, repetitions: int, done: Callable[[int], None]
) -> Line:
    case = Case("decode", 1, tokens)
    # With the cache a token is cheap: the clock is too coarse for a run of one token.
    with_cache = Decode(both[0], case, TOKENS_WITH)
    without = Decode(both[1], case, TOKENS_WITHOUT)
    seconds: list[tuple[float, float]] = []
    chosen: tuple[list[int], list[int]] = ([], [])
    try:
        for index in range(repetitions + 1):
            pair = []
            for runs, written in zip((with_cache, without), chosen, strict=True):
                reading = runs.run()
                written += reading.chosen[0]
                pair.append(reading.seconds / reading.tokens)
            if index > 0:  # the first one warms up
                seconds.append((pair[0], pair[1]))
            done(index + 1)
    finally:
        with_cache.close()
        without.close()
    _same(f"at length {tokens}", *chosen)
    ratios = [off / on for on, off in seconds]
    return Line(
        tokens,
        statistics.median(on for on, _ in seconds),
        statistics.median(off for _, off in seconds),
        statistics.median(ratios),
        min(ratios),
        max(ratios),
    )


def _count(both: Sequence[Bench], tokens: int) -> Count:
    found: list[int] = []
    written: list[list[int]] = []
    for bench in both:
        before = bench.engine.stats()["kv_computations"]
        batch = Batch(bench, watched=False)
        try:
            batch.submit(bench.prompt(0, 1), tokens)
            while batch.counts()[0] < tokens:
                batch.step()
        finally:
            batch.close()
        written.append(list(batch.tokens_from([0])[0]))
        found.append(bench.engine.stats()["kv_computations"] - before)
    _same(f"of {tokens}", written[0], written[1])
    expected = [tokens, tokens * (tokens + 1) // 2]
    if found != expected:
        raise Error(
            f"bench: {tokens} tokens took {found[0]} computations of keys and values with the "
            f"cache and {found[1]} without, expected {expected[0]} and {expected[1]}"
        )
    return Count(tokens, found[0], found[1])


def _same(where: str, with_cache: Sequence[int], without: Sequence[int]) -> None:
    shared = min(len(with_cache), len(without))
    if list(with_cache[:shared]) != list(without[:shared]):
        raise Error(f"bench: {where}: other tokens with the cache than without, expected the same")
