"""The ``onward`` command: output on stdout and stderr, exit codes, Ctrl-C, pipes, the REPL."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import onward
from builders.terminal import Terminal
from closed_form import chain, write_pieces_tokenizer, write_script, write_table
from onward.cli import main, parser
from onward.options.table import OPTIONS

SCRIPT = ["<pad>", "<s>", "</s>", "one,", " two,", " three,", " fo", "ur."]
SAID = "one, two, three, four.</s>"
# Contents, each a piece, then <s>, which makes the table begin its script.
TEMPLATE = "{% for message in messages %}{{ message.content }}|{% endfor %}<s>"
Environment = dict[str, str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_script(tmp_path_factory.mktemp("script"), SCRIPT)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return str(folder)


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that generates " tick" without end, so that it can be interrupted."""
    folder = tmp_path_factory.mktemp("endless")
    pieces = ["<pad>", "<s>", "</s>", " tick"]
    write_table(folder, chain(4, {1: 3}), max_position_embeddings=200_000)
    write_pieces_tokenizer(folder, pieces)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return str(folder)


@pytest.fixture
def type_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Puts bytes on stdin, as from a pipe."""

    def put(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return put


# generate


def test_generate_prints_the_text_and_nothing_else(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "<s>", "--model", model]) == 0
    assert capsys.readouterr() == (SAID + "\n", "")


def test_a_warning_is_a_line_without_a_source(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The warning here: a conversational model ends the turn after a prompt without a template."""
    assert main(["generate", "ur.", "--model", model]) == 0
    out, err = capsys.readouterr()
    assert out == "</s>\n"
    assert err.startswith("onward: note: prompt: the model ended at once") and err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_generate_reads_stdin_without_its_last_newline(
    model: str,
    type_in: Callable[[bytes], None],
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    type_in(b"<s>|one,\n")
    assert main(["generate", *arguments, "--model", model]) == 0
    assert capsys.readouterr().out == SAID.removeprefix("one,") + "\n"


def test_generate_json_prints_the_result(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "<s>", "--model", model, "--json", "--seed", "7"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    reported = json.loads(out)
    with onward.LLM(model) as llm:
        result = llm.generate("<s>", seed=7)
    reported.pop("timings")
    expected = json.loads(json.dumps(result.to_dict()))
    expected.pop("timings")
    assert reported == expected
    assert reported["text"] == SAID
    assert reported["finish_reason"] == "stop" and reported["stop_reason"] == 2
    assert reported["usage"] == {
        "prompt_tokens": 1,
        "completion_tokens": 6,
        "cached_tokens": 0,
        "total_tokens": 7,
    }


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--max-new-tokens", "2"], "one, two,"),
        (["--max-new-tokens", "0"], ""),
        (["--stop", " four"], "one, two, three,"),
        (["--stop", "zzz", "--stop", " three"], "one, two,"),
        (["--stop-token-ids", "4"], "one, two,"),
        (["--ignore-eos", "--max-new-tokens", "7"], SAID + "</s>"),
        (["--no-cache"], SAID),
        (["--allowed-token-ids", "3", "--max-new-tokens", "2"], "one,one,"),
        (["--logit-bias", "5=1000", "--max-new-tokens", "2"], " three, three,"),
        (
            ["--logit-bias", "5=1e3", "--bad-words-ids", "5,5", "--max-new-tokens", "2"],
            " three, fo",
        ),
        (["--temperature", "0.5", "--top-k", "1", "--threads", "1", "--dtype", "f32"], SAID),
        (["--num-beams", "2", "--early-stopping", "on"], SAID),
        (["--num-beams", "2", "--early-stopping", "never", "--length-penalty", "0.5"], SAID),
        (["--sampling-order", "vllm", "--top-k", "1"], SAID),
        (["--prompt-lookup-num-tokens", "4", "--max-matching-ngram-size", "3"], SAID),
        (["--priority", "-3"], SAID),
    ],
)
def test_flags_reach_the_engine(
    model: str, capsys: pytest.CaptureFixture[str], flags: list[str], expected: str
) -> None:
    assert main(["generate", "<s>", "--model", model, *flags]) == 0
    assert capsys.readouterr().out == expected + "\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--choices", "one, two,", "--choices", "two"], "one, two,"),
        (["--regex", "(one,)+"], "one,</s>"),
        (["--grammar", 'start: " two," " four" "."*', "--max-new-tokens", "3"], " two, four."),
        (["--json-schema", '{"const": 1}', "--logit-bias", "3=-inf"], None),
    ],
)
def test_constraints_have_flags(
    model: str, capsys: pytest.CaptureFixture[str], flags: list[str], expected: str | None
) -> None:
    """The model has no digit, so no JSON is possible: an error, not other text."""
    pytest.importorskip("llguidance")
    assert main(["generate", "<s>", "--model", model, *flags]) == (0 if expected else 2)
    out, err = capsys.readouterr()
    assert out == (f"{expected}\n" if expected else "")
    assert ("json_schema: " in err) is (expected is None)


def test_json_has_every_output(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--json", "--num-return-sequences", "2", "--temperature", "1", "--logprobs", "1"]
    assert main(["generate", "<s>", "--model", model, *flags]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert [sequence["text"] for sequence in reported["sequences"]] == [SAID, SAID]
    assert len(reported["logprobs"]) == len(reported["token_ids"]) == 6


def test_verbose_prints_the_timings_to_stderr(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "<s>", "--model", model, "-v"]) == 0
    out, err = capsys.readouterr()
    assert out == SAID + "\n"
    assert re.fullmatch(
        r"onward: 1 \+ 6 tokens, first token after [\d.]+ s, prefill \d+ tokens/s, "
        r"decode [\d.]+ tokens/s, finish: stop\n",
        err,
    )


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_every_option_has_a_flag_with_its_help(command: str) -> None:
    commands = parser()._subparsers
    assert commands is not None
    text = commands._group_actions[0].choices[command].format_help()  # type: ignore[index]
    squeezed = "".join(text.split())
    for option in OPTIONS:
        if option.kind in ("callable", "callables"):
            continue
        assert "--" + option.name.replace("_", "-") in text
        assert "".join(option.help.split()) in squeezed


# Errors


@pytest.mark.parametrize(
    ("arguments", "code", "reported"),
    [
        (["generate", "x", "--model", "/does/not/exist"], 1, "onward: /does/not/exist: no such"),
        (["generate", "x", "--model", ""], 1, "onward: model: "),
        (["generate", "<s>", "--temperature", "-1"], 2, "onward: temperature: is -1.0, expected"),
        (["generate", "<s>", "--top-p", "nan"], 2, "onward: top_p: is nan, expected"),
        (["generate", "<s>", "--max-new-tokens", "-3"], 2, "onward: max_new_tokens: is -3"),
        (
            ["generate", "<s>", "--early-stopping", "maybe"],
            2,
            "onward generate: --early-stopping: is",
        ),
        (["generate", "<s>", "--early-stopping", "on"], 2, "onward: early_stopping: is given wit"),
        (["generate", "<s>", "--num-return-sequences", "2"], 2, "onward: num_return_sequences: is"),
        (["generate", "<s>", "--num-assistant-tokens", "2"], 2, "onward: num_assistant_tokens: is"),
        (
            ["generate", "<s>", "--regex", "a", "--grammar", "b"],
            2,
            "onward: grammar: is given togeth",
        ),
        (["generate", "<s>", "--json-schema", "{"], 2, "onward: json_schema: "),
        (["generate", "<s>", "--stop", ""], 2, "onward: stop: holds an empty string"),
        (["generate", "<s>", "--threads", "0"], 2, "onward: threads: is 0, expected"),
        (["generate", "<s>", "--dtype", "f64"], 2, "onward: dtype: is 'f64', expected"),
        (["generate", ""], 2, "onward: prompt: is empty"),
        ([], 2, "onward: no command"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    model: str,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    reported: str,
) -> None:
    if arguments and "--model" not in arguments:
        arguments = [*arguments, "--model", model]
    assert main(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    *usage, line = err.splitlines()
    assert line.startswith(reported)
    assert usage == []


@pytest.mark.parametrize(
    "flag",
    [
        *(["--temprature", "1"], ["--max-new-tokens", "many"], ["--logit-bias", "5"]),
        *(["--sampling-order", "ollama"], ["--logits-processor", "x"], ["--best-of", "two"]),
    ],
)
def test_errors_of_argparse_exit_with_2(flag: list[str]) -> None:
    assert main(["generate", "x", *flag]) == 2


def test_stdin_that_is_not_utf8(
    model: str, type_in: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    type_in(b"ab\xff")
    assert main(["generate", "--model", model]) == 2
    assert capsys.readouterr().err == "onward: stdin: byte 2 is not UTF-8, expected text\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"onward {onward.__version__}\n"


def test_an_encoding_that_lacks_a_character_gets_an_escape(
    tmp_path: Path, child_environment: Environment
) -> None:
    folder = write_script(tmp_path / "emoji", ["<pad>", "<s>", "</s>", "🦙"])
    done = subprocess.run(
        [sys.executable, "-m", "onward", "generate", "<s>", "--model", str(folder)],
        capture_output=True,
        env={**child_environment, "PYTHONIOENCODING": "ascii"},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"\\U0001f999</s>\n"


# As a process


def start(arguments: list[str], environment: Environment, **streams: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "onward", *arguments], text=True, env=environment, **streams
    )


def test_a_closed_pipe_ends_the_command_quietly(
    endless: str, child_environment: Environment
) -> None:
    arguments = ["generate", "<s>", "--model", endless, "--max-new-tokens", "190000"]
    child = start(arguments, child_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stderr is not None
    assert child.stdout.read(5) == " tick"
    child.stdout.close()
    assert child.wait(30) == 0
    assert child.stderr.read() == ""
    child.stderr.close()


def test_ctrl_c_is_130_within_a_second_and_quiet(
    endless: str, child_environment: Environment
) -> None:
    arguments = ["generate", "<s>", "--model", endless, "--max-new-tokens", "190000"]
    child = start(arguments, child_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.read(5) == " tick"
    started = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert time.monotonic() - started < 1.5
    assert (child.returncode, err) == (130, "")
    assert set(out.split()) <= {"tick"}


def test_help_loads_nothing_slow(child_environment: Environment) -> None:
    probe = (
        "import sys; from onward.cli import main\n"
        "main(['--help'])\n"
        "print('numpy' in sys.modules, 'tokenizers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        env=child_environment,
        timeout=60,
        check=True,
    )
    assert done.stdout.endswith("False False\n")
    assert "exit codes: 0 done" in done.stdout


# chat


def test_chat_answers_one_message_and_exits(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "one,", "--model", model]) == 0
    assert capsys.readouterr() == (SAID + "\n", "")


def test_chat_from_a_pipe_keeps_the_conversation_until_reset(
    model: str, type_in: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    type_in(b"one,\n\n two,\n/reset\nur.\n/quit\nnever\n")
    flags = ["--json", "--system", "</s>", "--max-new-tokens", "1"]
    assert main(["chat", "--model", model, *flags]) == 0
    out, err = capsys.readouterr()
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["prompt_token_ids"] for answer in answers] == [
        [2, 3, 1],
        [2, 3, 3, 4, 1],  # system, user, assistant, user, <s>
        [2, 7, 1],
    ]
    assert err == "(a new conversation)\n"


def test_chat_help_and_an_unknown_command(
    model: str, type_in: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    type_in(b"/help\n/what\n")
    assert main(["chat", "--model", model]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("forget the conversation") == 1
    assert "onward: /what: no such command" in err


def test_chat_without_a_template_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_script(tmp_path / "plain", SCRIPT)
    assert main(["chat", "hi", "--model", str(folder)]) == 1
    assert re.match(r"onward: .*no chat template", capsys.readouterr().err)


def test_generate_without_a_prompt_on_a_terminal_is_wrong_usage(
    model: str, child_environment: Environment
) -> None:
    terminal = Terminal(["generate", "--model", model], child_environment)
    assert terminal.exit_code() == 2
    assert "onward: prompt: is missing" in terminal.lines[0]


# doctor


def test_doctor_shows_everything_and_ends_with_the_next_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for word in ("instruction set", "threads", "memory", "device cpu", "tokenizers", "default mod"):
        assert word in out
    block = out.split("```")[1]
    assert f"onward {onward.__version__}" in block
    assert "/" not in re.sub(r"GB/s|GFLOP/s", "", block), "a path in the block"
    assert out.endswith('```\n\nNext: onward chat "What is gravity?"\n')


def test_doctor_json_and_measure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--measure"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["onward"] == onward.__version__
    assert report["isa"]["selected"] in report["isa"]["available"]
    assert report["threads"]["default"] >= 1
    assert report["packages"]["numpy"] is not None
    assert report["devices"]["cpu"]["ready"] is True
    assert set(report["measured"]) == {*("read GB/s", "f32 GFLOP/s", "bf16 GFLOP/s", "int8 GOP/s")}
    assert all(value > 0 for value in report["measured"].values())
    assert os.path.expanduser("~") + os.sep not in json.dumps(report)
