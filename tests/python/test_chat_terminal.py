"""``onward chat`` on a pseudo-terminal: keys, pastes, interrupts, sizes, history and signals."""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.alphabet import ALPHABET, messages_in, write_alphabet
from builders.terminal import Terminal

Open = Callable[..., Terminal]
PASTE = "def f(x):\n\tif x:\n        return 1\n\n    return 2"
WITHOUT_EXTRAS = (
    "import sys; sys.modules.update(prompt_toolkit=None, rich=None); "
    "from onward.cli import main; sys.exit(main())"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_alphabet(tmp_path_factory.mktemp("alphabet") / "m"))


@pytest.fixture
def opened(model: str, tmp_path: Path, child_environment: dict[str, str]) -> Iterator[Open]:
    """Opens a chat with a state folder and a session file below tmp_path."""
    terminals: list[Terminal] = []

    def open_(*flags: str, source: str | None = None) -> Terminal:
        environment = {**child_environment, "XDG_STATE_HOME": str(tmp_path / "state")}
        environment.pop("ONWARD_HISTORY", None)
        words = ["chat", "--model", model, "--session", str(tmp_path / "talk"), *flags]
        terminals.append(Terminal(words, environment, source=source))
        terminals[-1].expect("/help shows the commands")
        return terminals[-1]

    yield open_
    for terminal in terminals:
        terminal.close()


def questions(tmp_path: Path) -> list[str]:
    return [m["content"] for m in messages_in(tmp_path / "talk") if m["role"] == "user"]


def test_typed_and_pasted_messages(opened: Open, tmp_path: Path) -> None:
    terminal = opened()
    assert terminal.ask("wrld\x1b[D\x1b[D\x1b[Do\x01hello \x05!?\x7f") == [ALPHABET]
    terminal.prompt()
    terminal.paste(PASTE)
    terminal.expect("return 2")
    assert ALPHABET in terminal.go_on(" what?")
    terminal.ask("one\\\rtwo\x1b\rthree")
    terminal.ask('"""\r/reset is text here\r"""')
    assert terminal.ask("//reset") == [ALPHABET]
    assert terminal.ask("/etc/passwd is what?") == [ALPHABET]
    reported = "".join(terminal.ask("/rest"))
    assert "no such command, did you mean /reset?" in reported and reported.endswith("//rest")
    terminal.prompt()
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    assert questions(tmp_path) == [
        "hello world!",
        PASTE + " what?",
        "one\ntwo\nthree",
        "/reset is text here",
        "/reset",
        "/etc/passwd is what?",
    ]


def test_every_command(opened: Open, tmp_path: Path) -> None:
    terminal = opened("--seed", "3")
    assert "/set [NAME VALUE]   show the options" in "\n".join(terminal.ask("/help"))
    assert terminal.ask("/s\t\t")[0].startswith("onward: /s: no such command")
    assert "message is replaced" in terminal.ask("/system brief")[0]
    assert terminal.ask("/system")[0] == "(system: brief)"
    assert "(seed 3  (set))" in terminal.ask("/set seed 3")
    dice = [terminal.ask("dice"), *(terminal.ask("/retry") for _ in range(6))]
    assert len({line for (line,) in dice}) > 1
    assert terminal.ask("/set max-new-tokens 5")[-1] == "(max-new-tokens 5  (set))"
    cut = "(cut at 5 tokens; /more continues, /set max-new-tokens N allows more)"
    assert terminal.ask("letters") == ["abcde", cut]
    assert terminal.ask("/more") == ["fghij", cut]
    assert terminal.ask("/unset max-new-tokens") == ["(max-new-tokens 256  (default))"]
    assert terminal.ask("/more") == [ALPHABET[10:]]
    terminal.prompt()
    terminal.type("/edit\r")
    terminal.expect("> /edit letters")
    assert terminal.go_on(" again") == [ALPHABET]
    assert terminal.ask(f"/save {tmp_path / 'b'}")[0].startswith("(saved 5 messages, ")
    assert terminal.ask("/unset system") == ["(the system message is removed)"]
    assert terminal.ask("/rewind") == ["(2 messages are left)"]
    assert terminal.ask("/reset") == ["(a new conversation)"]
    assert terminal.ask(f"/load {tmp_path / 'b'}")[0].startswith("(loaded 2 messages, ")
    terminal.prompt()
    terminal.type("/quit\r")
    assert terminal.exit_code() == 0
    question, answer = messages_in(tmp_path / "b")  # the conversation's file since /save
    assert question == {"role": "user", "content": "dice"} and answer["content"] == dice[-1][0]


def test_an_interrupt_and_another_width_during_an_answer(opened: Open, tmp_path: Path) -> None:
    terminal = opened("--max-new-tokens", "190000", "--temperature", "0")
    terminal.prompt()
    terminal.type("run\r")
    terminal.expect("UVW UVW")
    terminal.resize(50, 100)
    terminal.wait(lambda: any(len(line) in range(40, 51) for line in terminal.lines), "new width")
    terminal.type("\x03")
    terminal.expect("(stopped; /more continues)")
    terminal.prompt()
    terminal.type("\x03")
    terminal.expect("(Ctrl-D leaves)")
    assert terminal.ask("letters") == [ALPHABET]
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    _, said, _, _ = messages_in(tmp_path / "talk")
    assert said["content"].startswith("UVW UVW UVW")


def test_history_is_saved_for_its_owner_only(opened: Open, tmp_path: Path) -> None:
    terminal = opened()
    terminal.ask("first\\\rline")
    terminal.ask("second")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    file = tmp_path / "state" / "onward" / "chat_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    terminal = opened()
    terminal.ask("\x1b[A\x1b[A")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    assert questions(tmp_path) == ["first\nline", "second", "first\nline"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_the_conversation(opened: Open, tmp_path: Path, number: int) -> None:
    terminal = opened("--max-new-tokens", "190000", "--temperature", "0")
    terminal.ask("letters")
    assert questions(tmp_path) == ["letters"], "saved after each answer"
    terminal.type("run\r")
    terminal.expect("UVW UVW")
    os.kill(terminal.child.pid, number)
    assert terminal.exit_code() == 128 + number
    assert questions(tmp_path) == ["letters", "run"]
    assert "Traceback" not in "\n".join(terminal.lines)


def test_a_terminal_that_is_closed_at_the_prompt(opened: Open, tmp_path: Path) -> None:
    terminal = opened()
    terminal.ask("letters")
    terminal.hang_up()
    assert terminal.exit_code() == 128 + signal.SIGHUP
    assert questions(tmp_path) == ["letters"]


def test_without_the_extra(opened: Open, tmp_path: Path) -> None:
    terminal = opened("--no-history", source=WITHOUT_EXTRAS)
    terminal.expect(" brings messages of several lines and Markdown)")
    assert "pip install 'prompt_toolkit>=3.0' 'rich>=13'" in "".join(terminal.lines)
    assert terminal.ask("hllo\x1b[D\x1b[D\x1b[De") == [ALPHABET]
    terminal.ask('"""\rtwo\rlines"""')
    terminal.ask("one\\\rtwo")
    terminal.paste(PASTE)
    terminal.expect("return 2")
    terminal.go_on("?")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    assert questions(tmp_path) == ["hello", "two\nlines", "one\ntwo", PASTE + "?"]
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_the_default_model(tmp_path: Path, child_environment: dict[str, str]) -> None:
    """A question that leads to repetition, an interrupt and another width, then the file."""
    words = [
        "chat",
        "--session",
        str(tmp_path / "talk"),
        "--no-history",
        "--seed",
        "5",
        "-n",
        "512",
    ]
    terminal = Terminal(words, child_environment)
    try:
        terminal.expect("/help shows the commands", seconds=120)
        terminal.prompt()
        terminal.type("Tell me the history of Rome in detail.\r")
        terminal.expect("Rome", seconds=60)
        terminal.wait(lambda: len(terminal.lines) > 5, "some rows of the answer", seconds=60)
        terminal.resize(60, 100)
        terminal.wait(lambda: len(terminal.lines) > 9, "more rows of the answer", seconds=60)
        terminal.type("\x03")
        terminal.expect("(stopped; /more continues)")
        assert len(terminal.ask("/more", seconds=120)) > 1
        terminal.ask("Write a long list of fruits.", seconds=120)
        terminal.type("\x04")
        assert terminal.exit_code() == 0
    finally:
        terminal.close()
    rome, _, fruits = [m["content"] for m in messages_in(tmp_path / "talk")][1:]
    assert "Rome" in rome
    assert re.search(r"(.{1,80}?)\1{99}", fruits, re.DOTALL) is None, "a loop"
