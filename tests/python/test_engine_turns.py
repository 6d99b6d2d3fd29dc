"""Several threads on one engine: the order of turns, and the effects of interrupts and forks."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from builders.counting_engine import (
    ENDLESS,
    LIMIT_S,
    VOCAB,
    Caller,
    HeldStep,
    counting_engine,
    expected,
    request,
    stream_of,
)
from onward import _core
from onward.errors import ClosedError, Error


class TestOrder:
    def test_newcomers_are_served_before_the_next_step_in_order_of_arrival(
        self, counter_model: _core.Model
    ) -> None:
        """Other callers may have waited longer for a step. So newcomers join the batch of the next
        step."""
        engine = counting_engine(counter_model, chunk=8)
        streams = [Caller(engine, request(10, 3, prompt_tokens=40)) for _ in range(2)]
        held = HeldStep(engine)
        newcomers: list[Caller] = []
        steps: list[int] = []

        def come() -> None:
            newcomers.append(Caller(engine, request(30, 1)))

        waiting = [*(caller.read for caller in streams), come, come]
        threads = [threading.Thread(target=each) for each in waiting]
        threads.append(threading.Thread(target=lambda: steps.append(engine.stats()["steps"])))
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        held.end()
        for thread in threads:
            thread.join(LIMIT_S)
        assert [caller.requests for caller in newcomers] == [[3], [4]]
        assert steps == [1], "the step that was held"

    def test_a_reader_gets_its_event_while_another_thread_is_in_the_next_step(
        self, counter_engine: _core.Engine
    ) -> None:
        second = Caller(counter_engine, request(20))
        first = Caller(counter_engine, request(10))
        assert first.next() == 11  # this step also gave an event of the second one
        held = HeldStep(counter_engine)
        assert second.next() == 21
        held.end()

    @pytest.mark.parametrize("way", ["submit", "stats", "cancel", "close a client", "drop"])
    def test_another_caller_gets_the_engine_between_steps_of_a_long_answer(
        self, counter_engine: _core.Engine, way: str
    ) -> None:
        """The thread that gathers the answer runs many steps in one call, and ends no step
        early."""
        endless = Caller(counter_engine, request(10, ENDLESS, gather=True))
        mine = Caller(counter_engine, request(20, ENDLESS), request(30, ENDLESS))
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(endless.client.next_event)
            while counter_engine.stats()["steps"] < 10:
                time.sleep(0.001)
            if way == "submit":
                assert Caller(counter_engine, request(40, 3)).read() == [[41, 42, 43]]
            elif way == "cancel":
                mine.client.cancel(mine.requests[0])
            elif way == "close a client":
                mine.close()
            elif way == "drop":
                del mine
            running = {"submit": 3, "stats": 3, "cancel": 2}
            assert counter_engine.stats()["running"] == running.get(way, 1)
            assert not reading.done()
            counter_engine.close()
            with pytest.raises(ClosedError, match="LLM: was closed"):
                reading.result(LIMIT_S)

    def test_steps_continue_while_threads_call_the_engine_all_the_time(
        self, counter_engine: _core.Engine
    ) -> None:
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                counter_engine.stats()

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask) for _ in range(4)]
            try:
                assert Caller(counter_engine, request(10, 100)).read() == [expected(10, 100)]
            finally:
                over.set()
            assert [each.result(LIMIT_S) for each in asking] == [None] * 4

    def test_a_caller_of_single_steps_does_not_wait_for_a_long_answer(
        self, counter_engine: _core.Engine
    ) -> None:
        endless = Caller(counter_engine, request(10, ENDLESS, gather=True))
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(endless.client.next_event)
            for _ in range(20):
                assert counter_engine.step() == []
            endless.close()
            with pytest.raises(ClosedError):
                reading.result(LIMIT_S)


class TestThreads:
    def test_eight_threads_get_their_own_answers(self, counter_engine: _core.Engine) -> None:
        wrong: list[object] = []

        def work(number: int) -> None:
            for round_ in range(50):
                start = (7 * number + round_) % VOCAB
                if round_ % 3 == 0:
                    tokens = [int(piece) for piece in stream_of(counter_engine, start)]
                else:
                    [tokens] = Caller(counter_engine, request(start, gather=round_ % 3 == 1)).read()
                if tokens != expected(start, 5):
                    wrong.append((start, tokens))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert wrong == []
        assert counter_engine.stats()["running"] == 0

    def test_calls_in_flight_together_share_steps(self, counter_engine: _core.Engine) -> None:
        together = threading.Barrier(4)

        def work(start: int) -> list[list[int]]:
            caller = Caller(counter_engine, request(start, 2000, gather=start % 2 == 1))
            together.wait(LIMIT_S)
            return caller.read()

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(work, range(4))) == [[expected(s, 2000)] for s in range(4)]
        assert counter_engine.stats()["steps"] == 2000

    def test_threads_of_one_client_get_each_event_once(self, counter_engine: _core.Engine) -> None:
        caller = Caller(counter_engine, *(request(start, 100) for start in range(8)))

        def work(_: int) -> list[tuple[int, int]]:
            found: list[tuple[int, int]] = []
            while True:
                try:
                    event = caller.client.next_event()
                except Error:
                    return found
                found.append((event.request, event.token))

        with ThreadPoolExecutor(4) as pool:
            events = [event for found in pool.map(work, range(4)) for event in found]
        tokens = [sorted(t for r, t in events if r == request_) for request_ in caller.requests]
        assert tokens == [sorted(expected(start, 100)) for start in range(8)]


class TestInterrupts:
    def test_ctrl_c_reaches_a_caller_that_waits_for_its_turn(
        self, counter_engine: _core.Engine
    ) -> None:
        held = HeldStep(counter_engine)
        waits: tuple[Callable[[], object], ...] = (
            lambda: Caller(counter_engine, request(10)),
            counter_engine.stats,
            lambda: counter_engine.score(np.array([1, 2], np.int32)),
        )
        for wait in waits:
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            begin = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                wait()
            assert time.monotonic() - begin < 1
            timer.join()
        held.end()
        assert held.tokens == [1]
        assert counter_engine.stats()["running"] == 0

    @pytest.mark.parametrize("gather", [False, True], ids=["streams", "whole answers"])
    def test_interrupts_at_random_moments_lose_no_event_of_other_threads(
        self, counter_engine: _core.Engine, gather: bool
    ) -> None:
        """No turn is lost either: the main thread waits for one, has one or returns one."""
        wrong: list[object] = []
        stop = threading.Event()

        def work(start: int) -> None:
            while not stop.is_set():
                tokens = Caller(counter_engine, request(start, 20, gather=gather)).read()
                if tokens != [expected(start, 20)]:
                    wrong.append(tokens)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        chance, interrupted = random.Random(0), 0
        main = threading.main_thread().ident
        assert main is not None
        try:
            for index in range(100):
                timer = threading.Timer(
                    chance.uniform(0, 0.01), signal.pthread_kill, (main, signal.SIGINT)
                )
                try:
                    timer.start()
                    while True:
                        if index % 2:
                            counter_engine.stats()
                        with stream_of(counter_engine, 5, tokens=30) as stream:
                            for _piece in stream:
                                pass
                except KeyboardInterrupt:
                    interrupted += 1
                timer.join()
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
        assert interrupted == 100
        assert wrong == []
        assert not any(thread.is_alive() for thread in threads), "a turn was lost"
        assert counter_engine.stats()["running"] == 0
        assert list(stream_of(counter_engine, 1)) == ["2 ", "3 ", "4 ", "5 ", "6 "]


def in_child(work: Callable[[], bool]) -> int:
    """Exit status of a forked child: 0 if work() was true, 1 if not, 14 if it hung."""
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S)
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
class TestForks:
    def test_a_child_starts_without_the_requests_of_the_parent(
        self, counter_engine: _core.Engine
    ) -> None:
        stream, arrived = stream_of(counter_engine, 10), Caller(counter_engine, request(20, 1))
        next(stream)

        def work() -> bool:
            errors = []
            for use in (lambda: next(stream), arrived.next):
                try:
                    use()
                except Error as error:
                    errors.append("belongs to the parent process" in str(error))
            idle = counter_engine.stats()["running"] == 0
            return errors == [True, True] and idle and len(list(stream_of(counter_engine, 30))) == 5

        assert in_child(work) == 0
        assert "".join(stream) == "12 13 14 15 "
        assert arrived.read() == [[21]]

    @pytest.mark.parametrize("gather", [False, True], ids=["streams", "whole answers"])
    def test_a_fork_during_a_step_waits_for_its_end(
        self, counter_engine: _core.Engine, gather: bool
    ) -> None:
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                assert Caller(counter_engine, request(1, 1000, gather=gather)).read() == [
                    expected(1, 1000)
                ]

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            statuses = [
                in_child(lambda: len(list(stream_of(counter_engine, 30))) == 5) for _ in range(20)
            ]
        finally:
            stop.set()
            for thread in threads:
                thread.join(LIMIT_S)
        assert statuses == [0] * 20
        assert not any(thread.is_alive() for thread in threads)

    def test_a_fork_inside_a_step_does_not_wait_for_itself(
        self, counter_engine: _core.Engine
    ) -> None:
        """A rule forks. Its child is in the middle of a step and has no engine."""
        statuses: list[int] = []

        def refused() -> bool:
            with pytest.raises(ClosedError, match="was forked while another thread"):
                counter_engine.stats()
            return True

        def rule(token_ids: object) -> bool:
            statuses.append(in_child(refused))
            return False

        begin = time.monotonic()
        assert Caller(counter_engine, request(10, 2, rule=rule)).read() == [[11, 12]]
        assert statuses == [0, 0]
        assert time.monotonic() - begin < 2, "it waited"

    def test_forks_of_several_threads(self, counter_engine: _core.Engine) -> None:
        def fork(_: int) -> int:
            return in_child(lambda: len(list(stream_of(counter_engine, 30))) == 5)

        with ThreadPoolExecutor(4) as pool:
            reading = pool.submit(lambda: Caller(counter_engine, request(1, 3000)).read())
            assert set(pool.map(fork, range(12))) == {0}
            assert reading.result(LIMIT_S) == [expected(1, 3000)]
