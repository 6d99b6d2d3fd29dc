"""Checks that exactly the predicted number of long sequences fits beside the weights.

The model is a published shape with random weights in memory. For each kv dtype, the memory limit is
the prediction for the sequences, plus the blocks of a step if there are codes. ``filling`` makes
the keys and values of the prompts, under different tokens for each sequence, so that nothing is
shared. Then all sequences generate some tokens of their last block in one batch. With one byte
less, one sequence must wait. The figures are the engine's count and the growth of the process.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kv_runs.filling import BLOCK, READ_TOKENS, Blocks, repeated_blocks
from kv_runs.printing import say, show
from kv_runs.subjects import add_subject_arguments, make_subjects
from onward import _core
from onward.lab.bench.subject import Subject
from onward.lab.counts.sequences import sequence_bytes, step_bytes
from onward.machine.memory import available_memory_bytes, resident_bytes

WRITTEN = 4
"""Tokens that each sequence generates. Its last block exists from the first of them on."""


@dataclass(frozen=True)
class Line:
    kv_dtype: str
    sequences: int
    tokens: int
    predicted: int
    """Bytes of all sequences, by the formula."""
    budget: int
    """The same, plus the blocks of a step."""
    engine: int
    """The largest count of the engine."""
    resident: int | None
    """The growth of the process with all sequences in memory; None: unknown on this system."""
    together: int
    """The largest number of sequences in one step."""
    preempted: int
    together_with_less: int
    """The same with one byte less of memory; all sequences end in that case, too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(parser, ["int8", "turbo8v4", "turbo4"], synthetic="llama-3.1-8b")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=4096, help="of each, a multiple of 16")


class Crowd:
    """Sequences whose tokens, except the last 16, are in the cache."""

    def __init__(self, subject: Subject, tokens: int, sequences: int, cache_bytes: int) -> None:
        self.engine = _core.Engine(
            subject.core,
            threads=subject.threads,
            prefill_chunk_tokens=256,
            max_sequences=sequences,
            kv_cache_bytes=cache_bytes,
            **subject.kv_arguments,
        )
        generator = np.random.default_rng(2)
        vocab = subject.spec.vocab_size
        self.prompts: list[NDArray[np.int32]] = [
            generator.integers(0, vocab, tokens - BLOCK + 1).astype(np.int32)
            for _ in range(sequences)
        ]

    def blocks(self) -> Blocks:
        made = repeated_blocks(self.engine, self.prompts[0][:-1])
        self.engine.forget_prefixes()
        return made

    def fill(self, blocks: Blocks) -> None:
        for prompt in self.prompts:
            self.engine.restore_prefix(prompt[:-1], blocks)

    def write(self) -> tuple[int, int, int | None]:
        """Run until all sequences have ended. Returns the largest values seen: sequences in one
        step, bytes that the engine counted, bytes of the process."""
        requests = {
            self.engine.submit(prompt, max_new_tokens=WRITTEN, sampling=_core.SamplingOptions())
            for prompt in self.prompts
        }
        together = counted = 0
        resident: int | None = None
        while requests:
            events = self.engine.step()
            for event in events:
                event.raise_failure()
                if event.ends_request:
                    requests.discard(event.request)
            together = max(together, len({event.request for event in events}))
            counted = max(counted, self.engine.stats()["cache_bytes"])
            here = resident_bytes()
            resident = here if resident is None or here is None else max(resident, here)
        return together, counted, resident


def measure(subject: Subject, sequences: int, tokens: int) -> Line:
    """Raise the engine's error if a sequence fails."""
    assert subject.kv is not None  # make_subjects sets it
    known = subject.spec, subject.kv
    predicted = sequences * sequence_bytes(*known, tokens, subject.policy)
    budget = predicted + step_bytes(*known, subject.policy)
    crowd = Crowd(subject, tokens, sequences, budget)
    blocks = crowd.blocks()
    before = resident_bytes()
    crowd.fill(blocks)
    together, counted, resident = crowd.write()
    preempted = crowd.engine.stats()["preempted"]
    grown = None if before is None or resident is None else resident - before
    del crowd
    less = Crowd(subject, tokens, sequences, budget - 1)
    less.fill(blocks)
    with_less, _, _ = less.write()
    return Line(
        subject.kv_dtype,
        sequences,
        tokens,
        predicted,
        budget,
        counted,
        grown,
        together,
        preempted,
        with_less,
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.tokens % BLOCK or arguments.tokens < READ_TOKENS + 2 * BLOCK:
        raise SystemExit(
            f"tokens: is {arguments.tokens}, expected a multiple of {BLOCK} of at least "
            f"{READ_TOKENS + 2 * BLOCK}"
        )
    lines = []
    for subject in make_subjects(arguments):
        say(f"{subject.kv_dtype}: {arguments.sequences} sequences of {arguments.tokens:,} tokens")
        lines.append(measure(subject, arguments.sequences, arguments.tokens))
        seen = lines[-1]
        say(f"{seen.kv_dtype}: {seen.together} at once, {seen.together_with_less} with 1 byte less")
    setting = {
        "model": arguments.synthetic,
        "dtype": arguments.dtype,
        "isa": _core.kernels.selected(),
        "threads": arguments.threads,
        "memory left": available_memory_bytes(),
    }
    show(setting, lines, table(lines), arguments.output)
    return 0 if all(fits(line) for line in lines) else 1


def fits(line: Line) -> bool:
    """Run all sequences with the predicted memory, and with one byte less."""
    return (
        line.together == line.sequences
        and line.preempted == 0
        and line.engine <= line.budget
        and line.together_with_less < line.sequences
    )


def table(lines: Sequence[Line]) -> list[list[str]]:
    rows = [
        ["kv dtype", "sequences", "tokens", "predicted MiB", "engine MiB", "grown MiB",
         "of predicted", "at once", "preempted", "at once, a byte less"]
    ]  # fmt: skip
    for line in lines:
        grown = line.resident
        rows.append(
            [
                line.kv_dtype,
                str(line.sequences),
                f"{line.tokens:,}",
                f"{line.predicted / 2**20:,.1f}",
                f"{line.engine / 2**20:,.1f}",
                "" if grown is None else f"{grown / 2**20:,.1f}",
                "" if grown is None else f"{grown / line.predicted:.1%}",
                str(line.together),
                str(line.preempted),
                str(line.together_with_less),
            ]
        )
    return rows
