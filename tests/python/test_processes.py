"""Processes: clean exits, closing, and the number of threads."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import ClassVar

import pytest

import onward
from builders.core_engine import new_engine, seeded_model
from builders.seeded_folder import write_seeded
from closed_form import write_pieces_tokenizer, write_seen
from onward import _core
from onward.errors import ClosedError

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


class TestExit:
    """stderr must be empty and the exit code 0, with any objects still alive."""

    SCRIPTS: ClassVar[dict[str, str]] = {
        "a live model": "llm = onward.LLM(folder); llm.generate([5], max_new_tokens=3)",
        "an unread stream": "s = onward.LLM(folder).stream([5], max_new_tokens=99)",
        "a stream that ran": (
            "llm = onward.LLM(folder); s = llm.stream([5], max_new_tokens=9); list(s)"
        ),
        "a cycle": "llm = onward.LLM(folder); llm.me = llm; s = llm.stream([5]); s.me = s",
        "a daemon thread inside the engine": (
            "import threading, time; llm = onward.LLM(folder)\n"
            "threading.Thread(target=lambda: llm.generate([5], max_new_tokens=10**5), daemon=True)"
            ".start(); time.sleep(0.2)"
        ),
        "a stored exception": (
            "try: onward.LLM(folder).generate([99999])\nexcept ValueError as e: kept = e"
        ),
        "closed twice": "llm = onward.LLM(folder); llm.close(); llm.close()",
        "an atexit handler that generates": (
            "import atexit; llm = onward.LLM(folder)\n"
            "atexit.register(lambda: llm.generate([5], max_new_tokens=3))"
        ),
        "sys.exit in a half-read stream": (
            "for piece in onward.LLM(folder).stream([5], max_new_tokens=99):\n    sys.exit(0)"
        ),
    }

    @pytest.mark.parametrize("name", SCRIPTS)
    def test_the_process_ends_quietly(self, name, folder, run_python):
        write_pieces_tokenizer(folder, [f"<{token}>" for token in range(256)])
        script = f"import sys, onward\nfolder = sys.argv[1]\n{self.SCRIPTS[name]}"
        child = run_python(script, folder, timeout=CHILD_LIMIT_S)
        assert (child.returncode, child.stdout, child.stderr) == (0, "", "")

    def test_a_failed_constructor_shows_only_its_own_error(self, run_python, tmp_path):
        script = "import sys, onward\nonward.LLM(sys.argv[1])"
        child = run_python(script, tmp_path / "nonexistent")
        assert child.returncode == 1
        assert child.stderr.count("Traceback") == 1
        assert "ModelNotFound" in child.stderr.splitlines()[-1]
        assert "Exception ignored" not in child.stderr


class TestClose:
    @pytest.fixture
    def closed(self, tmp_path, open_llm):
        write_pieces_tokenizer(write_seen(tmp_path), list("abcdefgh"))
        llm = open_llm(tmp_path)
        llm.close()
        return llm

    @pytest.mark.parametrize(
        "call",
        [
            lambda llm: llm.generate([3]),
            lambda llm: llm.generate([]),
            lambda llm: llm.generate("d"),
            lambda llm: llm.stream([3]),
            lambda llm: llm.chat("d"),
            lambda llm: llm.logits([3]),
            lambda llm: llm.tokenize("d"),
            lambda llm: llm.detokenize([3]),
            lambda llm: llm.stats(),
        ],
        ids=[
            "generate",
            "nothing",
            "text",
            "stream",
            "chat",
            "logits",
            "tokenize",
            "detokenize",
            "stats",
        ],
    )
    def test_use_after_close_is_a_clear_error(self, closed, call):
        with pytest.raises(ClosedError, match="LLM: was closed"):
            call(closed)

    def test_closing_twice_is_fine(self, closed):
        closed.close()
        with closed:
            closed.close()

    def test_closing_ends_streams_that_are_open(self, llm):
        stream = llm.stream(PROMPT, max_new_tokens=50)
        llm.close()
        with pytest.raises(ClosedError):
            list(stream)

    def test_closing_while_another_thread_generates(self, folder):
        llm = onward.LLM(folder, dtype="f32")
        ends: list[object] = []

        def work() -> None:
            try:
                ends.append(llm.generate(PROMPT, max_new_tokens=100_000))
            except ClosedError as error:
                ends.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.1)
        llm.close()
        thread.join(timeout=10)
        assert not thread.is_alive()
        assert isinstance(ends[0], ClosedError)


class TestThreadCount:
    @pytest.mark.skipif(sys.platform != "linux", reason="affinity is read on Linux")
    def test_the_default_follows_the_affinity(self, folder, run_python):
        """As under `taskset -c 0`: one processor is allowed, one thread is used, none is
        started."""
        script = (
            "import os, sys, threading, time\n"
            "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
            "import onward\n"
            "from onward import _core\n"
            "llm = onward.LLM(sys.argv[1])\n"
            "llm.generate([5], max_new_tokens=3)\n"
            "print(_core.default_threads(), llm.threads, len(os.listdir('/proc/self/task')))\n"
        )
        child = run_python(script, folder)
        assert child.stdout.split() == ["1", "1", "1"], child.stderr

    def test_the_default_is_the_number_of_usable_processors(self, folder, open_llm):
        allowed = len(os.sched_getaffinity(0))
        assert 1 <= _core.default_threads() <= allowed
        assert open_llm(folder).threads == _core.default_threads()

    def test_omp_num_threads_has_no_effect(self, folder, run_python):
        """The engine has its own pool of threads, so the variable has no effect."""
        script = "import sys, onward; print(onward.LLM(sys.argv[1]).threads)"
        expected = str(_core.default_threads())
        for value in ("1", "-3", "many"):
            child = run_python(script, folder, OMP_NUM_THREADS=value)
            assert child.stdout.strip() == expected, child.stderr

    @pytest.mark.parametrize("threads", [1, 2, 3, 8])
    def test_the_requested_number_is_used(self, threads, folder, open_llm, llm):
        other = open_llm(folder, threads=threads)
        assert other.threads == threads
        assert tokens_of(other) == tokens_of(llm)

    @pytest.mark.parametrize("threads", [0, -1, 10_000, 2**40])
    def test_impossible_counts_are_value_errors(self, threads, folder):
        with pytest.raises(ValueError, match=r"threads: is .*expected an integer from 1 to 1024"):
            onward.LLM(folder, threads=threads)

    @pytest.mark.parametrize("threads", [1.0, "2", True])
    def test_values_that_are_not_integers_are_type_errors(self, threads, folder):
        with pytest.raises(TypeError, match="threads"):
            onward.LLM(folder, threads=threads)

    @pytest.mark.parametrize("threads", [0, -1])
    def test_the_core_refuses_them_too(self, threads):
        with pytest.raises(ValueError, match="threads"):
            new_engine(seeded_model("f32"), threads=threads)
