"""A real engine whose answers are known: after token i comes i + 1, and 0 after the last."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from builders.core_engine import new_engine
from builders.distributions import table_model
from builders.fake_events import Spelled
from closed_form import chain
from onward import _core
from onward.calls.generation import Generation, Stream
from onward.errors import ClosedError
from onward.options.resolution import ModelDefaults, resolve

VOCAB = 50
ENDLESS = 10**6
LIMIT_S = 20
"""A wait that takes longer is a failure."""
Rule = Callable[[Any], bool]


def counting_model() -> _core.Model:
    return table_model(chain(VOCAB, {i: (i + 1) % VOCAB for i in range(VOCAB)}))


def counting_engine(model: _core.Model, chunk: int = 512) -> _core.Engine:
    return new_engine(model, threads=1, chunk=chunk)


def expected(start: int, tokens: int) -> list[int]:
    return [(start + 1 + i) % VOCAB for i in range(tokens)]


def request(
    start: int,
    tokens: int = 5,
    *,
    gather: bool = False,
    rule: Rule | None = None,
    prompt_tokens: int = 1,
) -> _core.Request:
    """``rule`` is called inside each step that gives the request a token; true ends it."""
    return _core.Request(
        np.full(prompt_tokens, start, np.int32),
        max_new_tokens=tokens,
        sampling=_core.SamplingOptions(),
        end_rules=[] if rule is None else [rule],
        gather=gather,
    )


class Caller:
    """A client and its requests."""

    def __init__(self, engine: _core.Engine, *requests: _core.Request) -> None:
        self.client = engine.new_client()
        self.requests = self.client.submit(requests)

    def next(self) -> int:
        return self.client.next_event().token

    def read(self) -> list[list[int]]:
        """All tokens that are still to come, by request."""
        tokens: dict[int, list[int]] = {request: [] for request in self.requests}
        unfinished = set(self.requests)
        while unfinished:
            event = self.client.next_event()
            if event.gathered is not None:
                tokens[event.request] += event.gathered[0]
            tokens[event.request].append(event.token)
            event.raise_failure()
            if event.ends_request:
                unfinished.remove(event.request)
        return list(tokens.values())

    def close(self) -> None:
        self.client.close()


def stream_of(
    engine: _core.Engine, start: int, tokens: int = 5, rule: Rule | None = None
) -> Stream:
    options = resolve({}, ModelDefaults(10**6))
    generation = Generation("prompt", (start,), options, Spelled)
    caller = Caller(engine, request(start, tokens, rule=rule))
    return Stream(caller.client, generation)


class Gate:
    """A rule that holds up the step that calls it, until it is opened."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self._open = threading.Event()

    def __call__(self, token_ids: Any) -> bool:
        self.inside.set()
        assert self._open.wait(LIMIT_S)
        return False

    def open(self) -> None:
        self._open.set()


class HeldStep:
    """A step of the engine that another thread runs, and that lasts until ``end``."""

    def __init__(self, engine: _core.Engine, tokens: int = 1) -> None:
        self._gate = Gate()
        self.caller = Caller(engine, request(0, tokens, rule=self._gate))
        self.tokens: list[int] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._gate.inside.wait(LIMIT_S)

    def _run(self) -> None:
        with suppress(ClosedError):
            [self.tokens] = self.caller.read()

    def let_go(self) -> None:
        self._gate.open()

    def end(self) -> None:
        self.let_go()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
