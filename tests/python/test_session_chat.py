"""onward chat with sessions: the file that it continues, and the commands that remove messages."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.talking import write_talking
from onward import LLM
from onward.cli import main


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_talking(tmp_path_factory.mktemp("talking") / "m"))


@pytest.fixture
def chat(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[dict[str, Any]], str]]:
    """Exit code, answers and stderr of a chat over a pipe."""

    def run(lines: str, *flags: object) -> tuple[int, list[dict[str, Any]], str]:
        data = io.BytesIO(lines.encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data, encoding="utf-8"))
        few = ["--max-new-tokens", "12", "--json", "--dtype", "f32"]
        code = main(["chat", "--model", model, *few, *map(str, flags)])
        out, err = capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return run


def begins_with(answer: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether a prompt begins with another and its answer."""
    ids: list[int] = before["prompt_token_ids"] + before["token_ids"]
    found: list[int] = answer["prompt_token_ids"]
    return found[: len(ids)] == ids


def test_a_chat_continues_from_the_file_and_saves_there(chat: Any, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    code, first, err = chat("hello\nand?\n", "--session", path, "--system", "s")
    assert (code, len(first)) == (0, 2) and begins_with(first[1], first[0])
    assert re.fullmatch(rf"\(saved 5 messages, \d+ tokens: {re.escape(str(path))}\)\n", err)
    code, second, err = chat("more\n", "--session", path, "-v")
    assert code == 0 and begins_with(second[0], first[1])
    known = len(first[1]["prompt_token_ids"] + first[1]["token_ids"])
    assert second[0]["usage"]["cached_tokens"] == known
    assert f" tokens, {known} reused, first token after" in err
    assert err.count("(loaded 5 messages") == 1 and err.count("(saved 7 messages") == 1


def test_one_message(chat: Any, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    for i in (1, 2):
        code, answers, err = chat("", "hello", "--session", path)
        assert (code, len(answers)) == (0, 1)
        assert f"(saved {2 * i} messages" in err


def test_an_unused_session_writes_no_file(chat: Any, tmp_path: Path) -> None:
    assert chat("", "--session", tmp_path / "talk") == (0, [], "")
    assert list(tmp_path.iterdir()) == []


def test_rewind_and_edit(chat: Any, tmp_path: Path) -> None:
    lines = "hello\nand?\nwhy?\n/rewind 2\nno\n/edit yes\n/rewind\n"
    code, answers, err = chat(lines, "--session", tmp_path / "talk")
    assert code == 0
    hello, _, _, no, yes = answers
    assert begins_with(no, hello) and begins_with(yes, hello)
    text = [bytes(a["prompt_token_ids"][-20:]).decode("latin-1") for a in (no, yes)]
    assert text[0].endswith("<user>no\n<assistant>") and text[1].endswith("yes\n<assistant>")
    assert err.splitlines()[:2] == ["(2 messages are left)", "(2 messages are left)"]
    assert "(saved 2 messages" in err


def test_save_and_load(chat: Any, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b c"
    code, _, err = chat(f"one\n/save {a}\ntwo\n/save {b}\n/reset\nthree\n/load {a}\nfour\n/save\n")
    assert code == 0
    reported = [re.sub(r"\d+ tokens", "N tokens", line) for line in err.splitlines()]
    assert reported == [
        f"(saved 2 messages, N tokens: {a})",
        f"(saved 4 messages, N tokens: {b})",
        "(a new conversation)",
        f"(loaded 2 messages, N tokens: {a})",
        f"(saved 4 messages, N tokens: {a})",
    ]


@pytest.mark.parametrize(
    ("lines", "code", "reported"),
    [
        ("/save\n", 2, "/save: has no file, expected one"),
        ("/load\n", 2, "/load: is given nothing, expected /load FILE"),
        ("/load absent\n", 1, "absent: cannot open"),
        ("/edit\n", 2, "/edit: is given nothing, expected /edit TEXT"),
        ("/edit x\n", 2, "/edit: there is no question yet"),
        ("/rewind\n", 2, "rewind: the conversation has no exchange"),
        ("hi\n/rewind x\n", 2, "/rewind: is given 'x', expected a number"),
        ("hi\n/rewind 0\n", 2, "n: is 0, expected"),
        ("hi\n/rewind 3\n", 2, "n: is 3, expected"),
    ],
)
def test_a_wrong_command_in_a_pipe_ends_it(chat: Any, lines: str, code: int, reported: str) -> None:
    found, answers, err = chat(lines)
    assert (found, len(answers)) == (code, int(lines.startswith("hi")))
    assert reported in err and err.count("\n") == 1


def test_messages_before_an_error_are_saved(chat: Any, tmp_path: Path) -> None:
    code, _, err = chat("hi\n/load absent\n", "--session", tmp_path / "talk")
    assert code == 1 and "(saved 2 messages" in err and "absent: cannot open" in err


def test_impossible_flags_are_refused(chat: Any, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    assert chat("hi\n", "--session", path)[0] == 0
    code, answers, err = chat("hi\n", "--session", path, "--system", "s")
    assert (code, answers) == (2, []) and "--system: is given with" in err
    code, answers, err = chat("hi\n", "--session", tmp_path / "no" / "talk")
    assert (code, answers) == (2, []) and "--session: " in err and "is not a folder" in err
    (tmp_path / "notes").write_text("what I know")
    code, answers, err = chat("hi\n", "--session", tmp_path / "notes")
    assert (code, answers) == (1, []) and "notes: " in err
    assert (tmp_path / "notes").read_text() == "what I know"


def test_the_file_is_a_session_file(chat: Any, model: str, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    _, (answer,), _ = chat("hello\n", "--session", path)
    with LLM(model, dtype="f32") as llm:
        session = llm.session()
        session.load(path)
        assert session.messages[0] == {"role": "user", "content": "hello"}
        assert list(session.token_ids) == answer["prompt_token_ids"] + answer["token_ids"]
