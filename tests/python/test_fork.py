"""Forked and spawned processes of a process that uses the engine: the right answer or a clear
error.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time

import pytest

import onward
from builders.resources import needs_proc
from builders.seeded_folder import write_seeded

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
CHILD_LIMIT_S = 30
PROMPT = [5, 6, 7]


@pytest.fixture
def folder(tmp_path):
    return write_seeded(tmp_path / "model")


@pytest.fixture
def llm(folder, open_llm):
    return open_llm(folder, threads=2)


def tokens_of(llm: onward.LLM) -> tuple[int, ...]:
    return llm.generate(PROMPT, max_new_tokens=20).token_ids


def in_forked_child(work) -> str:
    """The result of work() in a forked child, as text. The child must end by itself in time."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            os.write(writer, str(work()).encode())
            code = 0
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(code)
    os.close(writer)
    deadline = time.monotonic() + CHILD_LIMIT_S
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the forked child hangs")
        time.sleep(0.005)
    with os.fdopen(reader) as pipe:
        return pipe.read()


@needs_fork
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
class TestFork:
    def test_the_child_gives_the_right_answer(self, llm):
        expected = tokens_of(llm)  # the threads of the pool exist now, only in the parent
        assert in_forked_child(lambda: tokens_of(llm)) == str(expected)
        assert tokens_of(llm) == expected

    def test_a_fork_before_the_first_call(self, llm):
        child = in_forked_child(lambda: tokens_of(llm))
        assert child == str(tokens_of(llm))

    def test_a_fork_in_a_forked_child(self, llm):
        expected = tokens_of(llm)
        assert in_forked_child(lambda: in_forked_child(lambda: tokens_of(llm))) == str(expected)

    def test_parent_and_child_at_the_same_time(self, llm):
        expected = tokens_of(llm)
        for _ in range(5):
            worker = threading.Thread(target=lambda: [tokens_of(llm) for _ in range(10)])
            worker.start()
            child = in_forked_child(lambda: tokens_of(llm))
            worker.join()
            assert child == str(expected) or "forked" in child, child
        assert tokens_of(llm) == expected

    def test_a_stream_of_the_parent_is_an_error_in_the_child(self, llm):
        stream = llm.stream(PROMPT, max_new_tokens=50)
        llm.generate([1], max_new_tokens=3)  # a few steps for the stream as well
        child = in_forked_child(lambda: list(stream))
        assert child.startswith("Error: stream: belongs to the parent process")
        expected = llm.generate(PROMPT, max_new_tokens=50).token_ids
        list(stream)
        assert stream.result.token_ids == expected

    def test_the_child_has_no_requests_of_the_parent(self, llm):
        with llm.stream(PROMPT, max_new_tokens=50):
            child = in_forked_child(lambda: (tokens_of(llm), llm.stats()["running"]))
        assert child == str((tokens_of(llm), 0))

    @needs_proc
    def test_the_child_starts_its_own_workers(self, llm):
        """A child starts with one thread. After a call it has the two requested threads."""
        tokens_of(llm)
        child = in_forked_child(lambda: tokens_of(llm) and len(os.listdir("/proc/self/task")))
        assert child == "2"

    def test_the_child_may_close_the_model_of_the_parent(self, llm):
        """Also before its first call, when the threads of the pool belong to the parent."""
        expected = tokens_of(llm)
        assert in_forked_child(llm.close) == "None"
        assert in_forked_child(lambda: (tokens_of(llm), llm.close())) == str((expected, None))
        assert tokens_of(llm) == expected

    def test_a_pool_of_forked_workers(self, llm):
        global _llm
        _llm = llm
        expected = tokens_of(llm)
        try:
            with multiprocessing.get_context("fork").Pool(3) as pool:
                found = pool.map_async(work_on_shared, range(12)).get(CHILD_LIMIT_S)
        finally:
            _llm = None
        assert found == [expected] * 12
        assert tokens_of(llm) == expected


_llm: onward.LLM | None = None


def work_on_shared(_: int) -> tuple[int, ...]:
    assert _llm is not None
    return tokens_of(_llm)


def load_and_work(folder: str) -> tuple[int, ...]:
    with onward.LLM(folder, dtype="f32") as llm:
        return tokens_of(llm)


def test_spawned_workers_load_their_own_model(folder, llm):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map_async(load_and_work, [str(folder)] * 3).get(CHILD_LIMIT_S)
    assert found == [tokens_of(llm)] * 3
