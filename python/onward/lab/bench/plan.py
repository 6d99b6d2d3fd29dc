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
"""The usual depths without the cache, where each token costs a prefill of all tokens before it."""
COMPARED_LENGTHS = (16, 64, 256, 1024)
COUNTED_TOKENS = (16, 64, 128)
"""The usual values of a comparison: tokens before the timed one, and tokens to generate."""


@dataclass(frozen=True)
class Case:
    """Prefill of ``batch`` prompts of ``tokens`` tokens each, or decode of ``batch`` sequences with
    ``tokens`` tokens each in the cache."""

    what: Literal["prefill", "decode"]
    batch: int
    tokens: int


@dataclass(frozen=True)
class Plan:
    """The requested measurements. None: the usual lengths that fit into the model's context."""

    prefill: Sequence[int] | None = None
    depths: Sequence[int] | None = None
    batches: Sequence[int] = (1,)
    decode_tokens: int = 16
    """Tokens that each sequence generates in one timed run."""
    repetitions: int = 5
    cache: bool = True
    """False: each step of decode computes its whole sequence again. Prefill does not depend on
    this, and without the cache it is measured only on request."""

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
        """The cases in order. Raises InvalidArgument for a requested length that exceeds
        ``context``."""
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
        """The most tokens in the cache at a time."""
        written = self.decode_tokens * self.repetitions + 1
        return max(
            case.batch * (case.tokens + (written if case.what == "decode" else 1)) for case in cases
        )


def within(
    name: str, asked: Sequence[int] | None, usual: Sequence[int], most: int
) -> Sequence[int]:
    """The requested lengths, or the usual lengths up to ``most``. Raises InvalidArgument for a
    requested length above ``most``."""
    if asked is None:
        return [tokens for tokens in usual if tokens <= most]
    for tokens in asked:
        if tokens > most:
            raise InvalidArgument(
                f"{name}: is {tokens}, expected at most {most}: what is written has to fit the "
                "model's context too"
            )
    return asked
