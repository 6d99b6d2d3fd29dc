"""Whole answers are gathered in the engine: the same tokens as one by one, and Python gets none of
them before the end. Streams that run at the same time get each token at once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from builders.core_engine import (
    Output,
    Shape,
    drain_all,
    guessing,
    new_engine,
    random_prompt,
    seeded_model,
    submit,
)
from builders.fake_events import FakeEvent, Spelled
from builders.seeded_folder import write_seeded
from closed_form import write_pieces_tokenizer
from onward import LLM, _core
from onward.calls import submission
from onward.calls.call import Call
from onward.calls.generation import Generation
from onward.errors import Error
from onward.options.resolution import ModelDefaults, resolve

ENDLESS = 100_000
FORK_PATIENCE_S = 2.0
BATCH = [[k, 7, 9] for k in range(1, 17)]


def beams(wanted: int) -> _core.BeamOptions:
    options = _core.BeamOptions()
    options.num_beams, options.num_return_sequences = 4, wanted
    return options


def odd(token_ids: Any) -> bool:
    return bool(token_ids[-1] % 16 == 7)


REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "one token": {"max_new_tokens": 1},
    "none": {"max_new_tokens": 0},
    "likelihoods": {"logprobs": 3, "prompt_logprobs": 2},
    "samples": {"num_sequences": 4, "temperature": 1.0, "seed": 3, "logprobs": 1},
    "beams": {"beams": beams(4), "logprobs": 2},
    "one beam": {"beams": beams(1), "prompt_logprobs": 0},
    "guesses": {"speculation": guessing(lookup=4, ngram=1), "max_new_tokens": 60, "logprobs": 0},
    "end rule": {"end_rules": [odd], "max_new_tokens": 60},
    "stop tokens": {"stop_token_ids": list(range(0, 300, 9)), "num_sequences": 3, "temperature": 1},
    "no cache": {"cache": False},
}


@pytest.fixture(scope="module")
def model() -> _core.Model:
    return seeded_model("f32", Shape(num_layers=2))


def reported(output: Output) -> tuple[object, ...]:
    likely = [
        [(each.token, each.raw, each.chain, each.raw_top, each.chain_top) for each in found]
        for found in (output.logprobs, output.prompt_logprobs)
    ]
    return output.tokens, output.finish, likely, output.guessed, output.accepted


class TestEvents:
    @pytest.mark.parametrize("name", REQUESTS)
    def test_gathered_tokens_equal_single_events(self, model: _core.Model, name: str) -> None:
        found = []
        for gather in (False, True):
            engine = new_engine(model, threads=1, chunk=16)
            request = submit(engine, random_prompt(40), gather=gather, **REQUESTS[name])
            found.append(drain_all(engine, [request])[request])
        apart, whole = ([reported(output) for output in outputs] for outputs in found)
        assert whole == apart

    @pytest.mark.parametrize("name", REQUESTS)
    def test_a_sequence_has_one_event(self, model: _core.Model, name: str) -> None:
        engine = new_engine(model, threads=1)
        submit(engine, random_prompt(20), gather=True, **REQUESTS[name])
        events: list[_core.Event] = []
        begin = time.perf_counter()
        while not (events and events[-1].ends_request):
            events += engine.step()
        assert len({event.sequence for event in events}) == len(events)
        for event in events:
            assert event.finish_reason is not None
            if event.gathered is not None:
                tokens, logprobs, first = event.gathered
                assert len(logprobs) == (len(tokens) if event.logprobs is not None else 0)
                assert begin < first <= event.time < time.perf_counter()
        assert events[0].cached_tokens in (0, -1)  # -1: not searched
        assert {event.cached_tokens for event in events[1:]} <= {-1}

    def test_progress_is_reported_at_once(self, model: _core.Model) -> None:
        engine = new_engine(model, threads=1, chunk=16)
        submit(engine, random_prompt(40), gather=True, progress=True)
        steps = [[event.prompt_computed for event in engine.step()] for _ in range(3)]
        assert steps == [[16], [32], [40]]

    def test_a_failed_request_has_one_event(self, model: _core.Model) -> None:
        def fails(token_ids: Any) -> bool:
            if len(token_ids) > 24:
                raise ArithmeticError("enough")
            return False

        engine = new_engine(model, threads=1)
        submit(engine, random_prompt(20), gather=True, end_rules=[fails])
        [event] = next(filter(None, (engine.step() for _ in range(9))))
        assert (event.finish_reason, event.token, event.gathered) == ("error", -1, None)
        with pytest.raises(ArithmeticError, match="enough"):
            event.raise_failure()
        event.raise_failure()  # once

    def test_a_cancelled_sequence_has_no_event(self, model: _core.Model) -> None:
        engine = new_engine(model, threads=1)
        options = {"num_sequences": 3, "temperature": 1.0, "seed": 1}
        request = submit(engine, random_prompt(20), gather=True, **options)
        engine.step()
        engine.cancel(request, 1)
        assert list(map(len, (o.tokens for o in drain_all(engine, [request])[request]))) == [16, 16]
        assert engine.stats()["running"] == 0


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = write_seeded(tmp_path_factory.mktemp("gathered") / "model")
    write_pieces_tokenizer(folder, [f"<{token}>" for token in range(256)])
    with LLM(folder, dtype="f32", threads=1) as made:
        yield made


@pytest.fixture
def counts(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The number of events that Python received, and the number of its waits."""
    counted = {"waits": 0, "events": 0}

    class Counting:
        def __init__(self, client: _core.EngineClient) -> None:
            self._client = client

        def next_event(self) -> _core.Event:
            steps = llm.stats()["steps"]
            event = self._client.next_event()
            counted["events"] += 1
            counted["waits"] += llm.stats()["steps"] > steps
            return event

        def __getattr__(self, name: str) -> Any:
            return getattr(self._client, name)

    class CountedCall(Call):
        def __init__(self, client: _core.EngineClient, *call: Any, **options: Any) -> None:
            super().__init__(Counting(client), *call, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(submission, "Call", CountedCall)
    return counted


class TestWakeUps:
    def test_generate_wakes_up_once_for_all_tokens(self, llm: LLM, counts: dict[str, int]) -> None:
        results = llm.generate(BATCH, max_new_tokens=100)
        assert {len(result.token_ids) for result in results} == {100}
        assert counts == {"waits": 1, "events": 16}

    @pytest.mark.parametrize(
        "options",
        [
            {"temperature": 1.0, "num_return_sequences": 4, "logprobs": 1},
            {"num_beams": 4, "stop": "<999>"},
            {"regex": "(<[0-9]+>){40}"},
            {"stopping_criteria": lambda token_ids: False},
            {"prompt_lookup_num_tokens": 4},
        ],
    )
    def test_generate_wakes_up_once_with_options(
        self, llm: LLM, counts: dict[str, int], options: dict[str, Any]
    ) -> None:
        if "regex" in options:
            pytest.importorskip("llguidance")
        result = llm.generate([1, 2, 3], max_new_tokens=40, **options)
        assert counts["waits"] <= len(result.sequences)
        assert counts["events"] == len(result.sequences)

    def test_a_stream_and_stop_strings_see_every_token(
        self, llm: LLM, counts: dict[str, int]
    ) -> None:
        assert len(list(llm.stream([1, 2, 3], max_new_tokens=40))) == 40
        assert counts == {"waits": 40, "events": 40}
        llm.generate([1, 2, 3], max_new_tokens=40, stop="<999>")
        assert counts == {"waits": 80, "events": 80}

    def test_results_have_their_own_times(self, llm: LLM) -> None:
        before = time.perf_counter()
        timings = llm.generate(BATCH, max_new_tokens=50)[3].timings
        first, each = timings.time_to_first_token_s, timings.time_per_output_token_s
        assert first is not None and each is not None and each > 0
        assert 0 < first < timings.total_s < time.perf_counter() - before
        assert first + 49 * each == pytest.approx(timings.total_s)

    @pytest.mark.parametrize("firsts", [(3.0, 7.0), (7.0, 3.0)])
    def test_the_first_token_time_is_of_the_earliest_output(
        self, firsts: tuple[float, float]
    ) -> None:
        options = resolve({"num_return_sequences": 2, "temperature": 1.0}, ModelDefaults(10**6))
        generation = Generation("prompt", (1,), options, Spelled)
        begin = time.perf_counter()
        for sequence, first in enumerate(firsts):
            event = FakeEvent(0, sequence=sequence, finish_reason="length", time=begin + 20)
            event.gathered = ([5, 6], [], begin + first)  # type: ignore[assignment]
            generation.push(event)  # type: ignore[arg-type]
        assert generation.result().timings.time_to_first_token_s == pytest.approx(3.0, abs=1)


class TestSideBySide:
    def test_a_stream_and_a_gathered_call_in_one_thread(self, llm: LLM) -> None:
        alone = "".join(llm.stream([5, 6], max_new_tokens=60))
        whole = llm.generate([7, 8], max_new_tokens=40).token_ids
        with llm.stream([5, 6], max_new_tokens=60) as stream:
            steps = llm.stats()["steps"]
            assert llm.generate([7, 8], max_new_tokens=40).token_ids == whole
            assert llm.stats()["steps"] == steps + 40
            assert "".join(stream) == alone
            assert llm.stats()["steps"] == steps + 60, "its first 40 tokens had arrived"

    def test_a_stream_gets_each_token_during_gathered_calls(self, llm: LLM) -> None:
        """Another caller can run the engine after one step, for answers of any length."""
        alone = list(llm.stream([5, 6], max_new_tokens=20))
        call = llm._submitter.submit(BATCH[:3], {"max_new_tokens": ENDLESS})
        with ThreadPoolExecutor(1) as pool:
            endless = pool.submit(call.results)
            try:
                seen = []
                for piece in llm.stream([5, 6], max_new_tokens=20):
                    assert llm.stats()["running"] >= 3
                    seen.append(piece)
                assert seen == alone
                assert llm.generate([1, 2], max_new_tokens=3).usage.completion_tokens == 3
                assert not endless.done()
            finally:
                call.close()
            with pytest.raises(Error, match="closed by another thread"):
                endless.result(10)
        assert llm.stats()["running"] == 0

    def test_many_streams_and_gathered_calls(self, llm: LLM) -> None:
        options = {"max_new_tokens": 30}
        expected = [llm.generate(prompt, **options).sequences for prompt in BATCH]

        def work(index: int) -> bool:
            prompt, wanted = BATCH[index % 16], expected[index % 16]
            if index % 3 == 0:
                stream = llm.stream(prompt, **options)
                return "".join(stream) == wanted[0].text and stream.result.sequences == wanted
            if index % 3 == 1:
                return llm.generate(prompt, **options).sequences == wanted
            return [found.sequences for found in llm.generate(BATCH, **options)] == expected

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(48)))
        assert llm.stats()["running"] == 0

    def test_a_task_that_is_cancelled_frees_the_engine(self, llm: LLM) -> None:
        async def main() -> None:
            task = asyncio.create_task(llm.agenerate([1, 2], max_new_tokens=ENDLESS))
            while llm.stats()["running"] < 1:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert llm.stats()["running"] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_does_not_wait_for_the_answer(llm: LLM) -> None:
    """The fork waits for the current step. The child gets a consistent engine without requests."""
    expected = llm.generate(BATCH[0], max_new_tokens=5).token_ids
    call = llm._submitter.submit(BATCH[:3], {"max_new_tokens": ENDLESS})
    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(call.results)
        try:
            before = llm.stats()["steps"]
            while llm.stats()["steps"] < before + 3:
                time.sleep(0.001)
            begin = time.monotonic()
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                try:
                    idle = llm.stats()["running"] == 0
                    same = llm.generate(BATCH[0], max_new_tokens=5).token_ids == expected
                    os._exit(0 if idle and same else 1)
                except BaseException:
                    os._exit(2)
            assert time.monotonic() - begin < FORK_PATIENCE_S / 2
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert not endless.done()
        finally:
            call.close()
        with pytest.raises(Error, match="closed by another thread"):
            endless.result(10)


def test_interrupts_at_random_moments_lose_nothing(llm: LLM) -> None:
    """Ctrl-C in a gathered call: calls of other threads end as they do alone, and nothing
    remains."""
    expected = [llm.generate(prompt, max_new_tokens=200).token_ids for prompt in BATCH[:3]]
    wrong: list[object] = []
    stop = threading.Event()

    def work(index: int) -> None:
        while not stop.is_set():
            tokens = llm.generate(BATCH[index], max_new_tokens=200).token_ids
            if tokens != expected[index]:
                wrong.append(tokens)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    chance, interrupted = random.Random(0), 0
    main = threading.main_thread().ident
    assert main is not None
    try:
        for _ in range(60):
            timer = threading.Timer(
                chance.uniform(0, 0.02), signal.pthread_kill, (main, signal.SIGINT)
            )
            try:
                timer.start()
                llm.generate(BATCH, max_new_tokens=ENDLESS)
            except KeyboardInterrupt:
                interrupted += 1
            timer.join()
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert interrupted == 60
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)
    assert llm.stats()["running"] == 0
    assert llm.generate(BATCH[0], max_new_tokens=200).token_ids == expected[0]
