"""onward tokenize and detokenize as child processes of a program; and the paths of native files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import onward
from builders.packs import tiny_pack
from onward.cli import main
from onward.errors import NativeFilesNotFound
from onward.machine import native_files

TEXTS = ["hello there", "", "  two  spaces", "é日 😀 <tool>", "a<|end|>b"]

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_pack(tmp_path_factory.mktemp("pack"))


@pytest.fixture(scope="module")
def llm(model: Path) -> onward.LLM:
    return onward.LLM(model)


@pytest.fixture
def ask(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs a command with this stdin. Returns its exit code, stdout and stderr."""

    def ask_(command: str, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([command, *arguments, "--model", str(model)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return ask_


class TestTokenize:
    @pytest.mark.parametrize("text", TEXTS)
    def test_an_argument(self, ask: Ask, llm: onward.LLM, text: str) -> None:
        expected = " ".join(map(str, llm.tokenize(text)))
        assert ask("tokenize", text) == (0, expected + "\n", "")

    def test_each_line_of_stdin(self, ask: Ask, llm: onward.LLM) -> None:
        expected = "".join(" ".join(map(str, llm.tokenize(text))) + "\n" for text in TEXTS)
        stdin = "\r\n".join(TEXTS).encode()
        assert ask("tokenize", stdin=stdin) == (0, expected, "")

    def test_a_question(self, ask: Ask, llm: onward.LLM) -> None:
        expected = " ".join(map(str, llm.chat_token_ids("hello there"))) + "\n"
        assert ask("tokenize", "--chat", "hello there") == (0, expected, "")

    def test_multi_line_texts(self, ask: Ask, llm: onward.LLM) -> None:
        text = "one\ntwo"
        expected = " ".join(map(str, llm.tokenize(text))) + "\n"
        assert ask("tokenize", "--json-lines", stdin=json.dumps(text).encode()) == (0, expected, "")

    @pytest.mark.parametrize(
        ("arguments", "stdin", "said"),
        [
            ([], b"good\n\xff\n", "line 2, byte 0 is not UTF-8"),
            (["--json-lines"], b"{}\n", "is not a JSON string"),
            (["--json-lines"], b"plain\n", "is not a JSON string"),
        ],
    )
    def test_wrong_input_is_an_error(
        self, ask: Ask, arguments: list[str], stdin: bytes, said: str
    ) -> None:
        code, _, error = ask("tokenize", *arguments, stdin=stdin)
        assert code == 2
        assert said in error


class TestDetokenize:
    @pytest.mark.parametrize("text", TEXTS)
    def test_detokenize_reverses_tokenize(self, ask: Ask, llm: onward.LLM, text: str) -> None:
        ids = llm.tokenize(text)
        lines = "".join(f"{i}\n" for i in ids).encode()
        expected = llm.detokenize(ids) + "\n"
        assert ask("detokenize", stdin=lines) == (0, expected, "")
        one_line = " ".join(map(str, ids)).encode()
        assert ask("detokenize", stdin=one_line + b"\n\n") == (0, expected, "")

    def test_special_tokens_are_written_with_the_flag(self, ask: Ask, llm: onward.LLM) -> None:
        ids = llm.tokenize("a<|end|>b")
        lines = " ".join(map(str, ids)).encode()
        assert ask("detokenize", "--special", stdin=lines)[1] == "<|begin|>a<|end|>b\n"

    def test_empty_input_gives_no_text(self, ask: Ask) -> None:
        assert ask("detokenize") == (0, "", "")

    @pytest.mark.parametrize("word", ["x", "-1", "1.5", "٣"])
    def test_words_that_are_not_ids_are_an_error(self, ask: Ask, word: str) -> None:
        code, _, error = ask("detokenize", stdin=word.encode())
        assert code == 2
        assert "is not a token id" in error


def test_answers_arrive_before_the_end_of_the_input(
    model: Path, child_environment: dict[str, str]
) -> None:
    """Both are child processes with open pipes, as in a native program."""
    command = [sys.executable, "-m", "onward"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": child_environment}
    with (
        subprocess.Popen([*command, "tokenize", "--model", model], **pipes) as there,
        subprocess.Popen([*command, "detokenize", "--model", model], **pipes) as back,
    ):
        for text in (b"hello there\n", b"and\n"):
            there.stdin.write(text)
            there.stdin.flush()
            back.stdin.write(there.stdout.readline() + b"\n")
            back.stdin.flush()
            assert back.stdout.readline() == text
        there.stdin.close()
        back.stdin.close()
        assert (there.wait(30), back.wait(30)) == (0, 0)


class TestPlaces:
    def test_an_installation_has_all_three(self, tmp_path: Path) -> None:
        """A package folder with the files of a wheel that are searched."""
        for name in ("include/onward/onward_c.h", "lib/cmake/onward/onwardConfig.cmake"):
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).touch()
        (tmp_path / "lib" / "libonward.so").touch()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native_files, "_places", lambda: [tmp_path / "nothing", tmp_path])
            patch.setattr(sys, "platform", "linux")
            assert onward.get_include() == str(tmp_path / "include")
            assert onward.get_lib_dir() == str(tmp_path / "lib")
            assert onward.get_cmake_dir() == str(tmp_path / "lib" / "cmake" / "onward")

    @pytest.mark.parametrize("flag", ["include", "lib", "cmake"])
    def test_a_missing_file_is_an_error(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        flag: str,
    ) -> None:
        monkeypatch.setattr(native_files, "_places", lambda: [tmp_path])
        with pytest.raises(NativeFilesNotFound, match="found a package that was not installed"):
            native_files.get_include()
        assert main([f"--{flag}-dir"]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert str(tmp_path) in captured.err

    def test_the_command_prints_the_paths_of_python(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for function in ("get_include", "get_lib_dir", "get_cmake_dir"):
            monkeypatch.setattr(native_files, function, lambda name=function: name)
        assert main(["--cmake-dir", "--lib-dir", "--include-dir"]) == 0
        assert capsys.readouterr().out == "get_include\nget_lib_dir\nget_cmake_dir\n"

    def test_the_paths_are_found_without_loading_the_core(
        self, run_python: Callable[..., object]
    ) -> None:
        done = run_python(
            "import sys, onward\n"
            "try: print(onward.get_lib_dir())\n"
            "except onward.Error: pass\n"
            "assert 'onward._core' not in sys.modules and 'numpy' not in sys.modules",
            PYTHONPATH=os.environ.get("PYTHONPATH", ""),
        )
        assert (done.returncode, done.stderr) == (0, "")
