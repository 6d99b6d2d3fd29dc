"""``onward generate --jsonl``: rows, errors of rows, and runs that are resumed."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import onward
from closed_form import chain, write_pieces_tokenizer, write_script, write_table
from onward.cli import batches, main, row_files
from onward.machine.progress import ProgressBar

SCRIPT = ["<pad>", "<s>", "</s>", "one,", " two,", " three,", " fo", "ur."]
SAID = "one, two, three, four.</s>"
TEMPLATE = "{% for message in messages %}{{ message.content }}|{% endfor %}<s>"

Run = Callable[..., tuple[int, list[dict[str, Any]], str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_script(tmp_path_factory.mktemp("script"), SCRIPT)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return str(folder)


def written(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def run(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a file of these bytes. Returns the exit code, the rows of output, and stderr."""

    def run_(data: bytes, *flags: str) -> tuple[int, list[dict[str, Any]], str]:
        (tmp_path / "in.jsonl").write_bytes(data)
        code = main(["generate", "--jsonl", str(tmp_path / "in.jsonl"), "-m", model, *flags])
        out, err = capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return run_


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [row["text"] for row in rows]


class TestRows:
    def test_each_kind_of_prompt(self, run: Run) -> None:
        code, rows, err = run(
            written(
                [
                    {"prompt": "<s>", "id": "first"},
                    {"messages": [{"role": "user", "content": "one,"}], "id": 2},
                    {"token_ids": [1, 3]},
                    {"messages": "ur.", "system": "one,", "max_new_tokens": 1},
                ]
            )
        )
        assert (code, err) == (0, "")
        assert texts(rows) == [SAID, SAID, SAID.removeprefix("one,"), "one,"]
        assert [row["index"] for row in rows] == [0, 1, 2, 3]
        assert [row.get("id") for row in rows] == ["first", 2, None, None]
        assert [row["finish_reason"] for row in rows] == ["stop", "stop", "stop", "length"]
        assert rows[3]["usage"]["prompt_tokens"] == 3  # one, ur. <s>

    def test_options_of_a_row_have_priority_over_flags(self, run: Run) -> None:
        rows = written([{"prompt": "<s>"}, {"prompt": "<s>", "max_new_tokens": 2}])
        assert texts(run(rows, "-n", "1")[1]) == ["one,", "one, two,"]

    def test_a_row_has_the_output_that_it_has_alone(self, run: Run, model: str) -> None:
        many = [{"prompt": "<s>", "temperature": 1.5, "seed": i, "top_k": 3} for i in range(300)]
        code, rows, _ = run(written(many))
        assert (code, len(rows)) == (0, 300)
        with onward.LLM(model) as llm:
            alone = [llm.generate("<s>", temperature=1.5, seed=i, top_k=3).text for i in (0, 299)]
        assert [rows[0]["text"], rows[299]["text"]] == alone

    def test_several_outputs_and_logprobs_are_in_the_row(self, run: Run) -> None:
        asked = {"temperature": 1.0, "num_return_sequences": 2, "logprobs": 1}
        (row,) = run(written([{"prompt": "<s>", **asked}]))[1]
        assert [sequence["text"] for sequence in row["sequences"]] == [SAID, SAID]
        assert len(row["logprobs"]) == 6

    def test_json_writes_the_whole_result(self, run: Run, model: str) -> None:
        (row,) = run(written([{"prompt": "<s>", "id": 7}]), "--json")[1]
        with onward.LLM(model) as llm:
            expected = json.loads(json.dumps(llm.generate("<s>").to_dict()))
        assert set(row) == {"index", "id", *expected}
        assert row["token_ids"] == expected["token_ids"]

    def test_verbose_prints_the_rates(self, run: Run) -> None:
        code, _, err = run(written([{"prompt": "<s>"}] * 2), "-v")
        assert code == 0
        assert re.fullmatch(r"onward: 2 rows, [\d.]+ rows/s, \d+ tok/s\n", err)

    def test_a_failed_row_is_an_error_and_the_others_continue(self, run: Run) -> None:
        data = written(
            [
                {"prompt": "<s>"},
                {"prompt": "<s>", "temprature": 1, "id": "x"},
                {"prompt": 5},
                {"text": "<s>"},
                {"prompt": "<s>", "token_ids": [1]},
                [1],
                {"prompt": "<s>", "temperature": -1},
                {"token_ids": [99]},
                {"token_ids": []},
                {"messages": [{"content": "no role"}]},
                {"prompt": "<s>", "logits_processor": "x"},
            ]
        )
        data += b'\n  \nnot json\n{"prompt": "\xff"}\n' + b"[" * 100_000 + b'\n{"prompt": "<s>"}'
        code, rows, err = run(data)
        assert code == 1
        assert err == "onward: 13 of 15 rows failed, each has its error in the output\n"
        assert [row["index"] for row in rows] == list(range(15))
        assert rows[0]["text"] == rows[14]["text"] == SAID
        said = [row["error"]["message"] for row in rows[1:14]]
        assert rows[1]["id"] == "x"
        assert said[0] == "temprature: no such option, did you mean temperature?"
        assert said[1] == "prompt: is 5, expected text"
        assert said[2] == "row: has text, expected one of prompt, messages, token_ids"
        assert (
            said[3] == "row: has prompt and token_ids, expected one of prompt, messages, token_ids"
        )
        assert said[4] == "row: is [1], expected an object"
        assert said[5].startswith("temperature: is -1, expected a finite number")
        assert "99" in said[6] and "empty" in said[7] and "role" in said[8]
        assert said[9].startswith("logits_processor: ")
        assert said[10].startswith("row: is not valid JSON: ")
        assert said[11] == "row: byte 12 is not UTF-8, expected text"
        assert said[12].startswith("row: is not valid JSON: ")

    def test_a_row_that_is_too_long_is_skipped(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(row_files.RowReader, "LIMIT", 1 << 20)
        monkeypatch.setattr(row_files, "_PIECE", 1000)
        long = [{"prompt": "x" * (1 << 20)}, {"prompt": "<s>"}, {"prompt": "<s>" * (1 << 19)}]
        code, rows, _ = run(written(long))
        assert code == 1
        assert [row.get("error", {}).get("message") for row in rows] == [
            "row: is longer than 1 MiB",
            None,
            "row: is longer than 1 MiB",
        ]

    def test_an_empty_file_has_no_rows(self, run: Run) -> None:
        assert run(b"") == (0, [], "")


FIVE = [{"prompt": "<s>", "max_new_tokens": n, "id": f"row {n}"} for n in range(1, 6)]


class TestResuming:
    def test_a_run_continues_after_a_half_written_row(self, run: Run, tmp_path: Path) -> None:
        out = tmp_path / "out.jsonl"
        assert run(written(FIVE), "-o", str(out)) == (0, [], "")
        whole = out.read_bytes()
        lines = whole.splitlines(keepends=True)
        for kept in (b"", lines[0], b"".join(lines[:3]) + lines[3][:20], whole[:-1]):
            out.write_bytes(kept)
            assert run(written(FIVE), "-o", str(out), "--resume") == (0, [], "")
            assert out.read_bytes() == whole

    def test_rows_that_are_done_are_not_computed_again(self, run: Run, tmp_path: Path) -> None:
        out = tmp_path / "out.jsonl"
        kept = b'{"index": 1, "id": "row 2", "text": "kept"}\n'
        out.write_bytes(kept)
        assert run(written(FIVE), "-o", str(out), "--resume")[0] == 0
        rows = [json.loads(line) for line in out.read_bytes().splitlines()]
        assert [row["index"] for row in rows] == [1, 0, 2, 3, 4]
        assert rows[0]["text"] == "kept"

    def test_an_earlier_failure_still_counts(self, run: Run, tmp_path: Path) -> None:
        out = tmp_path / "out.jsonl"
        out.write_bytes(b'{"index": 0, "id": "row 1", "error": {}}\n')
        code, _, err = run(written(FIVE), "-o", str(out), "--resume")
        assert (code, err) == (1, "onward: 1 of 5 rows failed, each has its error in the output\n")

    @pytest.mark.parametrize(
        ("content", "flags", "said"),
        [
            (b"precious\n", [], "output: {out} exists, expected a new name, or --resume"),
            (b"precious\n", ["--resume"], "resume: line 1 of {out} is not a row of onward"),
            (b'{"index": true}\n', ["--resume"], "resume: line 1 of {out} is not a row"),
            (b'{"index": 0, "id": "other"}\n', ["--resume"], "resume: row 0 of the output has"),
        ],
    )
    def test_another_file_is_not_changed(
        self, run: Run, tmp_path: Path, content: bytes, flags: list[str], said: str
    ) -> None:
        out = tmp_path / "out.jsonl"
        out.write_bytes(content)
        code, _, err = run(written(FIVE), "-o", str(out), *flags)
        assert code == 2
        assert err.startswith("onward: " + said.format(out=out)) and err.count("\n") == 1
        assert out.read_bytes() == content

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (["<s>", "--jsonl", "x"], "prompt: is given together with jsonl"),
            (["--jsonl", "x", "--resume"], "resume: is given without an output"),
            (["<s>", "--resume"], "resume: is given without jsonl"),
            (["--jsonl", "/does/not/exist"], "jsonl: /does/not/exist: cannot read: No such file"),
            (["--jsonl", "x", "-o", "/does/not/exist"], "output: /does/not/exist: there is no"),
        ],
    )
    def test_contradicting_flags_are_refused(
        self, model: str, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
    ) -> None:
        assert main(["generate", "-m", model, *flags]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith(f"onward: {said}") and err.count("\n") == 1


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("endless")
    write_table(folder, chain(4, {1: 3}), max_position_embeddings=200_000)
    write_pieces_tokenizer(folder, ["<pad>", "<s>", "</s>", " tick"])
    return str(folder)


class TestAsAProcess:
    def start(
        self, model: str, environment: Mapping[str, str], *flags: str
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "onward", "generate", "-m", model, "--jsonl", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )

    def test_a_pipe_gets_each_row_as_soon_as_it_is_finished(
        self, model: str, child_environment: dict[str, str]
    ) -> None:
        with self.start(model, child_environment, "-") as child:
            assert child.stdin is not None and child.stdout is not None
            for n in (1, 2):
                child.stdin.write(written([{"prompt": "<s>", "max_new_tokens": n}]))
                child.stdin.flush()
                row = json.loads(child.stdout.readline())
                assert (row["index"], row["usage"]["completion_tokens"]) == (n - 1, n)
            child.stdin.close()
            assert child.wait(30) == 0

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_an_interrupted_run_keeps_whole_rows(
        self,
        endless: str,
        tmp_path: Path,
        child_environment: dict[str, str],
        number: signal.Signals,
        code: int,
    ) -> None:
        rows = [{"prompt": "<s>", "max_new_tokens": 3}] * 2
        rows += [{"prompt": "<s>", "max_new_tokens": 150_000}] * 80
        (tmp_path / "in.jsonl").write_bytes(written(rows))
        out = tmp_path / "out.jsonl"
        flags = [str(tmp_path / "in.jsonl"), "-o", str(out)]
        with self.start(endless, child_environment, *flags) as child:
            deadline = time.monotonic() + 30
            while not (out.exists() and out.read_bytes().count(b"\n") == 2):
                assert time.monotonic() < deadline and child.poll() is None
                time.sleep(0.02)
            sent = time.monotonic()
            child.send_signal(number)
            _, err = child.communicate(timeout=30)
            assert time.monotonic() - sent < 5
        assert child.returncode == code
        assert err == b"onward: stopped after 2 rows; the same command with --resume continues\n"
        assert [json.loads(line)["text"] for line in out.read_bytes().splitlines()] == [
            " tick tick tick"
        ] * 2


class TestBar:
    @pytest.fixture
    def drawn(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
        """The bar 30 seconds after the start."""

        def draw(done: int, total: int, note: str, columns: int = 80) -> str:
            screen = io.StringIO()
            monkeypatch.setattr(screen, "isatty", lambda: True)
            monkeypatch.setattr(sys, "stderr", screen)
            monkeypatch.setenv("COLUMNS", str(columns))
            clock = iter([0.0, 30.0])
            monkeypatch.setattr("onward.machine.progress.time.monotonic", lambda: next(clock))
            ProgressBar("rows")(done, total, note)
            return screen.getvalue().removeprefix("\r").removesuffix("\x1b[K")

        return draw

    def test_rate_and_time_left(self, drawn: Callable[..., str]) -> None:
        """After 30 of 120 bytes and 30 seconds, 90 seconds are left."""
        bar = "#" * 10 + "." * 30
        assert drawn(30, 120, "7 rows", 100) == f"rows [{bar}]  25%  7 rows, 1:30 left"
        assert drawn(1, 1000, "7 rows", 100).endswith("  0%  7 rows, 8 h 19 min left")

    def test_the_bar_without_a_known_total(self, drawn: Callable[..., str]) -> None:
        assert drawn(-1, 0, "7 rows") == "7 rows"

    def test_the_bar_on_a_narrow_terminal(self, drawn: Callable[..., str]) -> None:
        assert len(drawn(30, 120, "7 rows", 20)) == 19


def test_rows_in_flight_are_bounded(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is read only as far as the limit of rows that wait to be written."""
    monkeypatch.setattr(batches, "UNWRITTEN", 4)
    monkeypatch.setattr(batches, "IN_FLIGHT", 2)
    most, running, read = 0, 0, 0
    row, lines = batches._Batch._row, batches._Batch._lines

    async def counted(self: Any, *arguments: Any) -> Any:
        nonlocal most, running
        running += 1
        most = max(most, running)
        try:
            return await row(self, *arguments)
        finally:
            running -= 1

    async def counted_lines(self: Any) -> Any:
        nonlocal read
        async for line in lines(self):
            read += 1
            assert read - self.tally.rows <= 4 + 3  # the queue, one in each hand, one on its way
            yield line

    monkeypatch.setattr(batches._Batch, "_row", counted)
    monkeypatch.setattr(batches._Batch, "_lines", counted_lines)
    (tmp_path / "in.jsonl").write_bytes(written([{"prompt": "<s>"}] * 40))
    assert main(["generate", "--jsonl", str(tmp_path / "in.jsonl"), "-m", model]) == 0
    assert read == 40 and 2 <= most <= 4 + 3


def test_a_full_disk_is_one_line(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    (tmp_path / "in.jsonl").write_bytes(written([{"prompt": "<s>"}] * 3))
    arguments = ["--jsonl", str(tmp_path / "in.jsonl"), "-m", model, "-o", "/dev/full"]
    assert main(["generate", *arguments]) == 1
    assert capsys.readouterr().err == ("onward: /dev/full: cannot write: No space left on device\n")
