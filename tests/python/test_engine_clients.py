"""Clients of one engine: each gets its own events in order, and its requests end with it, in every
kind of end."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from builders.counting_engine import (
    ENDLESS,
    LIMIT_S,
    Caller,
    HeldStep,
    counting_engine,
    expected,
    request,
    stream_of,
)
from onward import _core
from onward.errors import ClosedError, Error, InvalidArgument, NumericsError


class TestEvents:
    def test_events_come_in_order_and_requests_share_steps(
        self, counter_engine: _core.Engine
    ) -> None:
        caller = Caller(counter_engine, *map(request, (10, 20, 30)))
        assert caller.read() == [expected(start, 5) for start in (10, 20, 30)]
        assert counter_engine.stats()["steps"] == 5

    def test_each_client_gets_its_own_events(self, counter_engine: _core.Engine) -> None:
        one, two = Caller(counter_engine, request(10)), Caller(counter_engine, request(20))
        assert len({*one.requests, *two.requests}) == 2
        assert one.read() == [expected(10, 5)]
        steps = counter_engine.stats()["steps"]
        assert two.read() == [expected(20, 5)]
        assert counter_engine.stats()["steps"] == steps == 5, "they had arrived"

    def test_two_streams_of_one_thread_can_be_read_in_turns(
        self, counter_engine: _core.Engine
    ) -> None:
        pairs = list(zip(stream_of(counter_engine, 10), stream_of(counter_engine, 20), strict=True))
        assert pairs[0] == ("11 ", "21 ") and pairs[-1] == ("15 ", "25 ")
        assert counter_engine.stats()["steps"] == 5

    def test_one_call_of_the_core_gathers_all_tokens(self, counter_engine: _core.Engine) -> None:
        caller = Caller(counter_engine, *(request(s, 40, gather=True) for s in (10, 20)))
        event = caller.client.next_event()
        assert event.gathered is not None and len(event.gathered[0]) == 39
        assert counter_engine.stats()["steps"] == 40
        assert caller.client.next_event().request == caller.requests[1]

    def test_a_stream_has_a_result_at_its_end(self, counter_engine: _core.Engine) -> None:
        stream = stream_of(counter_engine, 10, tokens=3)
        pieces = list(stream)
        result = stream.result
        assert (result.text, result.token_ids) == ("".join(pieces), (11, 12, 13))
        assert (result.finish_reason, result.stop_reason) == ("length", None)
        assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (1, 3)
        assert result.timings.total_s >= (result.timings.time_to_first_token_s or 0) > 0

    def test_a_client_without_requests_is_an_error_not_a_hang(
        self, counter_engine: _core.Engine
    ) -> None:
        other = Caller(counter_engine, request(20))
        with pytest.raises(Error, match="has nothing to run"):
            counter_engine.new_client().next_event()
        caller = Caller(counter_engine, request(10))
        caller.client.cancel(caller.requests[0])
        with pytest.raises(Error, match="has nothing to run"):
            caller.next()
        ended = Caller(counter_engine, request(10, 1))
        assert ended.read() == [[11]]
        with pytest.raises(Error, match="has nothing to run"):
            ended.next()
        assert other.read() == [expected(20, 5)]


class TestSubmission:
    def test_all_requests_are_submitted_or_none(self, counter_engine: _core.Engine) -> None:
        client = counter_engine.new_client()
        with pytest.raises(InvalidArgument, match="outside the vocabulary"):
            client.submit([request(10), request(-1)])
        assert counter_engine.stats()["running"] == 0
        assert Caller(counter_engine, request(1, 1)).read() == [[2]]

    def test_an_empty_list_of_requests(self, counter_engine: _core.Engine) -> None:
        assert counter_engine.new_client().submit([]) == []

    def test_requests_whose_ids_are_lost_are_cancelled(self, counter_engine: _core.Engine) -> None:
        """For example, if an interrupt comes right after the submission."""
        counter_engine.new_client().submit([request(50 - 1, ENDLESS)])
        assert counter_engine.stats()["running"] == 0

    def test_a_request_that_is_submitted_twice_is_two_requests(
        self, counter_engine: _core.Engine
    ) -> None:
        same = request(10, 3)
        assert Caller(counter_engine, same, same).read() == [[11, 12, 13]] * 2

    def test_other_objects_are_refused(self, counter_engine: _core.Engine) -> None:
        with pytest.raises(TypeError):
            counter_engine.new_client().submit([None])  # type: ignore[list-item]


class TestLeaving:
    @pytest.mark.parametrize("way", ["close", "with", "del", "break"])
    def test_an_abandoned_stream_leaves_the_engine(
        self, counter_engine: _core.Engine, way: str
    ) -> None:
        stream = stream_of(counter_engine, 10, tokens=ENDLESS)
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
        stats = counter_engine.stats()
        assert (stats["running"], stats["steps"]) == (0, 1)

    def test_a_stream_that_is_dropped_before_its_first_piece(
        self, counter_engine: _core.Engine
    ) -> None:
        del_me = stream_of(counter_engine, 10)
        with pytest.raises(Error, match="has not ended yet"):
            _ = del_me.result
        del del_me
        gc.collect()
        stats = counter_engine.stats()
        assert (stats["running"], stats["steps"]) == (0, 0)

    def test_a_client_in_a_cycle_is_collected(self, counter_engine: _core.Engine) -> None:
        class Holder:
            def __init__(self, caller: Caller) -> None:
                self.caller, self.me = caller, self

        Holder(Caller(counter_engine, request(10, ENDLESS)))
        gc.collect()
        assert counter_engine.stats()["running"] == 0

    def test_a_client_outlives_the_engine_object(self, counter_model: _core.Model) -> None:
        caller = Caller(counting_engine(counter_model), request(10))
        gc.collect()
        assert caller.read() == [expected(10, 5)]

    def test_a_cancelled_sequence_has_no_more_events(self, counter_engine: _core.Engine) -> None:
        one, two = request(10), request(20)
        caller = Caller(counter_engine, one, two)
        assert caller.client.next_event().token == 11
        caller.client.cancel(caller.requests[1], 0)  # its first event has arrived, too
        left = [caller.client.next_event() for _ in range(4)]
        assert [event.token for event in left] == [12, 13, 14, 15]
        assert counter_engine.stats()["running"] == 0

    def test_requests_of_other_clients_are_not_affected(self, counter_engine: _core.Engine) -> None:
        mine, other = Caller(counter_engine, request(10)), Caller(counter_engine, request(20))
        mine.client.cancel(other.requests[0])
        mine.client.cancel(other.requests[0], 0)
        mine.client.cancel(12345)
        assert other.read() == [expected(20, 5)]

    def test_cancelling_during_a_step_waits_for_nothing(self, counter_engine: _core.Engine) -> None:
        """The request is computed in the current step, and in no later one."""
        mine = Caller(counter_engine, request(20, ENDLESS))
        held = HeldStep(counter_engine, tokens=2)
        started = time.monotonic()
        mine.close()
        assert time.monotonic() - started < 1, "it waited for the step of another thread"
        held.end()
        assert held.tokens == [1, 2]
        assert counter_engine.stats()["kv_computations"] == 3
        assert counter_engine.stats()["running"] == 0


class TestErrors:
    def test_a_failed_request_raises_in_its_own_stream_only(
        self, counter_engine: _core.Engine
    ) -> None:
        def fails(token_ids: Any) -> bool:
            raise NumericsError("logits: NaN")

        good, bad = stream_of(counter_engine, 10), stream_of(counter_engine, 30, rule=fails)
        with pytest.raises(NumericsError, match="prompt: logits: NaN"):
            next(bad)
        assert list(bad) == []
        assert "".join(good) == "11 12 13 14 15 "

    @pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError])
    def test_an_exception_of_a_signal_handler_ends_only_its_caller(
        self, counter_engine: _core.Engine, error: type[BaseException]
    ) -> None:
        """The step ends early and has changed no request."""
        other = stream_of(counter_engine, 20, tokens=ENDLESS)
        assert next(other) == "21 "
        mine = Caller(counter_engine, request(10, ENDLESS, gather=True))

        def give_up(number: int, frame: object) -> None:
            raise error

        with alarm(0.1, give_up), pytest.raises(error):
            mine.next()
        mine.close()
        assert counter_engine.stats()["running"] == 1
        steps = counter_engine.stats()["steps"]
        pieces = [next(other) for _ in range(steps + 5)]
        assert pieces == [f"{token} " for token in expected(21, steps + 5)]
        assert list(stream_of(counter_engine, 30)) == ["31 ", "32 ", "33 ", "34 ", "35 "]

    def test_a_call_from_a_signal_handler_inside_the_same_threads_step(
        self, counter_engine: _core.Engine
    ) -> None:
        """It is an error, not a deadlock, and the step continues."""
        heard: list[str] = []

        def handler(number: int, frame: object) -> None:
            with pytest.raises(InvalidArgument) as caught:
                counter_engine.stats()
            heard.append(str(caught.value))
            raise TimeoutError

        caller = Caller(counter_engine, request(10, ENDLESS, gather=True))
        with alarm(0.1, handler), pytest.raises(TimeoutError):
            caller.next()
        assert len(heard) == 1 and "signal handler" in heard[0]

    def test_a_signal_handler_of_a_caller_that_waits_may_use_the_engine(
        self, counter_engine: _core.Engine
    ) -> None:
        held = HeldStep(counter_engine)
        heard: list[int] = []

        def handler(number: int, frame: object) -> None:
            held.let_go()
            heard.append(counter_engine.stats()["running"])

        with alarm(0.1, handler):
            assert Caller(counter_engine, request(10)).read() == [expected(10, 5)]
        held.end()
        assert len(heard) == 1

    def test_a_rule_cannot_run_the_engine_that_calls_it(self, counter_engine: _core.Engine) -> None:
        heard: list[str] = []

        def rule(token_ids: Any) -> bool:
            for call in (
                counter_engine.step,
                counter_engine.stats,
                lambda: Caller(counter_engine, request(1)),
            ):
                with pytest.raises(InvalidArgument, match="its own step") as caught:
                    call()
                heard.append(str(caught.value))
            return False

        assert Caller(counter_engine, request(10, rule=rule)).read() == [expected(10, 5)]
        assert len(heard) == 15

    def test_a_rule_may_cancel_and_close(self, counter_engine: _core.Engine) -> None:
        other = Caller(counter_engine, request(40, ENDLESS))

        def rule(token_ids: Any) -> bool:
            other.close()
            return False

        assert Caller(counter_engine, request(10, rule=rule)).read() == [expected(10, 5)]
        assert counter_engine.stats()["running"] == 0


class TestClosing:
    def test_every_call_after_close_is_a_closed_error(self, counter_engine: _core.Engine) -> None:
        stream, client = stream_of(counter_engine, 10), counter_engine.new_client()
        next(stream)
        counter_engine.close()
        counter_engine.close()
        uses: tuple[Callable[[], object], ...] = (
            lambda: next(stream),
            lambda: client.submit([request(1)]),
            client.next_event,
            counter_engine.new_client,
            counter_engine.check_open,
            counter_engine.stats,
            lambda: counter_engine.backend,
            lambda: counter_engine.new_handle([]),
        )
        for use in uses:
            with pytest.raises(ClosedError, match="LLM: was closed, expected an open one"):
                use()
        stream.close()
        client.close()

    def test_calls_of_a_closed_client_are_errors(self, counter_engine: _core.Engine) -> None:
        client = counter_engine.new_client()
        client.close()
        client.close()
        client.cancel(1)
        with pytest.raises(ClosedError, match="call: was closed by another thread"):
            client.next_event()
        counter_engine.check_open()

    @pytest.mark.parametrize("way", ["engine", "client"])
    def test_closing_wakes_up_waiting_threads(self, counter_engine: _core.Engine, way: str) -> None:
        held = HeldStep(counter_engine, tokens=2)
        ends: list[str] = []
        client = counter_engine.new_client()

        def work() -> None:
            try:
                client.submit([request(10)])
            except ClosedError as error:
                ends.append(str(error).partition(":")[0])

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        assert not ends
        (counter_engine if way == "engine" else client).close()
        for thread in threads:
            thread.join(LIMIT_S)
        assert ends == ["LLM" if way == "engine" else "call"] * 3, "the step has not ended yet"
        held.end()
        assert held.tokens == ([] if way == "engine" else [1, 2])

    def test_the_model_is_freed_after_the_current_step(self, counter_engine: _core.Engine) -> None:
        """The rule in the step keeps only its own step alive."""
        caller = Caller(
            counter_engine, request(10, ENDLESS, rule=lambda token_ids: counter_engine.close())
        )
        with pytest.raises(ClosedError, match="LLM: was closed"):
            caller.next()


@contextmanager
def alarm(seconds: float, handler: Callable[[int, Any], None]) -> Iterator[None]:
    previous = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
