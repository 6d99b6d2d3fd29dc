"""The driver with a scripted engine in the place of the core: who steps, who gets which event.

The scripted engine checks what the driver promises it: never two threads inside at once.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from builders.scripted_engine import ScriptedEngine, driver_of, read, requests, stream_of
from onward.calls.driver import Driver
from onward.errors import ClosedError, Error, NumericsError


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def driver(engine: ScriptedEngine) -> Iterator[Driver]:
    made = driver_of(engine)
    yield made
    made.close()


# One thread


def test_events_come_in_order_and_requests_share_steps(
    driver: Driver, engine: ScriptedEngine
) -> None:
    call = driver.submit(requests(10, 20, 30))
    assert list(read(call).values()) == [list(range(s + 1, s + 6)) for s in (10, 20, 30)]
    assert engine.steps == 5


def test_two_streams_of_one_thread_can_be_read_in_turns(
    driver: Driver, engine: ScriptedEngine
) -> None:
    pairs = list(zip(stream_of(driver, 10), stream_of(driver, 20), strict=True))
    assert pairs[0] == ("11 ", "21 ") and pairs[-1] == ("15 ", "25 ")
    assert engine.steps == 5


def test_a_failed_submission_leaves_nothing_behind(driver: Driver, engine: ScriptedEngine) -> None:
    with pytest.raises(ValueError, match="bad prompt"):
        driver.submit(requests(10, -1))
    driver.run(lambda _: None)
    assert engine.running == {}
    assert read(driver.submit(requests(1, tokens=1))) == {2: [2]}


def test_an_engine_that_loses_a_request_is_an_error_not_a_hang(
    driver: Driver, engine: ScriptedEngine
) -> None:
    call = driver.submit(requests(10))
    engine.running.clear()
    with pytest.raises(Error, match="nothing to run"):
        call.next_event()


def test_an_event_nobody_owns_cancels_its_request(driver: Driver, engine: ScriptedEngine) -> None:
    orphan = engine.submit([50], max_new_tokens=100)  # as after an interrupt inside submit
    read(driver.submit(requests(10)))
    assert orphan in engine.cancelled and engine.running == {}


# Abandoning


@pytest.mark.parametrize("way", ["close", "with", "del", "break"])
def test_an_abandoned_stream_leaves_the_engine(
    driver: Driver, engine: ScriptedEngine, way: str
) -> None:
    stream = stream_of(driver, 10, tokens=1000)
    if way == "with":
        with stream:
            next(stream)
    elif way == "break":
        for _ in stream:
            break
    else:
        next(stream)
    if way == "close":
        stream.close()
        stream.close()
        assert list(stream) == []
        with pytest.raises(Error, match="was closed before its end"):
            _ = stream.result
    del stream
    gc.collect()
    assert engine.running == {}
    assert engine.steps == 1


def test_a_stream_that_is_dropped_before_its_first_piece(
    driver: Driver, engine: ScriptedEngine
) -> None:
    del_me = stream_of(driver, 10)
    with pytest.raises(Error, match="has not ended yet"):
        _ = del_me.result
    del del_me
    gc.collect()
    assert (engine.running, engine.steps) == ({}, 0)


def test_a_stream_read_to_its_end_has_a_result(driver: Driver) -> None:
    stream = stream_of(driver, 10, tokens=3)
    pieces = list(stream)
    result = stream.result
    assert (result.text, result.token_ids) == ("".join(pieces), (11, 12, 13))
    assert (result.finish_reason, result.stop_reason) == ("length", None)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (1, 3)
    assert result.timings.total_s >= (result.timings.time_to_first_token_s or 0) > 0


def test_cancelling_while_another_thread_steps_takes_effect_when_that_step_ends(
    driver: Driver, engine: ScriptedEngine
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        assert go_on.wait(10)

    other = driver.submit(requests(10, tokens=2))
    mine = driver.submit(requests(20, tokens=1000))
    engine.before_step = pause
    thread = threading.Thread(target=read, args=(other,))
    thread.start()
    assert inside.wait(10)
    started = time.monotonic()
    mine.close()
    assert time.monotonic() - started < 1, "close waited for somebody else's step"
    go_on.set()
    thread.join(10)
    assert mine.requests[0] in engine.cancelled
    assert engine.steps == 2


@pytest.mark.parametrize("way", ["submit", "run", "cancel", "drop", "close"])
def test_who_wants_the_engine_pauses_the_one_who_runs_it(
    driver: Driver, engine: ScriptedEngine, way: str
) -> None:
    """A turn may have many steps; the engine ends it on request."""
    inside, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        assert go_on.wait(10)

    other, mine = driver.submit(requests(10, tokens=2)), driver.submit(requests(20))
    engine.before_step = pause
    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(read, other)
        assert inside.wait(10)
        assert engine.pauses == 0
        ways: dict[str, Callable[[], object]] = {
            "submit": lambda: pool.submit(driver.submit, requests(30)),
            "run": lambda: pool.submit(driver.run, lambda _: None),
            "cancel": lambda: mine.cancel(mine.requests[0]),
            "drop": mine.__del__,
            "close": driver.close,
        }
        ways[way]()
        deadline = time.monotonic() + 10
        while engine.pauses == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        go_on.set()
        assert engine.pauses == 1
        if way == "close":
            with pytest.raises(ClosedError):
                reading.result(10)
        else:
            assert reading.result(10) == {other.requests[0]: [11, 12]}


# Exceptions


def test_an_error_event_raises_for_its_request_only(driver: Driver, engine: ScriptedEngine) -> None:
    good, bad = stream_of(driver, 10), stream_of(driver, 666)
    with pytest.raises(NumericsError, match="prompt: logits: NaN"):
        next(bad)
    assert list(bad) == []
    assert "".join(good) == "11 12 13 14 15 "


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_an_exception_in_a_step_ends_the_callers_stream_and_no_other(
    driver: Driver, engine: ScriptedEngine, error: type[BaseException]
) -> None:
    mine, other = stream_of(driver, 10, tokens=1000), stream_of(driver, 20)
    assert (next(mine), next(other)) == ("11 ", "21 ")

    def fail() -> None:
        engine.before_step = lambda: None
        raise error

    engine.before_step = fail
    with pytest.raises(error):
        next(mine)
    assert len(engine.running) == 1
    assert "".join(other) == "22 23 24 25 "
    assert list(stream_of(driver, 30)) == ["31 ", "32 ", "33 ", "34 ", "35 "]


def test_a_failing_step_does_not_leave_sleepers_asleep(
    driver: Driver, engine: ScriptedEngine
) -> None:
    engine.step_s = 0.01
    results: list[dict[int, list[int]]] = []
    sleeper = threading.Thread(
        target=lambda: results.append(read(driver.submit(requests(20, tokens=20))))
    )
    call = driver.submit(requests(10, tokens=1000))
    sleeper.start()
    while len(engine.running) < 2:
        call.next_event()

    def fail() -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    engine.before_step = fail
    with pytest.raises(KeyboardInterrupt):
        while True:
            call.next_event()
    call.close()
    sleeper.join(10)
    assert [list(found.values()) for found in results] == [[list(range(21, 41))]]


def test_real_interrupts_at_random_moments_lose_nothing_of_other_threads(
    driver: Driver, engine: ScriptedEngine
) -> None:
    engine.step_s = 0.0005
    wrong: list[object] = []
    stop = threading.Event()

    def work(start: int) -> None:
        while not stop.is_set():
            tokens = list(read(driver.submit(requests(start, tokens=20))).values())
            if tokens != [list(range(start + 1, start + 21))]:
                wrong.append(tokens)

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(1, 4)]
    for thread in threads:
        thread.start()
    chance = random.Random(0)
    interrupted = 0
    main = threading.main_thread().ident
    assert main is not None
    try:
        for _ in range(150):
            timer = threading.Timer(
                chance.uniform(0, 0.01), signal.pthread_kill, (main, signal.SIGINT)
            )
            try:
                timer.start()
                with stream_of(driver, 5, tokens=10**6) as stream:
                    for _piece in stream:
                        pass
            except KeyboardInterrupt:
                interrupted += 1
            timer.join()
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert interrupted == 150
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)
    assert list(stream_of(driver, 1)) == ["2 ", "3 ", "4 ", "5 ", "6 "]


def test_a_call_from_a_handler_inside_the_same_threads_step_is_an_error_not_a_deadlock(
    driver: Driver, engine: ScriptedEngine
) -> None:
    told: list[str] = []

    def handler() -> None:
        engine.before_step = lambda: None
        try:
            driver.run(lambda _: None)
        except Error as error:
            told.append(str(error))

    engine.before_step = handler
    assert len(list(stream_of(driver, 10))) == 5
    assert len(told) == 1 and "signal handler" in told[0]


# Several threads


def test_eight_threads_get_their_own_answers(driver: Driver, engine: ScriptedEngine) -> None:
    engine.step_s = 0.0002
    wrong: list[object] = []

    def work(number: int) -> None:
        for round_ in range(50):
            start = 10_000 * number + round_
            expected = [start + 1 + i for i in range(5)]
            if round_ % 2:
                tokens = [int(piece) for piece in stream_of(driver, start)]
            else:
                [tokens] = read(driver.submit(requests(start))).values()
            if tokens != expected:
                wrong.append((start, tokens))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert engine.running == {}
    assert engine.steps < 8 * 50 * 5, "steps were never shared"


def test_a_reader_sees_its_event_while_another_thread_is_in_the_next_step(
    driver: Driver, engine: ScriptedEngine
) -> None:
    first, second = driver.submit(requests(10)), driver.submit(requests(20))
    first.next_event()  # this step brought second's event too
    inside, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        assert go_on.wait(10)

    engine.before_step = pause
    thread = threading.Thread(target=first.next_event)
    thread.start()
    assert inside.wait(10)
    assert second.next_event().token == 21
    go_on.set()
    thread.join(10)


# Closing, forking


def test_close_is_idempotent_and_everything_after_it_is_a_closed_error(
    driver: Driver, engine: ScriptedEngine
) -> None:
    stream = stream_of(driver, 10)
    next(stream)
    driver.close()
    driver.close()
    for use in (
        lambda: next(stream),
        lambda: driver.submit(requests(1)),
        lambda: driver.run(lambda _: None),
    ):
        with pytest.raises(ClosedError, match="was closed"):
            use()
    stream.close()


def test_closing_wakes_sleepers(driver: Driver, engine: ScriptedEngine) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def pause() -> None:
        inside.set()
        assert go_on.wait(10)

    engine.before_step = pause
    ends: list[str] = []

    def work() -> None:
        try:
            read(driver.submit(requests(1, tokens=1000)))
        except ClosedError:
            ends.append("closed")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert inside.wait(10)
    driver.close()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert ends == ["closed"] * 3


def in_child(work: Callable[[], bool]) -> int:
    """Exit status of a forked child: 0 if work() was true, 1 if not, 14 if it hung."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_starts_over_with_none_of_the_parents_requests(
    driver: Driver, engine: ScriptedEngine
) -> None:
    stream = stream_of(driver, 10)
    next(stream)

    def work() -> bool:
        try:
            next(stream)
        except Error as error:
            told = "belongs to the parent process" in str(error)
        return told and engine.resets == 1 and len(list(stream_of(driver, 30))) == 5

    assert in_child(work) == 0
    assert "".join(stream) == "12 13 14 15 "
    assert engine.resets == 0


def test_a_fork_while_another_thread_steps_waits_for_the_step(
    driver: Driver, engine: ScriptedEngine
) -> None:
    engine.step_s = 0.01
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            read(driver.submit(requests(1)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        statuses = [in_child(lambda: len(list(stream_of(driver, 30))) == 5) for _ in range(10)]
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert statuses == [0] * 10
    assert not any(thread.is_alive() for thread in threads)
