"""The plan of a measurement: lengths, depths and batch sizes that fit into the model's context."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from onward.errors import InvalidArgument
from onward.options.values import check_integer

MAX_BATCH = 64
MAX_REPETITIONS = 1000
PREFILL_TOKENS = (128, 512, 2048)
DECODE_DEPTHS = (0, 512, 2048)
UNCACHED_DEPTHS = (0, 128, 512)
"""Usual ones without the cache, where each token costs as much as reading all before it."""
COMPARED_LENGTHS = (16, 64, 256, 1024)
COUNTED_TOKENS = (16, 64, 128)
"""Usual ones of a comparison: tokens in front of the timed one, and numbers of tokens written."""


@dataclass(frozen=True)
class Case:
    """Prefill of ``batch`` prompts of ``tokens`` tokens, or decode of so many sequences with
    ``tokens`` tokens in the cache."""

    what: Literal["prefill", "decode"]
    batch: int
    tokens: int


@dataclass(frozen=True)
class Plan:
    """What is asked for. None: the usual ones that fit the model's context."""

    prefill: Sequence[int] | None = None
    depths: Sequence[int] | None = None
    batches: Sequence[int] = (1,)
    decode_tokens: int = 16
    """Of each sequence in one timed run."""
    repetitions: int = 5
    cache: bool = True
    """False: each step of decode computes its sequence anew. Prefill is the same either way, and is
    measured only where it is asked for."""

    def check(self) -> None:
        for tokens in self.prefill or ():
            check_integer("prefill", tokens, 1)
        for depth in self.depths or ():
            check_integer("depth", depth, 0)
        for batch in self.batches:
            check_integer("batch", batch, 1, MAX_BATCH)
        check_integer("decode_tokens", self.decode_tokens, 1)
        check_integer("repetitions", self.repetitions, 1, MAX_REPETITIONS)
        if not self.cache and max(self.batches) > 1:
            raise InvalidArgument(
                f"batch: is {max(self.batches)}, expected 1 without the cache: sequences that are "
                "computed anew do not share steps"
            )

    def cases(self, context: int) -> list[Case]:
        """One after the other. InvalidArgument for what was asked for and exceeds the context."""
        self.check()
        written = self.decode_tokens * self.repetitions + 1
        found = []
        prompts = PREFILL_TOKENS if self.cache else ()
        for tokens in within("prefill", self.prefill, prompts, context - 1):
            found += [Case("prefill", batch, tokens) for batch in self.batches]
        depths = DECODE_DEPTHS if self.cache else UNCACHED_DEPTHS
        for depth in within("depth", self.depths, depths, context - written):
            found += [Case("decode", batch, depth) for batch in self.batches]
        if not found:
            raise InvalidArgument("bench: nothing to measure, expected a prefill or a depth")
        return found

    def cached_tokens(self, cases: Iterable[Case]) -> int:
        """Tokens in the cache at most."""
        written = self.decode_tokens * self.repetitions + 1
        return max(
            case.batch * (case.tokens + (written if case.what == "decode" else 1)) for case in cases
        )


def within(
    name: str, asked: Sequence[int] | None, usual: Sequence[int], most: int
) -> Sequence[int]:
    """What was asked for, or of the usual ones those up to ``most``. InvalidArgument for more."""
    if asked is None:
        return [tokens for tokens in usual if tokens <= most]
    for tokens in asked:
        if tokens > most:
            raise InvalidArgument(
                f"{name}: is {tokens}, expected at most {most}: what is written has to fit the "
                "model's context too"
            )
    return asked
