"""Several callers of one engine, in Python and through the C interface: each gets exactly its own
events, and the same ids as alone."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from builders.c_interface import END_RULE, SCORE_RULE, TRACE, CEngine, CError, lib
from builders.core_engine import drain, new_engine, submit
from builders.seeded_folder import write_seeded
from builders.shared_engines import PROMPTS, TOKENS, holding_rule, small_model, tokens_alone
from onward.errors import Error, InvalidArgument


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def alone(model):
    return tokens_alone(model)


@pytest.fixture
def core(model):
    return new_engine(model, threads=1)


# Taking turns in one thread


def test_a_step_serves_all_handles_and_each_gets_its_own_events(core, alone):
    with CEngine.of(core) as one, CEngine.of(core) as two:
        mine = one.submit(PROMPTS[0], max_new_tokens=TOKENS)
        others = two.submit(PROMPTS[1], max_new_tokens=TOKENS)
        pythons = submit(core, PROMPTS[2], max_new_tokens=TOKENS)
        assert len({mine, others, pythons}) == 3
        assert (
            one.drain([mine])[mine][0].tokens == alone[0]
        )  # asserts that no event of another handle came
        steps = one.stats()["steps"]
        assert two.drain([others])[others][0].tokens == alone[1]
        assert drain(core, [pythons])[pythons].tokens == alone[2]
        assert one.stats()["steps"] == steps, "their events had arrived already"


@pytest.mark.parametrize("way", ["cancel", "close"])
def test_a_handle_that_ends_its_request_does_not_affect_the_others(core, alone, way):
    one, two = CEngine.of(core), CEngine.of(core)
    mine = one.submit(PROMPTS[0], max_new_tokens=TOKENS)
    others = two.submit(PROMPTS[1], max_new_tokens=TOKENS)
    pythons = submit(core, PROMPTS[2], max_new_tokens=TOKENS)
    one.step()
    if way == "close":
        one.close()
    else:
        for request in (others, pythons):
            one.cancel(request)  # none of its own
        assert one.stats()["running"] == 3
        one.cancel(mine)
        assert one.step() == []
        one.close()
    assert two.stats()["running"] == 2
    assert two.drain([others])[others][0].tokens == alone[1]
    assert drain(core, [pythons])[pythons].tokens == alone[2]
    two.close()


def test_a_handle_made_from_a_handle(core, alone):
    """It has the end tokens of the model, and outlives the handle that it was made from."""
    engine = CEngine.of(core, eos=[alone[0][3]])
    other = engine.share()
    assert other.handle.value != engine.handle.value
    mine = engine.submit(PROMPTS[1], max_new_tokens=TOKENS)
    request = other.submit(PROMPTS[0], max_new_tokens=TOKENS)
    assert other.drain([request])[request][0].tokens == alone[0][:4]
    engine.cancel(mine)
    engine.close()
    assert other.complete(PROMPTS[0], max_new_tokens=2) == [alone[0][:2]]
    assert other.stats() == {n: v for n, v in core.stats().items() if n in other.stats()}
    other.close()


def test_python_cancels_only_its_own_requests(core, alone):
    with CEngine.of(core) as engine:
        request = engine.submit(PROMPTS[0], max_new_tokens=TOKENS)
        core.cancel(request)
        core.cancel(request, 0)
        assert engine.drain([request])[request][0].tokens == alone[0]


def test_deleting_the_python_engine_cancels_its_requests(model, alone):
    core = new_engine(model, threads=1)
    with CEngine.of(core) as engine:
        submit(core, PROMPTS[1], max_new_tokens=TOKENS)
        request = engine.submit(PROMPTS[0], max_new_tokens=TOKENS)
        assert engine.stats()["running"] == 2
        del core
        assert engine.stats()["running"] == 1
        assert engine.drain([request])[request][0].tokens == alone[0]


def test_the_trace_of_a_closed_handle_is_not_called(core):
    steps: list[int] = []
    trace = TRACE(lambda context, step: steps.append(step[0].step))
    engine = CEngine.of(core)
    engine.set_trace(trace)
    submit(core, PROMPTS[0], max_new_tokens=3)
    core.step()
    engine.close()
    core.step()
    assert steps == [1]


def test_a_failing_rule_fails_its_own_request(core, alone):
    @SCORE_RULE
    def rule(context, tokens, num_tokens, scores, vocab_size):
        return 6 if num_tokens == len(PROMPTS[0]) + 2 else 0

    @END_RULE
    def odd(context, tokens, num_tokens):
        return 7

    with CEngine.of(core) as one, CEngine.of(core) as two:
        failing = one.submit(PROMPTS[0], max_new_tokens=TOKENS, score_rule=rule)
        other = one.submit(PROMPTS[3], max_new_tokens=TOKENS, end_rule=odd)
        healthy = two.submit(PROMPTS[1], max_new_tokens=TOKENS)
        outputs = one.drain([failing, other])
        last = outputs[failing][0].events[-1]
        assert (last.status, last.finish, last.token) == ("ONWARD_NUMERICS_ERROR", "error", -1)
        assert last.message == (
            "score_rule: returned 6 (ONWARD_NUMERICS_ERROR), expected ONWARD_OK"
        )
        assert outputs[failing][0].tokens == alone[0][:2]
        last = outputs[other][0].events[-1]
        assert last.status == "ONWARD_INVALID_ARGUMENT"
        assert last.message == "end_rule: returned 7, expected 0 or 1"
        assert two.drain([healthy])[healthy][0].tokens == alone[1]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["rule", "trace"])
def test_a_rule_or_trace_that_calls_its_own_engine(core, kind):
    """Calls that compute or wait are refused. Calls that cancel take effect after the step."""
    reported: list[str] = []

    def enter() -> None:
        for work in (
            one.step,
            one.stats,
            two.stats,
            lambda: one.submit([1]),
            lambda: one.score([1, 2]),
            lambda: one.set_trace(None),
        ):
            with pytest.raises(CError, match="called by a rule or trace of its own step") as caught:
                work()
            reported.append(caught.value.status)
        with pytest.raises(InvalidArgument, match="called by a rule or trace"):
            core.stats()
        one.interrupt()
        one.cancel(request)
        two.close()
        reported.append("end")

    @SCORE_RULE
    def rule(context, tokens, num_tokens, scores, vocab_size):
        enter()
        return 0

    @TRACE
    def trace(context, step):
        if not reported:
            enter()

    one, two = CEngine.of(core), CEngine.of(core)
    if kind == "trace":
        one.set_trace(trace)
        request = one.submit([1, 2], max_new_tokens=5)
    else:
        request = one.submit([1, 2], max_new_tokens=5, score_rule=rule)
    assert one.step() == []
    assert reported == ["ONWARD_INVALID_ARGUMENT"] * 6 + ["end"]
    with pytest.raises(CError) as caught:
        one.step()
    assert caught.value.status == "ONWARD_INTERRUPTED"
    assert one.stats()["running"] == 0
    with pytest.raises(CError) as caught:
        two.stats()
    assert caught.value.status == "ONWARD_CLOSED"
    one.close()


# LLM


def test_native_code_and_an_llm_share_an_engine(tmp_path, open_llm):
    llm = open_llm(write_seeded(tmp_path / "model", eos_token_id=7), threads=1)
    expected = llm.generate([5, 6, 7], max_new_tokens=20).token_ids
    unending = llm.generate([5, 6, 7], max_new_tokens=20, ignore_eos=True).token_ids
    with CEngine(llm.engine_handle()) as engine:
        stop = threading.Event()

        def through_c() -> list[tuple[int, ...]]:
            found = []
            while not stop.is_set():
                found += [tuple(engine.complete([5, 6, 7], max_new_tokens=20)[0])]
                found += [tuple(engine.complete([5, 6, 7], max_new_tokens=20, ignore_eos=1)[0])]
            return found

        with ThreadPoolExecutor(1) as pool:
            native = pool.submit(through_c)
            try:
                for _ in range(20):
                    assert llm.generate([5, 6, 7], max_new_tokens=20).token_ids == expected
                    stream = llm.stream([5, 6, 7], max_new_tokens=20)
                    list(stream)
                    assert stream.result.token_ids == expected
            finally:
                stop.set()
            assert set(native.result(60)) == {expected, unending}
        with engine.model() as model:
            assert model.info().num_eos_token_ids == 1
        llm.close()
        assert tuple(engine.complete([5, 6, 7], max_new_tokens=20)[0]) == expected
    with pytest.raises(Error, match="was closed"):
        llm.engine_handle()


def test_a_python_rule_runs_in_a_step_of_native_code(tmp_path, open_llm):
    """It runs in the thread that steps, and its events wait for their owner."""
    llm = open_llm(write_seeded(tmp_path / "model"), threads=1)
    threads = set()

    def only_nine(token_ids, scores):
        threads.add(threading.get_ident())
        scores[:9] = scores[10:] = -1e9

    stream = llm.stream([5], max_new_tokens=4, logits_processor=only_nine)
    with CEngine(llm.engine_handle()) as engine:
        for _ in range(5):
            assert engine.step() == []
    before = llm.stats()["steps"]
    list(stream)
    assert stream.result.token_ids == (9, 9, 9, 9)
    assert llm.stats()["steps"] == before == 4
    assert threads == {threading.get_ident()}


# Forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_starts_without_requests(model, alone):
    core = new_engine(model, threads=2)
    with CEngine.of(core) as engine:
        request = engine.submit(PROMPTS[0], max_new_tokens=TOKENS)
        first = engine.step(1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert engine.step() == [], "no request of the parent's"
                assert engine.stats()["running"] == 0
                assert engine.complete(PROMPTS[1], max_new_tokens=TOKENS) == [alone[1]]
                engine.close()
                code = 0
            finally:
                os._exit(code)
        rest = engine.drain([request])[request][0].tokens
        assert [*(event.token for event in first), *rest] == alone[0]
        deadline = time.monotonic() + 30
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            assert time.monotonic() < deadline, "the child hangs"
            time.sleep(0.01)
        assert ended[1] == 0


def test_handles_are_never_used_twice(core):
    values = set()
    for _ in range(200):
        engine = CEngine.of(core)
        assert engine.handle.value not in values
        values.add(engine.handle.value)
        engine.close()
    assert ctypes.c_void_p(0).value not in values


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.timeout(60)
def test_a_child_forked_during_a_step_gets_an_error(core):
    """The fork happens during a step of another thread. The child cannot continue and does not
    hang."""
    rule, inside, go_on = holding_rule()
    with CEngine.of(core) as engine, ThreadPoolExecutor(1) as pool:
        engine.submit(PROMPTS[0], max_new_tokens=1, score_rule=rule)
        step = pool.submit(engine.step)
        assert inside.wait(30)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for work in (engine.step, engine.stats, lambda: engine.submit([1]), engine.share):
                    with pytest.raises(CError, match="was forked while another thread") as caught:
                        work()
                    assert caught.value.status == "ONWARD_CLOSED"
                lib.onward_engine_close(engine.handle)
                code = 0
            finally:
                os._exit(code)
        go_on.set()
        assert len(step.result(30)) == 1
        assert os.waitpid(child, 0)[1] == 0
