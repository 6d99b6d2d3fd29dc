"""Submits beam searches to the C++ engine and collects their events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from builders.core_engine import ids, submit
from onward import _core

BEAM_FIELDS = {
    *("num_beams", "num_beam_groups", "diversity_penalty", "length_penalty", "early_stopping"),
    "num_return_sequences",
}


@dataclass
class Hypothesis:
    tokens: list[int] = field(default_factory=list)
    score: float | None = None
    finish: str | None = None
    log_probs: list[_core.TokenLogprobs] = field(default_factory=list)


@dataclass
class Beams:
    """The events of one request. A request without beams has one hypothesis."""

    hypotheses: dict[int, Hypothesis] = field(default_factory=dict)  # by rank
    reported: list[int] = field(default_factory=list)  # after each step, tokens of the first one
    ended: bool = False

    def take(self, events: Iterable[_core.Event]) -> None:
        for event in events:
            event.raise_failure()
            assert not self.ended
            hypothesis = self.hypotheses.setdefault(event.sequence, Hypothesis())
            assert hypothesis.finish is None
            if event.token >= 0:
                hypothesis.tokens.append(event.token)
            if event.logprobs is not None:
                assert event.logprobs.token == event.token
                hypothesis.log_probs.append(event.logprobs)
            hypothesis.score, hypothesis.finish = event.score, event.finish_reason
            self.ended = event.ends_request
        self.reported.append(len(self.hypotheses[0].tokens) if self.hypotheses else 0)

    @property
    def scored(self) -> list[tuple[list[int], float | None]]:
        assert list(self.hypotheses) == list(range(len(self.hypotheses)))
        return [(each.tokens, each.score) for each in self.hypotheses.values()]


def submit_beams(engine: _core.Engine, prompt: ArrayLike, **options: Any) -> int:
    """Options of the beams, the request and the sampler, in one row. Returns all hypotheses unless
    ``num_return_sequences`` says otherwise."""
    beams = _core.BeamOptions()
    options.setdefault("num_return_sequences", options["num_beams"])
    for name in BEAM_FIELDS & set(options):
        setattr(beams, name, options.pop(name))
    return submit(engine, prompt, beams=beams, **options)


def drain_beams(
    engine: _core.Engine, requests: Iterable[int], plain: Iterable[int] = ()
) -> dict[int, Beams]:
    """Run steps until all beam searches and all ``plain`` requests (of one sequence) have ended."""
    found = {request: Beams() for request in (*requests, *plain)}
    running = set(found)
    while running:
        events: dict[int, list[_core.Event]] = {request: [] for request in running}
        for event in engine.step():
            if event.request in events:
                events[event.request].append(event)
        for request, reported in events.items():
            found[request].take(reported)
            if found[request].ended:
                running.discard(request)
    return found


def search(engine: _core.Engine, prompt: ArrayLike, **options: Any) -> Beams:
    request = submit_beams(engine, prompt, **options)
    return drain_beams(engine, [request])[request]


def log_probs_after(engine: _core.Engine, tokens: ArrayLike) -> NDArray[np.float64]:
    return float32_log_softmax(engine.logits(ids(tokens))[-1])


def float32_log_softmax(row: NDArray[np.float32]) -> NDArray[np.float64]:
    """Computed in float64 and rounded to float32."""
    logits = row.astype(np.float64)
    largest = logits.max()
    total = largest + np.log(np.exp(logits - largest).sum())
    return (logits - total).astype(np.float32).astype(np.float64)
