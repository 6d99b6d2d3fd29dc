"""Time to read a chunk of a prompt, by the number of earlier tokens and by kv dtype.

The model is a published shape with random weights. ``filling`` makes the earlier tokens, so that a
chunk at 32,768 does not need a prompt of 32,768 tokens. Every round reads a new chunk with every kv
dtype, in an order that rotates by one, and also a chunk without earlier tokens. The difference is
the time of attention.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kv_runs.filling import fill
from kv_runs.printing import say, show
from kv_runs.subjects import add_subject_arguments, make_subjects
from onward import _core
from onward.lab.bench.cases import CHUNK_TOKENS
from onward.lab.bench.subject import Subject


@dataclass(frozen=True)
class Line:
    """The medians of one kv dtype after a number of earlier tokens."""

    kv_dtype: str
    depth: int
    token_ms: float
    """The time of a chunk divided by its tokens."""
    times: float
    """The ratio to a chunk without earlier tokens, in the same round."""
    times_min: float
    times_max: float
    ratio: float
    """The chunk time of the first kv dtype divided by this one, in the same round; above 1 is
    faster."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser, ["bf16", "int8", "turbo4"])
    parser.add_argument("--depth", type=int, nargs="+", default=[2048, 8192, 32768])
    parser.add_argument("--rounds", type=int, default=3)


class Reader:
    """An engine with one kept prefix."""

    def __init__(self, subject: Subject) -> None:
        self.kv_dtype = subject.kv_dtype
        self._vocab = subject.spec.vocab_size
        self._engine = _core.Engine(
            subject.core,
            threads=subject.threads,
            prefill_chunk_tokens=CHUNK_TOKENS,
            **subject.kv_arguments,
        )
        self._prefix: NDArray[np.int32] = np.empty(0, np.int32)

    def fill(self, depth: int) -> None:
        self._prefix = self._random(depth, depth)
        fill(self._engine, self._prefix)

    def seconds(self, index: int, *, deep: bool) -> float:
        """The seconds of a step that reads a chunk. Each index has different tokens."""
        prefix = self._prefix if deep else self._prefix[:0]
        request = self._engine.submit(
            np.concatenate([prefix, self._random(CHUNK_TOKENS, -1 - index)]),
            max_new_tokens=1,
            sampling=_core.SamplingOptions(),
        )
        try:
            began = time.perf_counter()
            found = self._engine.step()
            seconds = time.perf_counter() - began
        finally:
            self._engine.cancel(request)
        # A few tokens of two prompts may be equal by chance.
        kept = found[0].cached_tokens if found else -1
        if not len(prefix) <= kept <= len(prefix) + 2:
            raise RuntimeError(f"{self.kv_dtype}: {kept} of {len(prefix)} kept, or several steps")
        return seconds

    def _random(self, tokens: int, seed: int) -> NDArray[np.int32]:
        generator = np.random.default_rng((1, abs(seed), int(seed < 0)))
        return generator.integers(0, self._vocab, tokens).astype(np.int32)


def run(arguments: argparse.Namespace) -> int:
    readers = [Reader(subject) for subject in make_subjects(arguments)]
    began = time.monotonic()
    lines = []
    turn = 0
    for depth in arguments.depth:
        deep: list[list[float]] = [[] for _ in readers]
        near: list[list[float]] = [[] for _ in readers]
        for reader in readers:
            reader.fill(depth)
        for index in range(arguments.rounds):
            for place in range(len(readers)):
                which = (place + index) % len(readers)
                deep[which].append(readers[which].seconds(turn, deep=True))
                near[which].append(readers[which].seconds(turn, deep=False))
            turn += 1
            say(f"depth {depth}: round {index + 1}, {time.monotonic() - began:.0f} s")
        lines += [
            _line(reader.kv_dtype, depth, deep[0], deep[which], near[which])
            for which, reader in enumerate(readers)
        ]
    setting = {
        "model": f"synthetic {arguments.synthetic}",
        "dtype": arguments.dtype,
        "isa": _core.kernels.selected(),
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "chunk_tokens": CHUNK_TOKENS,
    }
    show(setting, lines, _rows(lines), arguments.output)
    return 0


def _line(
    kv_dtype: str, depth: int, first: list[float], deep: list[float], near: list[float]
) -> Line:
    times = [far / shallow for far, shallow in zip(deep, near, strict=True)]
    return Line(
        kv_dtype,
        depth,
        1e3 * statistics.median(deep) / CHUNK_TOKENS,
        statistics.median(times),
        min(times),
        max(times),
        statistics.median(base / own for base, own in zip(first, deep, strict=True)),
    )


def _rows(lines: list[Line]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("tokens before", "kv dtype", "ms a token", "of none before", "min", "max", "speed")
    ]
    for line in lines:
        rows.append(
            (
                f"{line.depth:,}",
                line.kv_dtype,
                f"{line.token_ms:.2f}",
                f"{line.times:.2f}",
                f"{line.times_min:.2f}",
                f"{line.times_max:.2f}",
                f"{line.ratio:.2f}",
            )
        )
    return rows
