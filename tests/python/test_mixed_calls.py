"""Calls of every kind to one LLM, from threads and coroutines: each gets the output that it gets
alone.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from builders.seeded_folder import write_seeded
from closed_form import write_pieces_tokenizer
from onward import LLM
from onward.calls.result import Result

THREADS = 8
ENDLESS = 100_000


def odd_after_even(token_ids, scores):
    """Replaces a grammar: the allowed tokens depend on the output so far."""
    scores[int(token_ids[-1]) % 2 :: 2] = -np.inf


CALLS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0.8, "top_p": 0.9, "seed": 3},
    {"num_beams": 4, "num_return_sequences": 3},
    {"temperature": 1.1, "num_return_sequences": 4, "seed": 4},
    {"prompt_lookup_num_tokens": 4, "max_matching_ngram_size": 1},
    {"logprobs": 3, "prompt_logprobs": 2},
    {"stop": ["<20", "9><1"]},
    {"num_beams": 3, "stop": "<2", "logprobs": 1, "early_stopping": True},
    {"temperature": 0.9, "num_return_sequences": 3, "seed": 5, "stop": ["<1", "<30>"]},
    {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5, "num_return_sequences": 4},
    {"best_of": 4, "num_return_sequences": 2, "temperature": 1.0, "seed": 6},
    {"logits_processor": odd_after_even, "repetition_penalty": 1.2},
    {"stopping_criteria": lambda token_ids: bool(token_ids[-1] % 16 == 7)},
    {"cache": False, "max_new_tokens": 6},
    {"num_beams": 3, "temperature": 0.7, "seed": 7, "prompt_logprobs": 0},
    {"mirostat": 2, "seed": 8, "priority": 2},
    {"temperature": 1.0, "seed": 9, "prompt_lookup_num_tokens": 3, "priority": -1},
    {"max_new_tokens": 0, "prompt_logprobs": 1},
)
STREAMED = [
    options
    for options in CALLS
    if "num_beams" in options or options.get("num_return_sequences", 1) == 1
]


def prompt_of(index: int) -> list[int]:
    """2 to 41 tokens that repeat themselves, some longer than a chunk."""
    return [1 + (7 * index + (k % 5) ** 2) % 200 for k in range(2 + index * 7 % 40)]


def heard(result: Result) -> tuple[object, ...]:
    """The generated tokens and their log-probabilities."""
    return (result.sequences, result.prompt_logprobs, result.usage, result.stop_reason)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_seeded(tmp_path_factory.mktemp("mixed") / "model")
    write_pieces_tokenizer(folder, [f"<{token}>" for token in range(256)])
    return folder


@pytest.fixture(scope="module")
def alone(folder):
    """The result of every call from an LLM without other calls."""
    with LLM(folder, dtype="f32", threads=1) as llm:
        return [heard(llm.generate(prompt_of(i), **options)) for i, options in enumerate(calls())]


@pytest.fixture
def llm(folder, open_llm):
    return open_llm(folder, threads=2, prefill_chunk_tokens=24, max_sequences=12)


def calls() -> list[dict[str, Any]]:
    return [{"max_new_tokens": 20, **options} for options in CALLS]


def nothing_is_left(llm: LLM) -> bool:
    stats = llm.stats()
    return stats["running"] == stats["waiting"] == stats["cache_blocks_in_use"] == 0


def test_the_calls_have_different_outputs(alone):
    """Stop strings end outputs and outputs differ, so that the tests below can fail."""
    reasons = [sequences[0].finish_reason for sequences, *_ in alone]
    assert reasons.count("stop") >= 3
    assert len({sequences[0].text for sequences, *_ in alone}) > 12


@pytest.mark.timeout(120)
def test_calls_from_eight_threads(llm, alone):
    """Each thread makes every call, in a different order. Every second call is streamed if
    possible."""

    def work(thread: int) -> None:
        for turn in range(len(CALLS)):
            index = (turn + 2 * thread) % len(CALLS)
            options = calls()[index]
            if (turn + thread) % 2 and CALLS[index] in STREAMED:
                stream = llm.stream(prompt_of(index), **options)
                text = "".join(stream)
                assert text == stream.result.text
                assert heard(stream.result) == alone[index]
            else:
                assert heard(llm.generate(prompt_of(index), **options)) == alone[index]

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert nothing_is_left(llm)


@pytest.mark.timeout(120)
def test_calls_gathered_in_an_event_loop(llm, alone):
    """agenerate and astream of all calls at once, while a thread makes the same calls."""

    async def read(index: int) -> str:
        pieces = llm.astream(prompt_of(index), **calls()[index])
        return "".join([piece async for piece in pieces])

    async def main() -> tuple[list[Result], list[str]]:
        streamed = [i for i, options in enumerate(CALLS) if options in STREAMED]
        results = asyncio.gather(
            *(llm.agenerate(prompt_of(i), **options) for i, options in enumerate(calls()))
        )
        texts = asyncio.gather(*(read(i) for i in streamed))
        thread = asyncio.to_thread(llm.generate, prompt_of(2), **calls()[2])
        assert heard(await thread) == alone[2]
        assert await texts == [alone[i][0][0].text for i in streamed]
        return await results

    assert [heard(result) for result in asyncio.run(main())] == alone
    assert nothing_is_left(llm)


@pytest.mark.parametrize("leave", ["close", "let go", "break"])
def test_an_abandoned_stream_frees_its_place_before_the_next_step(llm, leave):
    """During another call: the next statistics of the engine have one request less."""
    started = threading.Event()

    def other() -> int:
        stream = llm.stream([5, 6], max_new_tokens=ENDLESS)
        for _ in stream:
            started.set()
            if done.is_set():
                stream.close()
                return 0
        raise AssertionError("it ended")

    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(other)
        try:
            assert started.wait(20)
            for _ in range(10):
                stream = llm.stream([7, 8, 9], max_new_tokens=ENDLESS)
                next(stream), next(stream)
                assert llm.stats()["running"] == 2
                if leave == "close":
                    stream.close()
                elif leave == "let go":
                    del stream
                else:
                    for _piece in stream:
                        break
                    del stream
                assert llm.stats()["running"] == 1
        finally:
            done.set()
        assert beside.result(20) == 0
    assert nothing_is_left(llm)


def test_an_abandoned_stream_lets_the_next_call_start(folder, open_llm):
    """There is one place. A waiting call gets it when the stream is closed."""
    llm = open_llm(folder, max_sequences=1)
    stream = llm.stream([7, 8, 9], max_new_tokens=ENDLESS)
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(llm.generate, [5, 6], max_new_tokens=3)
        deadline = time.monotonic() + 20
        while llm.stats()["waiting"] == 0:
            assert time.monotonic() < deadline
        assert not waiting.done()
        stream.close()
        assert len(waiting.result(20).token_ids) == 3
    assert nothing_is_left(llm)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"num_return_sequences": 2}])
def test_a_failed_call_is_freed(llm, options):
    """The exception refers to the frames of the call, these to the event, and it to the
    exception."""

    class Rule:
        def __call__(self, token_ids, scores):
            raise ArithmeticError("the rule's own")

    rule = Rule()
    watch = weakref.ref(rule)
    try:
        llm.generate([5, 6], logits_processor=rule, temperature=1.0, **options)
    except ArithmeticError:
        pass
    else:
        raise AssertionError("it did not fail")
    del rule
    gc.collect()
    assert watch() is None
    assert nothing_is_left(llm)


def test_more_outputs_than_places_are_refused(folder, open_llm):
    llm = open_llm(folder, max_sequences=3)
    with pytest.raises(ValueError, match="num_return_sequences: is 4, expected at most max_seq"):
        llm.generate([5], num_return_sequences=4, temperature=1.0)
    with pytest.raises(ValueError, match="num_beams: is 4, expected at most max_sequences"):
        llm.generate([[5], [6]], num_beams=4)
    assert nothing_is_left(llm)
