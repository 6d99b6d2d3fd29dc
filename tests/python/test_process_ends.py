"""Every command as a process with closed, full or lost streams, with signals, or with bytes that
are not UTF-8: an exit code and at most one line, never a traceback.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from builders.packs import write_talking
from closed_form import chain, write_pieces_tokenizer, write_table
from onward.cli import main
from onward.cli.commands import COMMANDS, name

NAMES = [name(command) for command in COMMANDS]
FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
# A command line that succeeds in little time and prints something. A command that is not here is
# tried with --help alone.
WORKING = {
    "generate": "generate abc -n 2 -m MODEL",
    "chat": "chat hi -n 2 -m MODEL",
    "tokenize": "tokenize abc -m MODEL",
    "detokenize": "detokenize -m MODEL",
    "list": "list",
    "doctor": "doctor",
    "quantize": "quantize MODEL -o quantized-$$ --method round",
    "pack": "pack MODEL -o model.onward --force",
    "kv": "kv MODEL --context 16 --batch 1",
    "bench": "bench -m MODEL --prefill 4 --depth none --repetitions 1",
    "compare": "compare cpu:f32 cpu:f32 -m MODEL --prompt abc -n 2 --no-speed",
}
HELP = {command: f"{command} --help" for command in NAMES}
QUICK = [HELP[command] for command in NAMES]


def some_slow(cases: list[str], quick: int = 0) -> list[Any]:
    """The cases, of which all but the first few are for the slow suite."""
    slow = [pytest.param(case, marks=pytest.mark.slow) for case in cases[quick:]]
    return [*cases[:quick], *slow]


SLOW = [pytest.param(line, marks=pytest.mark.slow) for line in WORKING.values()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ends")
    write_talking(folder / "MODEL", num_layers=1, hidden_size=32, intermediate_size=32)
    return folder


class Shell:
    """Runs command lines with redirections of the shell's in a folder of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment

    def __call__(
        self, words: str | bytes, redirection: str = "", **environment: str
    ) -> subprocess.CompletedProcess[bytes]:
        words = words.encode() if isinstance(words, str) else words
        program = f"exec {shlex.quote(sys.executable)} -m onward ".encode()
        return subprocess.run(
            [b"/bin/sh", b"-c", program + words + b" " + redirection.encode()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=self._folder,
            env={**self._environment, **environment},
            timeout=120,
            check=False,
        )


@pytest.fixture
def shell(model: Path, child_environment: dict[str, str]) -> Shell:
    return Shell(model, child_environment)


def one_line(text: bytes) -> str:
    """The content of stderr: nothing, or one line of the command."""
    line = text.decode()
    assert "Traceback" not in line and "Exception ignored" not in line
    assert line.count("\n") <= 1
    assert line == "" or line.startswith(("onward", "(cut at "))  # chat's note
    return line


class TestStreams:
    @pytest.mark.parametrize("words", [*QUICK, *SLOW, "--version", "help", "generat", "chat --zzz"])
    @pytest.mark.parametrize(
        "redirection",
        [
            pytest.param("> /dev/full", marks=[FULL, pytest.mark.slow]),
            "<&- >&-",
            pytest.param(">&-", marks=pytest.mark.slow),
            pytest.param("2>&-", marks=pytest.mark.slow),
            pytest.param("2> /dev/full", marks=[FULL, pytest.mark.slow]),
            pytest.param("<&- >&- 2>&-", marks=pytest.mark.slow),
        ],
    )
    def test_closed_or_full_streams_end_in_one_line(
        self, shell: Shell, words: str, redirection: str
    ) -> None:
        ended = shell(words, redirection)
        line = one_line(ended.stderr)
        usage = words in ("generat", "chat --zzz")
        fails = redirection[0] in "<>" and not (
            words == "detokenize -m MODEL" and "full" in redirection
        )
        assert ended.returncode == (2 if usage else int(fails))
        stdout = ">&-" in redirection.replace("2>&-", "") or redirection == "> /dev/full"
        stdout = stdout and "2>&-" not in redirection
        if words == "detokenize -m MODEL" and stdout:
            return  # it has nothing to print
        assert ("stdout: " in line) == (stdout and not usage)

    @pytest.mark.parametrize("words", SLOW)
    def test_a_closed_stdin(self, shell: Shell, words: str) -> None:
        ended = shell(words, "<&-")
        line = one_line(ended.stderr)
        reads = words == "detokenize -m MODEL"
        assert ended.returncode == int(reads)
        assert line.startswith("onward: stdin: is closed") == reads

    @pytest.mark.parametrize("command", ["generate", "tokenize", "generate --jsonl -"])
    def test_commands_that_read_a_closed_stdin(self, shell: Shell, command: str) -> None:
        ended = shell(f"{command} -m MODEL", "<&-")
        assert ended.returncode in (1, 2)
        assert one_line(ended.stderr).startswith("onward: stdin: is closed, expected a file")

    @pytest.mark.parametrize("words", SLOW)
    def test_a_closed_pipe_ends_a_command_quietly(self, shell: Shell, words: str) -> None:
        """The pipe is closed before anything is written."""
        ended = shell(words, "| :")
        assert one_line(ended.stderr) == ""

    @pytest.mark.parametrize("words", ["help", *some_slow(QUICK)])
    def test_the_exit_code_for_a_closed_pipe(
        self, child_environment: dict[str, str], words: str
    ) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        with subprocess.Popen(
            [sys.executable, "-m", "onward", *words.split()],
            stdout=writing,
            stderr=subprocess.PIPE,
            env=child_environment,
        ) as child:
            os.close(writing)
            assert child.communicate(timeout=60)[1] == b""
        assert child.returncode == 0

    def test_unbuffered_output_is_the_same(self, shell: Shell) -> None:
        plain, unbuffered = (shell("help", PYTHONUNBUFFERED=value) for value in ("", "1"))
        assert plain.stdout == unbuffered.stdout and plain.returncode == unbuffered.returncode == 0
        full = shell("help", "> /dev/full", PYTHONUNBUFFERED="1")
        assert full.returncode == 1 and "cannot write" in one_line(full.stderr)


class TestBytes:
    @pytest.mark.parametrize("command", NAMES)
    def test_arguments_that_are_not_utf8(
        self, command: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """As Python hands them on: each byte is a lone surrogate."""
        assert main([command, "a\udcff", "--b\udcff"]) == 2
        assert one_line(capsys.readouterr().err.encode("utf-8", "backslashreplace"))

    @pytest.mark.parametrize(
        "words",
        [
            "generate a\udcff -m MODEL",
            "generate abc -m a\udcff",
            "generate abc -m MODEL --stop a\udcff",
            "generate @a\udcff -m MODEL",
            "tokenize a\udcff -m MODEL",
            "chat a\udcff -m MODEL",
            "kv a\udcff",
            "generate --jsonl a\udcff -m MODEL",
            "a\udcff",
        ],
    )
    def test_values_that_are_not_utf8(
        self,
        model: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        words: str,
    ) -> None:
        monkeypatch.chdir(model)
        assert main(words.split()) in (1, 2)
        assert one_line(capsys.readouterr().err.encode("utf-8", "backslashreplace"))

    @pytest.mark.parametrize(
        "command", some_slow(["chat", "tokenize", "detokenize", "generate"], 2)
    )
    def test_stdin_that_is_not_utf8(self, shell: Shell, command: str) -> None:
        ended = shell(f"{command} -m MODEL", "< $(printf '\\377' > bytes; echo bytes)")
        assert ended.returncode == 2
        assert "UTF-8" in one_line(ended.stderr)

    @pytest.mark.parametrize(
        "variable", some_slow(["ONWARD_CPU_ISA", "COLUMNS", "HOME", "HF_HOME", "LANG"], 2)
    )
    def test_an_environment_that_is_not_utf8(self, shell: Shell, variable: str) -> None:
        ended = shell("kv MODEL --context 16", **{variable: "\udcff"})
        assert ended.returncode in (0, 1, 2)
        assert bool(one_line(ended.stderr)) == bool(ended.returncode)

    @pytest.mark.parametrize("encoding", some_slow(["ascii", "latin-1", "utf-16"], 1))
    @pytest.mark.parametrize("words", ["tokenize $(printf 'a\\377') -m MODEL", "help"])
    def test_streams_of_other_encodings(self, shell: Shell, encoding: str, words: str) -> None:
        ended = shell(words, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
        assert b"T\0r\0a\0c" not in ended.stderr and b"Trac" not in ended.stderr
        assert ended.returncode == (2 if "tokenize" in words else 0)


class TestSignals:
    @pytest.fixture(scope="class")
    @staticmethod
    def endless(tmp_path_factory: pytest.TempPathFactory) -> str:
        """A model that generates " tick" without end."""
        folder = tmp_path_factory.mktemp("endless")
        write_table(folder, chain(4, {1: 3}), max_position_embeddings=200_000)
        write_pieces_tokenizer(folder, ["<pad>", "<s>", "</s>", " tick"])
        return str(folder)

    @pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
    def test_signals_during_an_output(
        self, endless: str, child_environment: dict[str, str], number: str
    ) -> None:
        arguments = ["generate", "<s>", "-m", endless, "-n", "190000"]
        with subprocess.Popen(
            [sys.executable, "-m", "onward", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment,
        ) as child:
            assert child.stdout is not None and child.stdout.read(5) == b" tick"
            child.send_signal(getattr(signal, number))
            _, err = child.communicate(timeout=30)
        assert (child.returncode, err) == (128 + getattr(signal, number), b"")

    @pytest.mark.parametrize("imports", [1, 10, 40, 80])
    def test_ctrl_c_while_modules_are_imported(
        self, child_environment: dict[str, str], imports: int
    ) -> None:
        """The signal comes at a given import of the command, at any speed of the machine."""
        start = (
            "import signal, sys\n"
            "from onward.__main__ import run\n"
            "left = int(sys.argv.pop(1))\n"
            "def count(event, arguments):\n"
            "    global left\n"
            "    if event == 'import':\n"
            "        left -= 1\n"
            "        if left == 0:\n"
            "            signal.raise_signal(signal.SIGINT)\n"
            "sys.addaudithook(count)\n"
            "sys.exit(run())\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", start, str(imports), "generate", "--help"],
            capture_output=True,
            env=child_environment,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")

    def test_the_package_imports_few_modules(self, child_environment: dict[str, str]) -> None:
        """Ctrl-C before the command's own code gives a traceback of Python, so this time must be
        short."""
        program = (
            "import sys; before = set(sys.modules); import onward.__main__; "
            "print(*sorted(set(sys.modules) - before - {'__future__'}))"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            env=child_environment,
            timeout=60,
            check=True,
        )
        allowed = {"onward", "onward.__main__", "onward.errors"}
        allowed |= {"importlib", "importlib._bootstrap", "importlib._bootstrap_external"}
        assert set(ended.stdout.decode().split()) <= allowed | {"warnings", "_warnings"}

    @pytest.mark.parametrize("command", NAMES)
    @pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE"])
    @pytest.mark.slow
    def test_signals_at_any_moment(
        self, model: Path, child_environment: dict[str, str], command: str, number: str
    ) -> None:
        """Eight moments from the first instruction of the command to the end of the process."""
        line = WORKING.get(command, HELP[command])
        sent = getattr(signal, number)
        start = (
            "import sys, threading, time, os, signal\n"
            "begun, delay = threading.Event(), float(sys.argv.pop(1))\n"
            "def send():\n"
            "    begun.wait()\n"
            "    time.sleep(delay)\n"
            f"    os.kill(os.getpid(), {int(sent)})\n"
            "from onward.cli import main, streams\n"
            "streams.catch_signals()\n"
            "threading.Thread(target=send, daemon=True).start()\n"
            "begun.set()\n"
            "sys.exit(main())\n"
        )
        for delay in (0.002, 0.01, 0.03, 0.06, 0.1, 0.2, 0.4, 0.8):
            ended = subprocess.run(
                [
                    sys.executable,
                    "-c",
                    start,
                    str(delay),
                    *line.replace("$$", f"{number}-{delay}").split(),
                ],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=model,
                env=child_environment,
                timeout=120,
                check=False,
            )
            one_line(ended.stderr)
            assert ended.returncode in (0, 128 + sent) or number == "SIGPIPE"
            left = [
                path.name for path in model.iterdir() if re.search(r"\.[0-9a-f]{16}$", path.name)
            ]
            assert left == []

    def test_a_signal_that_the_parent_ignores_is_ignored(
        self, endless: str, child_environment: dict[str, str]
    ) -> None:
        """As ``nohup`` does for SIGHUP."""
        line = f"trap '' HUP; exec {shlex.quote(sys.executable)} -m onward generate '<s>' -n 2000"
        with subprocess.Popen(
            ["/bin/sh", "-c", f"{line} -m {shlex.quote(endless)}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment,
        ) as child:
            assert child.stdout is not None and child.stdout.read(5) == b" tick"
            child.send_signal(signal.SIGHUP)
            assert child.stdout.read().count(b"tick") == 1999
            assert child.stderr is not None and child.stderr.read() == b""
        assert child.returncode == 0

    def test_a_second_interrupt_changes_nothing(
        self, endless: str, child_environment: dict[str, str]
    ) -> None:
        arguments = ["generate", "<s>", "-m", endless, "-n", "190000"]
        with subprocess.Popen(
            [sys.executable, "-m", "onward", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment,
        ) as child:
            assert child.stdout is not None and child.stdout.read(5) == b" tick"
            for _ in range(20):
                child.send_signal(signal.SIGINT)
                time.sleep(0.002)
            _, err = child.communicate(timeout=30)
        assert (child.returncode, err) == (130, b"")
