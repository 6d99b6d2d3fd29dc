"""Conventions of the command line: every flag has help and a default, an error is one line with the
nearest name, lists have commas, sizes have units, and texts come from files.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from closed_form import write_script
from onward.cli import commands, main, values
from onward.cli.commands import COMMANDS, name, parser
from onward.cli.parsing import Parser, commands_of, help_of

SCRIPT = ["<pad>", "<s>", "</s>", "one,", " two,", " three,", " fo", "ur."]
SAID = "one, two, three, four.</s>"
NAMES = [name(command) for command in COMMANDS]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_script(tmp_path_factory.mktemp("script"), SCRIPT))


Said = Callable[..., tuple[int, str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs a wrong command line. Returns the exit code and its line on stderr."""

    def said_(*words: str) -> tuple[int, str]:
        code = main(list(words))
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        return code, err.rstrip("\n")

    return said_


def flags() -> Iterator[tuple[str, argparse.Action]]:
    """Every flag of every command."""
    for command, sub in commands_of(parser()).items():
        for action in sub._actions:
            if action.option_strings and not isinstance(action, argparse._HelpAction):
                yield command, action


class TestHelp:
    @pytest.mark.parametrize(
        ("command", "action"), list(flags()), ids=lambda part: getattr(part, "dest", part)
    )
    def test_a_flag_has_help_and_a_default(self, command: str, action: argparse.Action) -> None:
        text = help_of(action)
        assert re.search(r"(; default: \S|; required$)", text) or text.startswith("default: ")
        assert len(text.partition("default: ")[0]) > 8
        default = text.partition("default: ")[2]
        assert not re.search(r"\b(None|True|False|yes|no)\b", default)
        if action.nargs != 0 and not action.choices:
            assert action.metavar is not None, "what kind of value it takes"

    def test_a_short_form_means_the_same_everywhere(self) -> None:
        meanings: dict[str, set[str]] = {}
        for _, action in flags():
            for spelling in action.option_strings:
                if not spelling.startswith("--"):
                    meanings.setdefault(spelling, set()).add(action.option_strings[-1])
        assert all(len(long) == 1 for long in meanings.values()), meanings
        expected = {"-m": "--model", "-n": "--max-new-tokens", "-t": "--threads", "-o": "--output"}
        assert {short: meanings[short] for short in expected} == {
            short: {long} for short, long in expected.items()
        }

    @pytest.mark.parametrize("command", NAMES)
    def test_help_ends_with_examples_and_exit_codes(
        self, command: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["help", command]) == 0
        text = capsys.readouterr().out
        assert main([command, "--help"]) == 0
        assert capsys.readouterr().out == text
        examples, _, codes = text.partition("\nexamples:\n")[2].partition("\n\n")
        lines = examples.splitlines()
        assert lines and all(f"onward {command}" in line for line in lines)
        assert codes.startswith("exit codes: 0 done, ") and "130" in codes

    @pytest.mark.parametrize("command", NAMES)
    def test_examples_parse(
        self, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import shlex

        monkeypatch.chdir(tmp_path)
        for file in ("prompt.txt", "story.txt", "question.txt"):
            (tmp_path / file).write_text("Once")
        (tmp_path / "schema.json").write_text("{}")
        module = next(each for each in COMMANDS if name(each) == command)
        for line in module.EXAMPLES.splitlines():
            for part in line.split(" | "):
                words = shlex.split(part.partition(" < ")[0])
                if words[0] == "onward":
                    assert parser().parse_command(words[1:]).command in NAMES

    @pytest.mark.parametrize("columns", ["1", "40", "200"])
    def test_help_fits_the_terminal(
        self, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["generate", "--help"]) == 0
        text = capsys.readouterr().out.partition("\nexamples:")[0]
        lines = [line for line in text.splitlines() if not re.match(r"  --|\w.*:$", line)]  # names
        assert max(map(len, lines)) <= max(40, min(100, int(columns)))

    def test_help_shows_no_colours(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["help"]) == 0
        assert "\x1b" not in capsys.readouterr().out


class TestMistakes:
    @pytest.mark.parametrize(
        ("words", "line"),
        [
            ("generat x", "onward: generat: no such command, did you mean generate?"),
            ("Chat", "onward: Chat: no such command, did you mean chat?"),
            ("zzz", "onward: zzz: no such command, expected generate, chat, tokenize"),
            ("help generat", "onward: generat: no such command, did you mean generate?"),
            ("--verison", "onward: --verison: no such flag, did you mean --version?"),
            (
                "generate x --temprature 5",
                "onward generate: --temprature: no such flag, did you mean --temperature?",
            ),
            (
                "generate --temprature=5 x",
                "onward generate: --temprature: no such flag, did you mean --temperature?",
            ),
            (
                "generate x --temp 5",
                "onward generate: --temp: no such flag, did you mean --tempera",
            ),
            (
                "generate x --max_new_tokens 5",
                "onward generate: --max_new_tokens: no such flag, di",
            ),
            (
                "generate x --max-tokens 5",
                "onward generate: --max-tokens: no such flag, did you mean --max-new-tokens?",
            ),
            (
                "generate x --ctx-size 5",
                "onward generate: --ctx-size: no such flag, did you mean --",
            ),
            ("doctor --zzz", "onward doctor: --zzz: no such flag; --help lists the flags"),
            (
                "generate Once upon a time -n 5",
                "onward generate: upon: unexpected word; quote a text of several words: "
                '"Once upon a time"',
            ),
            (
                "chat -n 5 What is it",
                "onward chat: is: unexpected word; quote a text of several wor",
            ),
            ("doctor now", "onward doctor: now: unexpected argument; onward doctor --help lists"),
            ("compare", "onward compare: A: is missing"),
            ("quantize x", "onward quantize: -o/--output: is missing"),
            (
                "generate x --seed",
                "onward generate: --seed: has no value, expected one; a value that ",
            ),
            ("generate x -n", "onward generate: --max-new-tokens: has no value, expected one"),
            ("generate --json=1 x", "onward generate: --json: is given '1', expected no value"),
        ],
    )
    def test_wrong_words_are_one_line_with_the_nearest_name(
        self, said: Said, words: str, line: str
    ) -> None:
        code, found = said(*words.split())
        assert code == 2
        assert found.startswith(line)

    @pytest.mark.parametrize(
        ("words", "line"),
        [
            (
                "--dtype int9",
                "dtype: is 'int9', expected one of auto, f32, f16, bf16, int8, int4, di",
            ),
            (
                "--head-dtype bf61",
                "head_dtype: is 'bf61', expected None or one of f32, f16, bf16, in",
            ),
            ("--kv-dtype turbo5", "kv_dtype: is 'turbo5', expected one of auto, f32"),
            (
                "--sampling-order vlm",
                "--sampling-order: is 'vlm', expected hf, vllm, llama.cpp, did y",
            ),
            ("--early-stopping yes", "--early-stopping: is 'yes', expected on, off, never"),
            ("--max-new-tokens many", "--max-new-tokens: is 'many', expected a whole number"),
            ("-n 1.5", "--max-new-tokens: is '1.5', expected a whole number"),
            ("--temperature hot", "--temperature: is 'hot', expected a number"),
            ("--logit-bias 29", "--logit-bias: is '29', expected ID=BIAS, such as 29=-5"),
            ("--logit-bias 29=x", "--logit-bias: is '29=x', expected ID=BIAS, such as 29=-5"),
            ("--logit-bias a=1", "--logit-bias: is 'a=1', expected ID=BIAS, such as 29=-5"),
            ("--stop-token-ids 1,x", "--stop-token-ids: is 'x', expected a whole number"),
            ("--bad-words-ids 1;2", "--bad-words-ids: is '1;2', expected a whole number"),
            (
                "--kv-cache-bytes 2X",
                "--kv-cache-bytes: is '2X', expected bytes, or a number with K",
            ),
            ("--threads two", "--threads: is 'two', expected a whole number"),
        ],
    )
    def test_wrong_values_name_the_expected_form(
        self, said: Said, model: str, words: str, line: str
    ) -> None:
        code, found = said("generate", "<s>", "-m", model, *words.split())
        assert code == 2
        assert found.split(": ", 1)[1].startswith(line)

    @pytest.mark.parametrize(
        ("words", "flag"),
        [("--batch 1 4 16", "--batch 1,4,16"), ("--depth 0 512 --batch 1", "--depth 0,512")],
    )
    def test_lists_with_spaces(self, said: Said, words: str, flag: str) -> None:
        code, found = said("bench", *words.split())
        assert code == 2 and found.endswith(f"a list has commas: {flag}")


class TestLists:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            (["--stop-token-ids", "4,5"], {"stop_token_ids": [4, 5]}),
            (["--stop-token-ids", "4", "--stop-token-ids", "5,6"], {"stop_token_ids": [4, 5, 6]}),
            (["--bad-words-ids", "4,5", "--bad-words-ids", "6"], {"bad_words_ids": [[4, 5], [6]]}),
            (
                ["--logit-bias", "4=-inf,5=2", "--logit-bias", "6=1"],
                {"logit_bias": {4: -float("inf"), 5: 2, 6: 1}},
            ),
            (["--stop", "a,b", "--stop", "c"], {"stop": ["a,b", "c"]}),
        ],
    )
    def test_lists_of_options(self, words: list[str], expected: dict[str, object]) -> None:
        from onward.cli.flags import generation_options

        arguments = parser().parse_command(["generate", "x", *words])
        assert generation_options(arguments) == expected

    @pytest.mark.parametrize(
        ("words", "name_", "expected"),
        [
            ("bench --batch 1,4 --batch 16", "batch", [1, 4, 16]),
            ("bench --prefill none", "prefill", []),
            ("kv --context 1024,4096", "context", [1024, 4096]),
            (
                "kv --kv-dtype f16,int8/turbo4 --kv-dtype q4_0",
                "kv_dtype",
                ["f16", "int8/turbo4", "q4_0"],
            ),
            ("compare cpu --depths 0,512", "depths", [0, 512]),
        ],
    )
    def test_lists_of_commands(self, words: str, name_: str, expected: list[object]) -> None:
        assert getattr(parser().parse_command(words.split()), name_) == expected

    def test_no_flag_takes_several_words(self) -> None:
        assert [action.dest for _, action in flags() if action.nargs not in (None, 0, "?")] == []


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("65536", 65536),
        ("24G", 24 * 2**30),
        ("24GiB", 24 * 2**30),
        ("24GB", 24 * 10**9),
        ("24gb", 24 * 10**9),
        ("512M", 512 * 2**20),
        ("1.5K", 1536),
        ("2 T", 2 * 2**40),
        ("7B", 7),
    ],
)
def test_sizes(written: str, expected: int) -> None:
    assert values.size(written) == expected
    for words in (["kv", "--memory"], ["kv", "--weights-bytes"], ["generate", "--kv-cache-bytes"]):
        arguments = parser().parse_command([*words, written])
        assert getattr(arguments, words[1].strip("-").replace("-", "_")) == expected


class TestTexts:
    def test_a_text_from_a_file(
        self, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "prompt.txt").write_text("<s>\n")
        (tmp_path / "stop.txt").write_text(" four\n")
        words = [f"@{tmp_path}/prompt.txt", "--stop", f"@{tmp_path}/stop.txt"]
        assert main(["generate", *words, "-m", model]) == 0
        assert capsys.readouterr().out == "one, two, three,\n"

    def test_every_text_of_every_command(self, tmp_path: Path) -> None:
        """A text that begins with @@ begins with @."""
        (tmp_path / "text").write_text("from a file\n\n")
        for command, sub in commands_of(parser()).items():
            for action in sub._actions:
                if action.metavar not in ("TEXT", "PROMPT", "MESSAGE") or action.dest == "name":
                    continue
                assert isinstance(action.type, type(values.text)), (command, action.dest)
                assert action.type("@@alice") == "@alice"
                assert action.type(f"@{tmp_path}/text") == "from a file\n"
                assert action.type("alice@home") == "alice@home"

    @pytest.mark.parametrize("form", ["@{path}", "{path}", None])
    def test_a_schema_is_json_or_a_file(
        self, form: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        schema = {"type": "object"}
        (tmp_path / "schema.json").write_text(json.dumps(schema))
        monkeypatch.chdir(tmp_path)
        written = json.dumps(schema) if form is None else form.format(path="schema.json")
        arguments = parser().parse_command(["generate", "x", "--json-schema", written])
        assert json.loads(arguments.json_schema) == schema

    def test_json_is_not_read_as_a_file_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for written in ("true", "{}"):
            (tmp_path / written).write_text('{"type": "null"}')
            arguments = parser().parse_command(["generate", "x", "--json-schema", written])
            assert arguments.json_schema == written

    @pytest.mark.parametrize(
        ("written", "line"),
        [
            (
                "@/does/not/exist",
                "/does/not/exist: cannot read: No such file or directory; a text ",
            ),
            ("@", ": cannot read: "),
            ("@{tmp}", "{tmp}: cannot read: Is a directory"),
            ("@{tmp}/bad", "{tmp}/bad: byte 1 is not UTF-8, expected text"),
            ("a\udcff", "character 2 is not UTF-8, expected text"),
        ],
    )
    def test_files_that_cannot_be_read_are_an_error(
        self, said: Said, tmp_path: Path, written: str, line: str
    ) -> None:
        (tmp_path / "bad").write_bytes(b"a\xff")
        code, found = said("generate", written.format(tmp=tmp_path))
        assert code == 2
        assert line.format(tmp=tmp_path) in found

    def test_a_schema_whose_file_is_missing(self, said: Said) -> None:
        code, found = said("generate", "x", "--json-schema", "missing.json")
        assert code == 2
        assert "--json-schema: missing.json: no such file, expected a JSON schema" in found


class TestOutput:
    def test_several_outputs_are_numbered(
        self, model: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["--num-return-sequences", "2", "--temperature", "1"]
        assert main(["generate", "<s>", "-m", model, *words]) == 0
        assert capsys.readouterr().out == f"[1] {SAID}\n[2] {SAID}\n"

    def test_log_probabilities_are_a_table(
        self, model: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["-n", "2", "--logprobs", "1", "--prompt-logprobs", "0"]
        assert main(["generate", "<s>|one,", "-m", model, *words]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "log-probabilities of the prompt",
            "token  text    logprob",
            "    3  'one,'   0.0000",
            " two, three,",
            "token  text       logprob  likeliest",
            "    4  ' two,'     0.0000  ' two,' 0.0000",
            "    5  ' three,'   0.0000  ' three,' 0.0000",
        ]

    def test_best_of_shows_the_best(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["generate", "<s>", "-m", model, "--best-of", "3", "--temperature", "1"]) == 0
        assert capsys.readouterr().out == f"{SAID}\n"

    @pytest.mark.parametrize("words", [[], ["--json"]])
    def test_a_file(
        self, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
    ) -> None:
        path = tmp_path / "out"
        path.write_text("the last one")
        assert main(["generate", "<s>", "-m", model, "-o", str(path), *words]) == 0
        assert capsys.readouterr() == ("", "")
        text = path.read_text()
        assert (json.loads(text)["text"] if words else text.rstrip("\n")) == SAID
        assert [file.name for file in tmp_path.iterdir()] == ["out"]

    @pytest.mark.parametrize(
        "command", [["generate", "<s>"], ["kv"], ["bench"], ["compare", "cpu"]]
    )
    def test_an_impossible_output_file_is_refused(
        self, said: Said, tmp_path: Path, command: list[str]
    ) -> None:
        for path, why in (
            (tmp_path, "is a folder"),
            (tmp_path / "no/x", "there is no such folder"),
        ):
            code, found = said(*command, "-o", str(path))
            assert code == 2 and why in found


class TestEndings:
    @pytest.mark.parametrize(
        ("error", "code", "line"),
        [
            (KeyboardInterrupt(), 130, ""),
            (SystemExit(143), 143, ""),
            (MemoryError(), 1, "onward: out of memory\n"),
            (RecursionError("too deep"), 1, "onward: unexpected error: RecursionError: too deep; "),
            (FileNotFoundError(2, "No such file", "x"), 1, "onward: x: No such file\n"),
            (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "no"), 1, "onward: unexpected error: Uni"),
        ],
    )
    def test_an_error_of_any_kind(
        self,
        error: BaseException,
        code: int,
        line: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def fail(arguments: argparse.Namespace) -> int:
            raise error

        monkeypatch.setattr(commands.doctor, "run", fail)
        assert main(["doctor"]) == code
        out, err = capsys.readouterr()
        assert out == "" and err.startswith(line) and err.count("\n") == bool(line)

    def test_the_traceback_on_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(arguments: argparse.Namespace) -> int:
            raise AssertionError

        monkeypatch.setattr(commands.doctor, "run", fail)
        monkeypatch.setenv("ONWARD_TRACEBACK", "1")
        with pytest.raises(AssertionError):
            main(["doctor"])

    def test_running_in_a_program_leaves_its_signals_alone(self) -> None:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        assert main(["--version"]) == 0
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_every_module_of_a_command_is_in_the_parser() -> None:
    assert set(commands_of(parser())) == set(NAMES)
    assert isinstance(parser(), Parser)
