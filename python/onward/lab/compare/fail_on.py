"""Conditions under which a comparison counts as failed: ``top1<0.99,kl>0.02,decode_ratio<1``.

A condition that holds is a failure.
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
    """The least of a ratio over all depths."""

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
"""By name; ratios are B over A, those of rates the least over all depths. None: not measured."""
TIMED = ("prefill_ratio", "decode_ratio")


@dataclass(frozen=True)
class Condition:
    name: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name}{self.sign}{self.bound:g}"

    def failure(self, comparison: Comparison) -> str | None:
        """What to say where the condition holds; None where it does not. InvalidArgument where the
        figure was not measured."""
        found = FIGURES[self.name](comparison)
        if found is None:
            raise InvalidArgument(
                f"fail_on: {self} asks for a figure that was not measured, expected a depth that "
                "both sides were timed at"
            )
        return f"{self}: is {found:.6g}" if _OPERATORS[self.sign](found, self.bound) else None


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """Conditions with commas between them. InvalidArgument for what is none."""
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
            raise InvalidArgument(f"fail_on: {name} is held against {shown(number)}, not a number")
        found.append(Condition(name, sign, bound))
    return tuple(found)


def failures(conditions: Sequence[Condition], comparison: Comparison) -> tuple[str, ...]:
    """One text for each condition that holds."""
    failed = (condition.failure(comparison) for condition in conditions)
    return tuple(text for text in failed if text is not None)
