"""What is to be measured: lengths, depths and batch sizes, as far as the model's context has room.

Knows no model and no engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from onward.errors import InvalidArgument
from onward.option_values import check_integer

MAX_BATCH = 64
MAX_REPETITIONS = 1000
PREFILL_TOKENS = (128, 512, 2048)
DECODE_DEPTHS = (0, 512, 2048)


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

    def check(self) -> None:
        for tokens in self.prefill or ():
            check_integer("prefill", tokens, 1)
        for depth in self.depths or ():
            check_integer("depth", depth, 0)
        for batch in self.batches:
            check_integer("batch", batch, 1, MAX_BATCH)
        check_integer("decode_tokens", self.decode_tokens, 1)
        check_integer("repetitions", self.repetitions, 1, MAX_REPETITIONS)

    def cases(self, context: int) -> list[Case]:
        """One after the other. InvalidArgument for what was asked for and exceeds the context."""
        self.check()
        written = self.decode_tokens * self.repetitions + 1
        found = []
        for tokens in _within("prefill", self.prefill, PREFILL_TOKENS, context - 1):
            found += [Case("prefill", batch, tokens) for batch in self.batches]
        for depth in _within("depth", self.depths, DECODE_DEPTHS, context - written):
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


def _within(
    name: str, asked: Sequence[int] | None, usual: Sequence[int], most: int
) -> Sequence[int]:
    if asked is None:
        return [tokens for tokens in usual if tokens <= most]
    for tokens in asked:
        if tokens > most:
            raise InvalidArgument(
                f"{name}: is {tokens}, expected at most {most}: what is written has to fit the "
                "model's context too"
            )
    return asked
