"""One model with many threads; other Python threads run while the engine computes;
interruptions.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from builders.seeded_folder import write_seeded
from closed_form import write_pieces_tokenizer, write_seen

THREADS, CALLS = 8, 50
LARGEST_GAP_S = 0.2
PIECES = ["<pad>", "<s>", "</s>", "three ", "four ", "five ", "six ", "seven "]


@pytest.fixture
def seen(tmp_path, open_llm):
    """M-SEEN, which answers with the word of the largest id of the prompt."""
    folder = write_seen(tmp_path / "seen")
    write_pieces_tokenizer(folder, PIECES)
    return open_llm(folder, prefill_chunk_tokens=16)


def random_seen_prompts(seed: int, count: int) -> list[list[int]]:
    generator = np.random.default_rng(seed)
    return [generator.integers(3, 8, generator.integers(1, 12)).tolist() for _ in range(count)]


def distinct(prompt: list[int]) -> list[int]:
    """Each id occurs once, so that the id with the largest weight wins."""
    return list(dict.fromkeys(prompt))


class TestManyThreads:
    @pytest.mark.timeout(60)
    def test_every_thread_gets_its_own_answers(self, seen):
        """8 threads of 50 calls, half of them streams; the answer follows from the prompt."""

        def call(index: int, prompt: list[int]) -> None:
            tokens = 1 + index % 7
            expected = (max(prompt),) * tokens
            if index % 2:
                assert seen.generate(prompt, max_new_tokens=tokens).token_ids == expected
                return
            stream = seen.stream(prompt, max_new_tokens=tokens)
            pieces = list(stream)
            assert stream.result.token_ids == expected
            assert "".join(pieces) == PIECES[max(prompt)] * tokens

        def work(thread: int) -> int:
            prompts = random_seen_prompts(thread, CALLS)
            for index, prompt in enumerate(prompts):
                call(index, distinct(prompt))
            return len(prompts)

        with ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(work, range(THREADS))) == [CALLS] * THREADS
        assert seen.stats()["running"] == 0
        assert seen.stats()["cache_blocks_in_use"] == 0

    @pytest.mark.timeout(60)
    def test_errors_in_one_thread_do_not_affect_the_others(self, seen):
        def work(thread: int) -> None:
            for index in range(40):
                if thread % 2:
                    with pytest.raises(ValueError, match="token id 8"):
                        seen.generate([3, 8])
                else:
                    prompt = distinct(random_seen_prompts(index, 1)[0])
                    assert seen.generate(prompt, max_new_tokens=2).token_ids == (max(prompt),) * 2

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))

    @pytest.mark.timeout(60)
    def test_two_models_at_once(self, tmp_path, open_llm):
        models = [
            open_llm(write_seeded(tmp_path / str(seed), seed=seed), threads=2) for seed in (1, 2)
        ]
        expected = [llm.generate([5, 6, 7], max_new_tokens=30).token_ids for llm in models]
        assert expected[0] != expected[1]

        def work(index: int) -> bool:
            llm = models[index % 2]
            tokens = llm.generate([5, 6, 7], max_new_tokens=30).token_ids
            return tokens == expected[index % 2]

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(24)))

    def test_calls_in_flight_together_share_steps(self, tmp_path, open_llm):
        """Four long calls from four threads take far fewer steps than one after the other. Long: a
        thread waits up to 5 ms for the interpreter before it can join, which is 300 steps."""
        llm = open_llm(write_seeded(tmp_path))
        barrier = threading.Barrier(4)
        tokens = 2000

        def work(first: int) -> tuple[int, ...]:
            barrier.wait()
            return llm.generate([first, 7], max_new_tokens=tokens).token_ids

        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(work, range(4)))
        assert llm.stats()["steps"] < 4 * tokens * 0.75
        assert together == [llm.generate([i, 7], max_new_tokens=tokens).token_ids for i in range(4)]

    def test_logits_and_generate_take_turns(self, tmp_path, open_llm):
        llm = open_llm(write_seeded(tmp_path))
        prompt = list(range(40))
        logits, tokens = llm.logits(prompt), llm.generate(prompt, max_new_tokens=20).token_ids

        def work(index: int) -> bool:
            if index % 2:
                return llm.generate(prompt, max_new_tokens=20).token_ids == tokens
            return bool((llm.logits(prompt) == logits).all())

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(40)))


@pytest.fixture(scope="module")
def large_folder(tmp_path_factory):
    return write_seeded(
        tmp_path_factory.mktemp("large") / "model",
        hidden_size=768,
        intermediate_size=2048,
        num_layers=6,
        vocab_size=2000,
        dtype="BF16",
    )


class TestOtherPythonThreads:
    """A thread that runs every 10 ms, at the same time as a model of 42 million weights."""

    def largest_gap(self, work: Callable[[], object]) -> float:
        """Runs ``work``. Returns the longest time between two runs of the ticker."""
        gaps: list[float] = []
        done = threading.Event()

        def tick() -> None:
            last = time.perf_counter()
            while not done.is_set():
                time.sleep(0.01)
                now = time.perf_counter()
                gaps.append(now - last)
                last = now

        ticker = threading.Thread(target=tick)
        ticker.start()
        try:
            work()
        finally:
            done.set()
            ticker.join()
        return max(gaps)

    def test_python_threads_run_while_a_model_loads(self, large_folder, open_llm):
        assert self.largest_gap(lambda: open_llm(large_folder)) < LARGEST_GAP_S

    def test_python_threads_run_in_prefill_decode_and_logits(self, large_folder, open_llm):
        llm = open_llm(large_folder)
        prompt = np.arange(700) % 2000
        gap = self.largest_gap(lambda: llm.generate(prompt, max_new_tokens=40))
        assert gap < LARGEST_GAP_S
        assert self.largest_gap(lambda: llm.logits(prompt)) < LARGEST_GAP_S
        assert self.largest_gap(lambda: list(llm.stream([1], max_new_tokens=60))) < LARGEST_GAP_S


INTERRUPTED = """
import sys, time, numpy, onward
llm = onward.LLM(sys.argv[1], dtype="f32")
fresh = llm.generate([5, 6, 7], max_new_tokens=20).token_ids
ids = numpy.arange(100_000) % 256
calls = {
    "generate": lambda: llm.generate([1], max_new_tokens=100_000),
    "batch": lambda: llm.generate([[1], [2], [3]], max_new_tokens=100_000),
    "no cache": lambda: llm.generate(ids[:3000], max_new_tokens=10_000, cache=False),
    "prefill": lambda: llm.generate(ids),
    "stream": lambda: list(llm.stream([1], max_new_tokens=100_000)),
    "logits": lambda: llm.logits(ids),
}
print("ready", flush=True)
try:
    calls[sys.argv[2]]()
    print("ended by itself", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
assert llm.stats()["running"] == 0, llm.stats()
assert llm.stats()["cache_blocks_in_use"] == 0, llm.stats()
assert llm.generate([5, 6, 7], max_new_tokens=20).token_ids == fresh
print("usable", flush=True)
"""


@pytest.mark.parametrize("call", ["generate", "batch", "no cache", "prefill", "stream", "logits"])
def test_ctrl_c_ends_a_call_within_a_second(call, tmp_path, child_environment):
    """The engine is usable after it: the same answer, and no request is left."""
    folder = write_seeded(tmp_path, hidden_size=128, num_layers=4)
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(folder), call],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment,
    )
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        sent = time.perf_counter()
        assert child.stdout.readline() == "interrupted\n"
        assert time.perf_counter() - sent < 1.0
        assert child.stdout.readline() == "usable\n", child.stderr.read()
        assert child.wait(timeout=10) == 0
        assert child.stderr.read() == ""
    finally:
        child.kill()
        child.communicate()


class TestLeavingEarly:
    def test_break_out_of_a_stream(self, seen):
        for piece in seen.stream([3, 7], max_new_tokens=60):
            assert piece == "seven "
            break
        assert seen.stats()["running"] == 0
        assert seen.generate([3, 4], max_new_tokens=3).token_ids == (4, 4, 4)

    def test_closing_a_stream_frees_its_place(self, seen):
        stream = seen.stream([3, 7], max_new_tokens=60)
        assert [next(stream), next(stream)] == ["seven "] * 2
        assert seen.stats()["running"] == 1
        stream.close()
        stream.close()
        assert seen.stats()["running"] == 0
        assert seen.stats()["cache_blocks_in_use"] == 0
        assert list(stream) == []

    def test_a_with_block_closes(self, seen):
        with seen.stream([3, 7], max_new_tokens=60) as stream:
            next(stream)
        assert seen.stats()["running"] == 0

    def test_an_exception_in_the_loop_of_the_caller(self, seen):
        def consume() -> None:
            for _ in seen.stream([3, 7], max_new_tokens=60):
                raise RuntimeError("mine")

        with pytest.raises(RuntimeError, match="mine"):
            consume()
        assert seen.stats()["running"] == 0
        assert seen.generate([3, 5], max_new_tokens=2).token_ids == (5, 5)

    def test_two_streams_interleaved(self, seen):
        first = seen.stream([3, 7], max_new_tokens=5)
        second = seen.stream([3, 5], max_new_tokens=5)
        pairs = list(zip(first, second, strict=True))
        assert pairs == [("seven ", "five ")] * 5

    def test_a_stream_read_by_another_thread(self, seen):
        stream = seen.stream([3, 7], max_new_tokens=5)
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(list, stream).result() == ["seven "] * 5

    def test_an_exception_from_a_signal_handler(self, tmp_path, open_llm):
        """A time limit of the caller by SIGALRM: its exception passes through the engine."""
        llm = open_llm(write_seeded(tmp_path))

        def give_up(number, frame):
            raise TimeoutError("too slow")

        previous = signal.signal(signal.SIGALRM, give_up)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            started = time.perf_counter()
            with pytest.raises(TimeoutError, match="too slow"):
                llm.generate([1], max_new_tokens=100_000)
            assert time.perf_counter() - started < 1.2
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        assert llm.stats()["running"] == 0
        assert len(llm.generate([1], max_new_tokens=3).token_ids) == 3
