"""Text on stdin in addition to a prompt argument, in child processes with a real stdin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.seeded_folder import write_seeded
from closed_form import write_pieces_tokenizer
from onward.cli import main, piped

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMANDS = {
    "generate": (["generate", "<5>", "-n", "2"], "PROMPT"),
    "generate from a file": (["generate", "@prompt", "-n", "2"], "PROMPT"),
    "rows": (["generate", "--jsonl", "rows", "-n", "2"], "--jsonl"),
    "tokenize": (["tokenize", "<5>"], "TEXT"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("piped")
    write_seeded(folder / "model", hidden_size=32, intermediate_size=48, num_layers=1)
    write_pieces_tokenizer(folder / "model", [f"<{token}>" for token in range(256)])
    (folder / "prompt").write_text("<5>")
    (folder / "rows").write_text('{"prompt": "<5>"}\n')
    return folder


@pytest.fixture
def run(folder: Path, child_environment: dict[str, str]) -> Run:
    def run(words: list[str], **stdin: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "onward", *words, "-m", "model"],
            capture_output=True,
            text=True,
            cwd=folder,
            env=child_environment,
            timeout=120,
            check=False,
            **stdin,
        )

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_text_beside_a_prompt_is_refused(run: Run, name: str) -> None:
    words, argument = COMMANDS[name]
    done = run(words, input="text\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"onward: stdin: has text, but the argument {argument} is given too, expected one of them: "
        f"leave out {argument} to read stdin, or add < /dev/null to ignore it\n"
    )


@pytest.mark.parametrize("name", ["generate", "tokenize"])
def test_a_stdin_without_text_has_no_effect(run: Run, name: str) -> None:
    """An open pipe without data, as in CI jobs, and a pipe that has ended."""
    words, _ = COMMANDS[name]
    reading, writing = os.pipe()
    try:
        open_pipe = run(words, stdin=reading)
    finally:
        os.close(reading), os.close(writing)
    ended = run(words, input="")
    for done in (open_pipe, ended):
        assert (done.returncode, done.stderr) == (0, "")
    assert open_pipe.stdout == ended.stdout != ""


def test_the_input_of_a_shell_loop_is_left_to_the_loop(run: Run, folder: Path) -> None:
    (folder / "lines").write_text("<1>\n<2>\n<3>\n")
    with open(folder / "lines", "rb", buffering=0) as file:
        assert file.readline() == b"<1>\n"
        assert run(["tokenize", "<1>"], stdin=file).returncode == 2  # there is more of it
        assert file.readline() == b"<2>\n"
        assert file.readline() == b"<3>\n"
        assert run(["tokenize", "<1>"], stdin=file).returncode == 0


def test_a_prompt_that_is_a_dash_reads_stdin(run: Run) -> None:
    done = run(["generate", "-", "-n", "2", "--json"], input="<5>\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["prompt_token_ids"] == [5]


class _Stdin:
    """Replaces sys.stdin by one end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.buffer = os.fdopen(os.dup(descriptor), "rb")

    def fileno(self) -> int:
        return self._descriptor


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A pipe as stdin; the descriptor that writes to it."""
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", _Stdin(reading))
    yield writing
    os.close(reading)
    os.close(writing)


class TestWaiting:
    def test_a_message_does_not_wait_for_text_without_an_end(
        self, pipe: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(piped, "NOTE_AFTER_S", 0.01)
        monkeypatch.setattr(piped, "PATIENCE_S", 0.03)
        assert piped.text_beside() == ""
        first, second = capsys.readouterr().err.splitlines()
        assert "waiting 0.03 s for text on stdin" in first and "< /dev/null leaves it out" in first
        assert second == "onward: note: no text arrived on stdin; continuing without it"

    def test_text_is_read_to_its_end_after_the_first_bytes(
        self, pipe: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(piped, "NOTE_AFTER_S", 30.0)
        os.write(pipe, b"one\n")
        again = os.dup(pipe)

        def end() -> None:
            os.write(again, b"two\n")
            os.close(again)
            os.dup2(os.open(os.devnull, os.O_WRONLY), pipe)

        threading.Timer(0.1, end).start()
        assert piped.text_beside() == "one\ntwo"
        assert capsys.readouterr().err == ""

    def test_text_that_arrives_during_the_work_gives_a_note(
        self, pipe: int, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
    ) -> None:
        from onward import LLM

        tokenize = LLM.tokenize

        def late(*arguments: Any, **options: Any) -> Any:
            os.write(pipe, b"text")
            return tokenize(*arguments, **options)

        monkeypatch.setattr(LLM, "tokenize", late)
        assert main(["tokenize", "<5>", "-m", str(folder / "model")]) == 0
        found = capsys.readouterr()
        assert found.out == "5\n"
        assert found.err == (
            "onward: note: stdin: its text was not read, because the argument TEXT is given\n"
        )
