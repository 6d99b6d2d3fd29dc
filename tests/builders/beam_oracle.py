"""A second implementation of beam search, simple and slow: the engine must give the same results.

The rule is the rule of transformers 4.57 to 5.24 without sampling. A step considers the best
candidates of all beams. A candidate that ends is finished if it is among the first `num_beams` of
the step. The best candidates that do not end stay alive. Groups, which transformers had until 4.57,
search one after another in each step, with a penalty on the tokens that earlier groups chose. The
input is a function that returns log-probabilities.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Tokens = tuple[int, ...]
LogProbs = Callable[[Tokens], NDArray[np.float64]]
"""Log-probabilities of the vocabulary after an output."""
UNREACHABLE = -1e9
"""The sum of a beam that does not exist yet, because all beams begin with the same prompt."""


@dataclass(frozen=True)
class Rule:
    num_beams: int
    max_new_tokens: int
    eos: Tokens = ()
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    num_beam_groups: int = 1
    diversity_penalty: float = 0.0
    stops: Callable[[Tokens], bool] | None = None
    """Whether an output ends with its last token, for any token."""

    @property
    def places(self) -> int:
        """Beams of a group."""
        return self.num_beams // self.num_beam_groups

    def ends(self, output: Tokens) -> bool:
        return output[-1] in self.eos or (self.stops is not None and self.stops(output))

    def score(self, total: float, length: int) -> float:
        return total / length**self.length_penalty


@dataclass(frozen=True)
class Scored:
    score: float  # the sum of a live beam
    tokens: Tokens


@dataclass
class Group:
    rule: Rule
    live: list[Scored]
    finished: list[Scored] = field(default_factory=list)  # best first
    searching: bool = True

    @property
    def full(self) -> bool:
        return len(self.finished) == self.rule.places

    def step(self, log_probs: LogProbs, taken: Counter[int]) -> None:
        """Generate one more token. Counts in ``taken`` the tokens of the beams that stay alive."""
        rule = self.rule
        candidates = [
            (beam.score + log_prob - rule.diversity_penalty * taken[token], place, token)
            for place, beam in enumerate(self.live)
            for token, log_prob in enumerate(log_probs(beam.tokens))
            if log_prob > -math.inf
        ]
        candidates.sort(key=lambda c: (-c[0], c[1], c[2]))
        del candidates[max(2, 1 + len(rule.eos)) * rule.places :]
        longer = [Scored(total, (*self.live[b].tokens, token)) for total, b, token in candidates]
        length = len(self.live[0].tokens) + 1
        last = length == rule.max_new_tokens
        go_on = [beam for beam in longer if not rule.ends(beam.tokens)][: rule.places]
        taken.update(beam.tokens[-1] for beam in go_on)

        for beam in longer[: rule.places]:
            if last or rule.ends(beam.tokens):
                self.finished.append(Scored(rule.score(beam.score, length), beam.tokens))
        self.finished.sort(key=lambda h: -h.score)  # stable: older ones win ties
        del self.finished[rule.places :]
        self.live = [] if last else go_on
        self.searching = bool(self.live) and self._may_improve(length)
        if not self.searching:
            self.live = []

    def _may_improve(self, length: int) -> bool:
        if not self.full:
            return True
        if self.rule.early_stopping is True:
            return False
        patient = self.rule.early_stopping == "never" and self.rule.length_penalty > 0
        reach = self.rule.max_new_tokens if patient else length
        return self.rule.score(self.live[0].score, reach) > self.finished[-1].score


@dataclass
class Search:
    """The results, best first, and the number of settled tokens after each step."""

    results: list[Scored]
    settled: list[int]  # number of tokens that all possible results have in common


def beam_search(log_probs: LogProbs, rule: Rule) -> Search:
    start = [Scored(0.0, ()), *[Scored(UNREACHABLE, ())] * (rule.places - 1)]
    groups = [Group(rule, start) for _ in range(rule.num_beam_groups)]
    settled = []
    while any(group.searching for group in groups):
        taken: Counter[int] = Counter()
        for group in groups:
            if group.searching:
                group.step(log_probs, taken)
        settled.append(_settled(groups))
    return Search(_best_first(groups), settled)


def _best_first(groups: Iterable[Group]) -> list[Scored]:
    return sorted((h for group in groups for h in group.finished), key=lambda h: -h.score)


def _settled(groups: Sequence[Group]) -> int:
    possible = [beam.tokens for group in groups for beam in group.live]
    possible += [best.tokens for best in _best_first(groups)[:1]]
    return len(list(takewhile(lambda column: len(set(column)) == 1, zip(*possible, strict=False))))


# Processors, on log-probabilities


@dataclass(frozen=True)
class Processors:
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    suppress_tokens: Tokens = ()
    min_new_tokens: int = 0

    def apply(
        self, log_probs: NDArray[np.float64], prompt: Tokens, output: Tokens, eos: Tokens
    ) -> NDArray[np.float64]:
        changed, text, n = log_probs.copy(), prompt + output, self.no_repeat_ngram_size
        for token in set(text):
            # A score is never above 0, so it is always multiplied; scores are float32.
            changed[token] = np.float32(changed[token] * self.repetition_penalty)
        if n > 0:
            begun = text[len(text) - n + 1 :]
            for i in range(len(text) - n + 1):
                if text[i : i + n - 1] == begun:
                    changed[text[i + n - 1]] = -math.inf
        if len(output) < self.min_new_tokens:
            changed[list(eos)] = -math.inf
        changed[list(self.suppress_tokens)] = -math.inf
        return changed
