"""Reads and checks the conditions of ``--fail-on``, such as ``top1<0.99,kl>0.02,decode_ratio<1``.

A comparison fails if one of its conditions is true.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onward.errors import InvalidArgument
from onward.lab.compare.comparison import Comparison, Ratios
from onward.message_text import nearest, shown

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION = re.compile(r"\s*([a-z0-9_]+)\s*(<=|>=|<|>)\s*(\S+)\s*")


def _least(of: Callable[[Ratios], float | None]) -> Callable[[Comparison], float | None]:
    """The smallest ratio over all depths."""

    def find(comparison: Comparison) -> float | None:
        known = [ratio for line in comparison.ratios if (ratio := of(line)) is not None]
        return min(known, default=None)

    return find


def _memory(comparison: Comparison) -> float:
    return comparison.b.footprint.weight_bytes / comparison.a.footprint.weight_bytes


FIGURES: dict[str, Callable[[Comparison], float | None]] = {
    "top1": lambda c: c.agreement.top1,
    "kl": lambda c: c.agreement.kl_mean,
    "kl_p99_9": lambda c: c.agreement.kl_p99_9,
    "kl_max": lambda c: c.agreement.kl_max,
    "max_difference": lambda c: c.agreement.max_difference,
    "rms_difference": lambda c: c.agreement.rms_difference,
    "noise": lambda c: c.agreement.noise,
    "perplexity_ratio": lambda c: c.agreement.perplexity_ratio,
    "prefill_ratio": _least(lambda line: line.prefill),
    "decode_ratio": _least(lambda line: line.decode),
    "load_ratio": lambda c: c.b.footprint.load_s / c.a.footprint.load_s,
    "weight_ratio": _memory,
}
"""The figures by name. Ratios are B over A; ratios of rates are the smallest over all depths.
    None: not measured."""
TIMED = ("prefill_ratio", "decode_ratio")


@dataclass(frozen=True)
class Condition:
    name: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.bound:g}"

    def failure(self, comparison: Comparison) -> str | None:
        """The message of a condition that is true; None if it is false. Raises InvalidArgument if
        its figure was not measured."""
        found = FIGURES[self.name](comparison)
        if found is None:
            raise InvalidArgument(
                f"fail_on: {self} asks for a figure that was not measured, expected a depth that "
                "both sides were timed at"
            )
        return f"{self}: is {found:.6g}" if _OPERATORS[self.sign](found, self.bound) else None


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Read conditions with commas between them. Raises InvalidArgument for anything else."""
    found = []
    for part in text.split(","):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise InvalidArgument(
                f"fail_on: has {shown(part)}, expected NAME, one of {' '.join(_OPERATORS)} "
                "and a number"
            )
        name, sign, number = match.groups()
        if name not in FIGURES:
            raise InvalidArgument(
                f"fail_on: name is {shown(name)}, expected one of {', '.join(FIGURES)}"
                f"{nearest(name, FIGURES)}"
            )
        try:
            bound = float(number)
        except ValueError:
            bound = math.nan
        if not math.isfinite(bound):
            raise InvalidArgument(
                f"fail_on: {name} is compared with {shown(number)}, expected a number"
            )
        found.append(Condition(name, sign, bound))
    return tuple(found)


def failures(conditions: Sequence[Condition], comparison: Comparison) -> tuple[str, ...]:
    """The messages of the conditions that are true."""
    failed = (condition.failure(comparison) for condition in conditions)
    return tuple(text for text in failed if text is not None)
