"""Whose turn at the engine comes next: newcomers go before those who step, and no turn is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from builders.scripted_engine import ScriptedEngine, driver_of, read, requests
from onward.calls.driver import Call, Driver


class LoggingEngine(ScriptedEngine):
    """Notes what is done with it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[object] = []
        self.before_step = lambda: self.log.append("step")

    def submit(self, prompt: Any, *, max_new_tokens: int) -> int:
        self.log.append(int(prompt[0]))
        return super().submit(prompt, max_new_tokens=max_new_tokens)


@pytest.fixture
def engine() -> LoggingEngine:
    return LoggingEngine()


@pytest.fixture
def driver(engine: LoggingEngine) -> Iterator[Driver]:
    made = driver_of(engine)
    yield made
    made.close()


class Held:
    """The engine in the hands of a thread, until ``let_go``."""

    def __init__(self, driver: Driver) -> None:
        inside, self._go_on = threading.Event(), threading.Event()

        def work(_: object) -> None:
            inside.set()
            assert self._go_on.wait(20)

        self._thread = threading.Thread(target=driver.run, args=(work,))
        self._thread.start()
        assert inside.wait(20)

    def let_go(self) -> None:
        self._go_on.set()
        self._thread.join(20)


def begin(driver: Driver, work: Callable[[], object]) -> threading.Thread:
    """Start a thread, and wait until it waits for the engine."""
    before = len(driver._waiting)
    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 20
    while len(driver._waiting) == before:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return thread


def test_newcomers_hand_in_before_the_next_step_in_the_order_they_came(
    driver: Driver, engine: LoggingEngine
) -> None:
    streams = [driver.submit(requests(start, tokens=3)) for start in (10, 20)]
    held = Held(driver)
    engine.log.clear()
    threads = [begin(driver, lambda call=call: read(call)) for call in streams]  # type: ignore[misc]
    for start in (30, 40):
        threads.append(begin(driver, lambda s=start: driver.submit(requests(s, tokens=1))))  # type: ignore[misc]
    threads.append(begin(driver, lambda: driver.run(lambda _: engine.log.append("work"))))
    held.let_go()
    for thread in threads:
        thread.join(20)
    assert engine.log[:4] == [30, 40, "work", "step"]
    assert engine.log.count("step") == 3


class Interrupted(SimpleQueue):  # type: ignore[type-arg]
    """What a call waits at: a KeyboardInterrupt comes right after the turn was given to it."""

    def get(self, *arguments: Any, **options: Any) -> None:
        super().get(*arguments, **options)
        raise KeyboardInterrupt


@pytest.mark.parametrize("way", ["advance", "submit"])
def test_a_turn_that_was_given_to_an_interrupted_caller_goes_to_the_next(
    driver: Driver, engine: LoggingEngine, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = driver.submit(requests(10, tokens=1000))
    other = driver.submit(requests(20, tokens=3))
    held = Held(driver)
    ended: list[object] = []

    def interrupted() -> None:
        try:
            if way == "advance":
                mine.wake = Interrupted()
                mine.next_event()
            else:
                driver.submit(requests(30))
        except KeyboardInterrupt:
            ended.append("interrupted")

    if way == "submit":
        made = Call.__init__

        def with_interrupt(call: Call, driver: Driver) -> None:
            made(call, driver)
            call.wake = Interrupted()

        monkeypatch.setattr(Call, "__init__", with_interrupt)
    first = begin(driver, interrupted)
    monkeypatch.undo()
    second = begin(driver, lambda: ended.append(read(other)))
    held.let_go()
    first.join(20)
    second.join(20)
    assert not first.is_alive() and not second.is_alive(), "the turn was lost"
    assert ended == ["interrupted", {other.requests[0]: [21, 22, 23]}]
    assert driver._turn is None and not driver._waiting
    mine.close()
    assert list(read(driver.submit(requests(50, tokens=2))).values()) == [[51, 52]]
