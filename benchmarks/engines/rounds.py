"""Runs the engines in turns, round after round, and collects readings; figures.py summarises them.

In a round every engine gets the same requests. The order rotates by one from round to round. Each
round has its own prompt, so that no engine can reuse the last one. An engine that fails is removed,
with the reason, and the others continue. Engines are processes (child.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engines.child import Child
from engines.contest import Absent, Request, Timed, mixed_requests
from engines.lineup import Entry
from engines.neighbours import Neighbours, wait_for_quiet

# Threads of an engine that has just finished spin for up to 200 ms.
PAUSE_S = 0.3
CROWD_PROMPTS = (16, 256)
CROWD_OUTPUTS = (16, 128)
MEASURED_PREFILL = 128  # the time of a shorter prompt says little
WARM_TOKENS = 8


@dataclass(frozen=True)
class Case:
    """A request alone, or ``crowd`` of mixed lengths at once."""

    prompt: int = 0
    new: int = 0
    crowd: int = 0

    @property
    def context(self) -> int:
        return CROWD_PROMPTS[1] + CROWD_OUTPUTS[1] if self.crowd else self.prompt + self.new

    def __str__(self) -> str:
        if self.crowd:
            return f"{self.crowd} requests"
        return f"{self.prompt} + {self.new} tokens"

    def rates(self, timed: Timed) -> dict[str, float]:
        """The speed of one request in tokens per second."""
        found = {}
        if self.prompt >= MEASURED_PREFILL:
            found[f"prefill {self.prompt}"] = self.prompt / timed.first_s
        if self.new > 1:
            deep = f" at {self.prompt}" if self.prompt >= MEASURED_PREFILL else ""
            found[f"decode{deep}"] = (self.new - 1) / (timed.last_s - timed.first_s)
        return found


@dataclass(frozen=True)
class Reading:
    """One figure of one engine in one round."""

    entry: Entry
    measure: str
    heat: int
    round: int
    tokens_per_s: float
    others_share: float
    """The share of the cores that other processes took."""
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Rules:
    """The settings of all measurements."""

    rounds: int
    patience_s: float
    vocab_size: int


Failed = Callable[[Entry, str], None]


def measure(
    children: dict[Entry, Child],
    crowds: set[Entry],
    cases: Sequence[Case],
    rules: Rules,
    heat: int,
    failed: Failed,
) -> list[Reading]:
    """Run all cases, one after another. An engine that fails is removed from ``children``."""
    readings: list[Reading] = []
    for case in cases:
        takes_part = [entry for entry in children if not case.crowd or entry in crowds]
        for index in range(-1, rules.rounds):
            for entry in _in_turn(takes_part, index):
                if entry not in children:
                    continue
                wait_for_quiet(rules.patience_s if index >= 0 else 0)
                try:
                    found = list(_one(entry, children[entry], case, rules, heat, index))
                except Absent as reason:
                    failed(entry, f"{case}: {reason}")
                    children.pop(entry).__exit__()
                    continue
                readings += found
                rates = ", ".join(f"{r.measure}: {r.tokens_per_s:.1f} tokens/s" for r in found)
                say(f"{case}, {_named(index, rules.rounds)}: {entry.name}: {rates or 'ready'}")
                time.sleep(PAUSE_S)
    return readings


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _named(index: int, rounds: int) -> str:
    return "warm-up" if index < 0 else f"round {index + 1}/{rounds}"


def _in_turn(entries: list[Entry], index: int) -> list[Entry]:
    begin = max(index, 0) % len(entries) if entries else 0
    return entries[begin:] + entries[:begin]


def _one(
    entry: Entry, child: Child, case: Case, rules: Rules, heat: int, index: int
) -> Iterator[Reading]:
    """The readings of one round. The warm-up round gives none."""
    if case.crowd:
        requests = mixed_requests(case.crowd, CROWD_PROMPTS, CROWD_OUTPUTS, rules.vocab_size)
        if index < 0:
            child.prepare(requests)
            return
        neighbours = Neighbours(child.process)
        seconds = child.run(requests)
        rate = sum(request.new_tokens for request in requests) / seconds
        yield Reading(entry, f"{case.crowd} at once", heat, index, rate, neighbours.share(), ())
        return
    if index < 0:
        # A warm-up at full depth would take as long as the round.
        case = replace(case, prompt=min(case.prompt, 512), new=min(case.new, WARM_TOKENS))
    rng = np.random.default_rng([case.prompt, index + 1])
    prompt = tuple(rng.integers(0, rules.vocab_size, case.prompt).tolist())
    neighbours = Neighbours(child.process)
    timed = child.follow(Request(prompt, case.new))
    share = neighbours.share()
    if index < 0:
        return
    for name, rate in case.rates(timed).items():
        yield Reading(entry, name, heat, index, rate, share, tuple(timed.tokens))
