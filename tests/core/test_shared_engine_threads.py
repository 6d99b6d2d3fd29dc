"""Several threads on one engine, through their own handles and through one handle.

No thread starves, no event is lost or repeated, and a waiting thread gets the events of steps that
other threads run.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from builders.c_interface import SCORE_RULE, CEngine, CError, lib
from builders.core_engine import drain, new_engine, random_prompt, submit
from builders.seeded_folder import write_seeded
from builders.shared_engines import PROMPTS, TOKENS, holding_rule, small_model, tokens_alone


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def alone(model):
    return tokens_alone(model)


@pytest.fixture
def core(model):
    return new_engine(model, threads=1)


def test_threads_with_a_handle_each_beside_python(core, alone):
    def through_c(index: int) -> bool:
        with CEngine.of(core) as engine:
            return all(
                engine.complete(PROMPTS[i % 4], max_new_tokens=TOKENS) == [alone[i % 4]]
                for i in range(index, index + 6)
            )

    def python(index: int) -> bool:
        for i in range(6):
            request = submit(core, PROMPTS[i % 4], max_new_tokens=TOKENS)
            if drain(core, [request])[request].tokens != alone[i % 4]:
                return False
        return True

    with ThreadPoolExecutor(5) as pool:
        work = [through_c, python, through_c, through_c, through_c]
        assert all(pool.map(lambda index: work[index](index), range(5)))
    assert core.stats()["running"] == core.stats()["cache_blocks_in_use"] == 0


def test_threads_of_one_handle_get_each_event_once(core, alone):
    """Four threads step one handle; together they have every event, and none twice."""
    with CEngine.of(core) as engine:
        requests = [engine.submit(prompt, max_new_tokens=TOKENS) for prompt in PROMPTS]
        open_requests = set(requests)
        events = []

        def work(_: int) -> None:
            while open_requests:
                for event in engine.step(2):
                    events.append(event)
                    if event.ends_request:
                        open_requests.discard(event.request)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        for request, expected in zip(requests, alone, strict=True):
            found = [event.token for event in events if event.request == request]
            assert sorted(found) == sorted(expected)


def test_no_handle_starves(core):
    """A handle that runs steps in an endless loop does not prevent the turn of another one."""
    stop = threading.Event()

    def loop() -> int:
        steps = 0
        with CEngine.of(core) as engine:
            while not stop.is_set():
                engine.complete([1], max_new_tokens=50)
                steps += 1
        return steps

    with ThreadPoolExecutor(3) as pool:
        busy = [pool.submit(loop) for _ in range(3)]
        with CEngine.of(core) as engine:
            slowest = 0.0
            for _ in range(30):
                begin = time.monotonic()
                engine.stats()
                slowest = max(slowest, time.monotonic() - begin)
        stop.set()
        assert all(future.result() > 0 for future in busy)
    assert slowest < 1.0


@pytest.mark.timeout(120)
def test_random_actions_of_threads_lose_no_event(core, alone):
    """Random steps, submissions, cancellations, closings and interrupts of shared handles, and a
    client that must not be affected."""
    stop = threading.Event()
    handles = [CEngine.of(core) for _ in range(3)]
    allowed = {"ONWARD_CLOSED", "ONWARD_INTERRUPTED"}

    def disturb(seed: int) -> set[str]:
        generator = random.Random(seed)
        seen: set[str] = set()
        while not stop.is_set():
            slot = generator.randrange(3)
            engine = handles[slot]
            try:
                match generator.randrange(7):
                    case 0 | 1:
                        engine.submit(generator.choice(PROMPTS), max_new_tokens=20)
                    case 2 | 3:
                        engine.step(generator.choice([1, 64]))
                    case 4:
                        engine.cancel(generator.randrange(2000))
                    case 5:
                        engine.interrupt()
                    case 6:
                        if generator.random() < 0.1:
                            handles[slot] = CEngine.of(core)
                            engine.close()
            except CError as error:
                seen.add(error.status)
        return seen

    with ThreadPoolExecutor(4) as pool:
        disturbing = [pool.submit(disturb, seed) for seed in range(4)]
        try:
            with CEngine.of(core) as engine:
                for i in range(12):
                    assert engine.complete(PROMPTS[i % 4], max_new_tokens=TOKENS) == [alone[i % 4]]
        finally:
            stop.set()
        assert set().union(*(future.result() for future in disturbing)) <= allowed
    for handle in handles:
        lib.onward_engine_close(handle.handle)
    assert core.stats()["running"] == core.stats()["cache_blocks_in_use"] == 0


@pytest.mark.timeout(60)
def test_closing_ends_a_wait_of_another_thread(core):
    """The thread that steps and the waiting threads all end. The rule is not called after close has
    returned."""
    inside, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    late: list[int] = []

    @SCORE_RULE
    def rule(context, tokens, num_tokens, scores, vocab_size):
        inside.set()
        assert go_on.wait(30)
        if closed.is_set():
            late.append(num_tokens)
        return 0

    engine = CEngine.of(core)
    engine.submit(PROMPTS[0], score_rule=rule)

    def loop() -> str:
        try:
            while True:
                engine.step()
        except CError as error:
            return error.status

    def close() -> None:
        engine.close()
        closed.set()

    with ThreadPoolExecutor(4) as pool:
        stepping = [pool.submit(loop)]
        assert inside.wait(30)
        stepping += [pool.submit(loop) for _ in range(2)]
        closing = pool.submit(close)
        time.sleep(0.2)
        assert not closing.done(), "its rule is still running"
        go_on.set()
        closing.result(30)
        assert {future.result(30) for future in stepping} == {"ONWARD_CLOSED"}
    assert late == []
    assert core.stats()["running"] == 0


@pytest.mark.timeout(60)
def test_an_interrupt_ends_the_wait_of_a_thread(core):
    rule, inside, go_on = holding_rule()
    with CEngine.of(core) as one, CEngine.of(core) as two, ThreadPoolExecutor(2) as pool:
        one.submit(PROMPTS[0], max_new_tokens=1, score_rule=rule)
        stepping = pool.submit(one.step)
        assert inside.wait(30)
        waiting = pool.submit(two.step)
        time.sleep(0.1)
        two.interrupt()
        with pytest.raises(CError) as caught:
            waiting.result(10)
        assert caught.value.status == "ONWARD_INTERRUPTED"
        go_on.set()
        assert [event.finish for event in stepping.result(30)] == ["length"]


@pytest.mark.timeout(120)
def test_an_interrupt_ends_a_long_prefill(model):
    """From another thread, within one layer. Only the interrupted handle gets the error."""
    core = new_engine(model, threads=1, chunk=4096)
    with CEngine.of(core) as engine, ThreadPoolExecutor(1) as pool:
        request = engine.submit(random_prompt(4000, seed=1), max_new_tokens=1)
        begin = time.monotonic()
        whole = new_engine(model, threads=1, chunk=4096)
        whole.logits(random_prompt(4000, seed=1)[:2000])
        step = pool.submit(engine.step)
        time.sleep((time.monotonic() - begin) * 0.1)
        engine.interrupt()
        try:
            events = step.result(60)
        except CError as error:
            assert error.status == "ONWARD_INTERRUPTED"
            assert engine.stats()["steps"] == 0
            events = engine.step()
        assert [event.request for event in events] == [request]


@pytest.mark.timeout(60)
def test_ctrl_c_in_python_while_native_code_has_the_turn(tmp_path, open_llm):
    rule, inside, go_on = holding_rule()
    llm = open_llm(write_seeded(tmp_path / "model"), threads=1)
    expected = llm.generate([5, 6], max_new_tokens=5).token_ids
    with CEngine(llm.engine_handle()) as engine, ThreadPoolExecutor(1) as pool:
        request = engine.submit([5, 6], max_new_tokens=5, score_rule=rule)
        stepping = pool.submit(engine.step)
        assert inside.wait(30)
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            llm.generate([5, 6], max_new_tokens=5)
        assert time.monotonic() - begin < 5
        assert not stepping.done()
        go_on.set()
        first = [event.token for event in stepping.result(30)]
        rest = engine.drain([request])[request][0].tokens
        assert (*first, *rest) == expected
        assert llm.generate([5, 6], max_new_tokens=5).token_ids == expected
        assert llm.stats()["running"] == 0


@pytest.mark.timeout(60)
def test_a_waiting_thread_gets_the_events_of_another_threads_step(core):
    """It runs no step itself, because it waits during that step."""
    rule, inside, go_on = holding_rule()
    with CEngine.of(core) as one, CEngine.of(core) as two, ThreadPoolExecutor(2) as pool:
        one.submit(PROMPTS[0], max_new_tokens=1, score_rule=rule)
        request = two.submit(PROMPTS[1], max_new_tokens=5)
        stepping = pool.submit(one.step)
        assert inside.wait(30)
        waiting = pool.submit(two.step)
        time.sleep(0.2)
        assert not waiting.done()
        go_on.set()
        assert [event.finish for event in stepping.result(30)] == ["length"]
        assert [event.request for event in waiting.result(30)] == [request]
        assert one.stats()["steps"] == 1
        two.cancel(request)


def test_answers_that_end_in_steps_of_native_code_are_handed_out(tmp_path, open_llm):
    """The last event of a call may arrive in the core's mailbox right after the call has checked
    it. This is rare, so the test repeats it many times."""
    llm = open_llm(write_seeded(tmp_path / "model", num_layers=1, hidden_size=32), threads=1)
    over = threading.Event()

    def beside() -> None:
        with CEngine(llm.engine_handle()) as engine:
            while not over.is_set():
                engine.complete([1, 2, 3], max_new_tokens=30)

    with ThreadPoolExecutor(2) as pool:
        work = [pool.submit(beside) for _ in range(2)]
        try:
            for _ in range(5000):
                assert len(llm.generate([5, 6], max_new_tokens=2, ignore_eos=True).token_ids) == 2
        finally:
            over.set()
        assert [done.result(30) for done in work] == [None, None]
