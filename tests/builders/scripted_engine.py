"""A scripted engine that replaces the core in the tests of the driver.

It checks that two threads are never inside at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from onward.calls.driver import Call, Driver
from onward.calls.generation import Generation, Stream
from onward.errors import NumericsError
from onward.options.resolution import ModelDefaults, resolve


@dataclass
class FakeEvent:
    request: int
    token: int = -1
    finish_reason: str | None = None
    sequence: int = 0
    score: float | None = None
    gathered: None = None
    logprobs: Any = None
    prompt_logprobs: tuple[Any, ...] = ()
    cached_tokens: int = -1
    prompt_computed: int = -1
    guessed: int = 0
    accepted: int = 0
    time: float = field(default_factory=time.perf_counter)

    @property
    def ends_request(self) -> bool:
        return self.finish_reason is not None

    def raise_failure(self) -> None:
        if self.finish_reason == "error":
            raise NumericsError("logits: NaN")


class ScriptedEngine:
    """Counts up from the prompt's only id; each step gives each request one token."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.step_s = step_s
        self.running: dict[int, list[int]] = {}
        self.steps = 0
        self.cancelled: list[int] = []
        self.resets = 0
        self.pauses = 0
        self.before_step: Callable[[], None] = lambda: None
        self._next = 0
        self._inside = threading.Lock()

    def _alone(self) -> threading.Lock:
        assert not self._inside.locked(), "two threads inside the engine"
        return self._inside

    def submit(self, prompt: Any, *, max_new_tokens: int) -> int:
        with self._alone():
            if prompt[0] < 0:
                raise ValueError("bad prompt")
            self._next += 1
            self.running[self._next] = [int(prompt[0]), max_new_tokens]
            return self._next

    def run(self, mailboxes: dict[int, Any]) -> bool:
        events = self.step()
        for event in events:
            owner = mailboxes.get(event.request)
            mailbox = None if owner is None else owner()
            if mailbox is not None:
                mailbox.append(event)
            if event.ends_request:
                mailboxes.pop(event.request, None)
            elif mailbox is None:
                self.cancel(event.request)
        return bool(events)

    def step(self) -> list[FakeEvent]:
        with self._alone():
            self.before_step()
            time.sleep(self.step_s)
            self.steps += 1
            events = []
            for request, state in list(self.running.items()):
                if state[0] == 666:
                    del self.running[request]
                    events.append(FakeEvent(request, -1, "error"))
                    continue
                state[0] += 1
                state[1] -= 1
                done = state[1] == 0
                events.append(FakeEvent(request, state[0], "length" if done else None))
                if done:
                    del self.running[request]
            return events

    def pause(self) -> None:
        self.pauses += 1

    def cancel(self, request: int, sequence: int | None = None) -> None:
        with self._alone():
            self.cancelled.append(request)
            self.running.pop(request, None)

    def stats(self) -> dict[str, int]:
        return {"running": len(self.running)}

    def reset_after_fork(self) -> None:
        self.resets += 1
        self.running.clear()


Prompts = list[tuple[Any, dict[str, int]]]


def requests(*starts: int, tokens: int = 5) -> Prompts:
    return [(np.array([start], np.int32), {"max_new_tokens": tokens}) for start in starts]


def driver_of(engine: ScriptedEngine) -> Driver:
    return Driver(cast(Any, engine))


def read(call: Call) -> dict[int, list[int]]:
    """All tokens of a call, by request."""
    tokens: dict[int, list[int]] = {request: [] for request in call.requests}
    unfinished = set(call.requests)
    while unfinished:
        event = call.next_event()
        tokens[event.request].append(event.token)
        if event.finish_reason is not None:
            unfinished.remove(event.request)
    return tokens


def stream_of(driver: Driver, start: int, tokens: int = 5) -> Stream:
    options = resolve({}, ModelDefaults(10**6))
    call = driver.submit(requests(start, tokens=tokens))
    return Stream(call, Generation("prompt", (start,), options, Spelled))


class Spelled:
    """Tokens as numbers."""

    stopped: str | None = None

    def __init__(self) -> None:
        self.text = ""

    def push(self, token_id: int) -> str:
        self.text += f"{token_id} "
        return f"{token_id} "

    def finish(self) -> str:
        return ""
