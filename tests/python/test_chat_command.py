"""``onward chat`` without a terminal: commands, options, sampling, stdin, and saved
conversations.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.alphabet import ALPHABET, messages_in, write_alphabet
from closed_form import write_byte_script, write_generation_config
from onward import LLM
from onward.cli import main
from onward.cli.chat import sampling
from onward.cli.chat.commands import COMMANDS, command_of, completions, unescaped
from onward.cli.chat.history import ENTRIES, History, history_path
from onward.errors import InvalidArgument, SessionError

Chat = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_alphabet(tmp_path_factory.mktemp("alphabet") / "m"))


@pytest.fixture
def chat(
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Chat:
    """Exit code, stdout and stderr of a chat whose stdin is a file."""

    def run(said: str, *words: object, of: object = model) -> tuple[int, str, str]:
        (tmp_path / "stdin").write_text(said)
        with open(tmp_path / "stdin", encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            code = main(["chat", "--model", str(of), *map(str, words)])
        return code, *capsys.readouterr()

    return run


class TestCommands:
    def test_messages_are_lines_or_fenced_texts(self, chat: Chat, tmp_path: Path) -> None:
        said = 'a\n"""b\n/reset\n\nc"""\n//d\n/e/f\n/* g\n'
        assert chat(said, "--session", tmp_path / "s")[:2] == (0, f"{ALPHABET}\n" * 5)
        asked = [m["content"] for m in messages_in(tmp_path / "s") if m["role"] == "user"]
        assert asked == ["a", "b\n/reset\n\nc", "/d", "/e/f", "/* g"]

    def test_system_is_replaced_in_place(self, chat: Chat, tmp_path: Path) -> None:
        said = "a\n/system brief\n/system\nb\n/system new\n"
        code, _, err = chat(said, "--session", tmp_path / "s", "--system", "first")
        assert code == 0 and "(system: brief)" in err
        found = [m["content"] for m in messages_in(tmp_path / "s")]
        assert found == ["new", "a", ALPHABET, "b", ALPHABET]

    def test_reset_keeps_the_system_message_that_was_set(self, chat: Chat, tmp_path: Path) -> None:
        said = "a\n/system brief\n/reset\nb\n"
        assert chat(said, "--session", tmp_path / "s")[0] == 0
        assert [m["content"] for m in messages_in(tmp_path / "s")] == ["brief", "b", ALPHABET]

    def test_retry_increases_a_seed_by_one(self, chat: Chat, model: str) -> None:
        flags = ["--seed", "5", "--json"]
        _, out, _ = chat("dice\n/retry\n/retry\ndice\n", *flags)
        answers = [json.loads(line) for line in out.splitlines()]
        assert [answer["options"]["seed"] for answer in answers] == [5, 6, 7, 5]
        assert answers[1]["prompt_token_ids"] == answers[0]["prompt_token_ids"]
        with LLM(model) as llm:
            for answer in answers[:3]:
                seed = answer["options"]["seed"]
                said = llm.chat("dice", seed=seed, **sampling.CHAT_SAMPLING)
                assert said.text == answer["text"]

    def test_more_continues_a_cut_answer(self, chat: Chat, tmp_path: Path) -> None:
        said = "a\n/more\n/set max-new-tokens 100\n/more\nb\n"
        code, out, err = chat(said, "--session", tmp_path / "s", "-n", "4")
        assert (code, out) == (0, f"abcd\nefgh\n{ALPHABET[8:]}\n{ALPHABET}\n")
        assert err.count("(cut at 4 tokens; --max-new-tokens N allows more)\n") == 2
        found = [m["content"] for m in messages_in(tmp_path / "s")]
        assert found == ["a", ALPHABET, "b", ALPHABET]

    @pytest.mark.parametrize(
        ("line", "reported"),
        [
            ("/set temprature 1", "/set: temprature: no such option, did you mean temperature?"),
            ("/set temperature x", "/set: temperature: is 'x', expected a number"),
            ("/set temperature -1", "temperature: is -1.0, expected"),
            ("/set ignore-eos maybe", "/set: ignore-eos: is 'maybe', expected on or off"),
            ("/set best-of 3", "best_of: is 3, expected 1 in a chat"),
            ('/set stop "a', "/set: stop"),
            ("/unset top-k", "/unset: top-k: was not set"),
            ("/unset nonsense", "nonsense: no such option"),
            ("/retry", "/retry: there is no question yet"),
            ("/more", "/more: there is no answer to continue"),
            ("/reset all", "/reset: is given 'all', expected nothing; to send this as text"),
            ("/retrie", "/retrie: no such command, did you mean /retry?"),
            ("/xyzzy is what?", "to send this as text, begin with //: //xyzzy is what?"),
        ],
    )
    def test_a_wrong_command_names_the_right_one(
        self, chat: Chat, line: str, reported: str
    ) -> None:
        code, out, err = chat(f"{line}\n")
        if reported == "/set: stop":  # a text without quotes on both sides is unchanged
            assert (code, out) == (0, "") and '(stop "\\"a"  (set))' in err
            return
        assert (code, out) == (2, "") and reported in err and err.count("\n") == 1

    def test_set_shows_the_value_and_its_origin(self, chat: Chat) -> None:
        said = '/set top_k=5\n/set\n/set stop "c\\n"\n/set cache off\n/set cache\n/unset top-k\n'
        code, _, err = chat(said)
        assert code == 0
        for line in (
            "(top-k 5  (set))",
            "temperature 0.7  (default of chat)",
            "max-new-tokens 256  (default)",
            '(stop "c\\n"  (set))',
            "(cache off  (set))",
            "(top-k 0  (default))",
        ):
            assert f"{line}\n" in err

    def test_a_wrong_setting_changes_nothing(self, chat: Chat, model: str) -> None:
        from onward.cli.chat.conversation import Conversation
        from onward.cli.chat.screen import Screen

        screen = Screen(as_json=False, plain=True, verbose=False)
        with LLM(model) as llm:
            conversation = Conversation(llm, {"max_new_tokens": 3}, screen)
            for wrong in ({"top_p": 2.0}, {"num_return_sequences": 2}, {"diversity_penalty": 1.0}):
                with pytest.raises(InvalidArgument):
                    conversation.choose({"max_new_tokens": 9, **wrong})
                assert conversation.options == {"max_new_tokens": 3}

    def test_help_and_completion_come_from_the_table(self, chat: Chat) -> None:
        _, _, err = chat("/help\n")
        for command in COMMANDS.values():
            assert f"{command.name} {command.arguments}".rstrip() in err and command.help in err
        assert {word for word, _, _ in completions("/")} == set(COMMANDS)
        assert [(word, start) for word, start, _ in completions("/ret")] == [("/retry", -4)]
        assert ("top-k", -3, "") in completions("/set top")
        assert list(completions("hello /re")) == []

    @pytest.mark.parametrize(
        ("text", "command"),
        [
            ("/help", "/help"),
            ("  /help me", "/help"),
            *((text, None) for text in ("/etc/hosts", "//help", "/", "/* a */", "a /help", "")),
        ],
    )
    def test_only_words_with_one_slash_are_commands(self, text: str, command: str | None) -> None:
        assert command_of(text) == command

    def test_two_slashes_escape_a_command(self) -> None:
        assert [*map(unescaped, ("//a", " //a", "///a", "/a/b", "a//b"))] == [
            *("/a", " /a", "//a", "/a/b", "a//b")
        ]


class TestSampling:
    def test_a_model_without_settings_is_sampled(self, chat: Chat) -> None:
        _, out, _ = chat("", "dice", "--json")
        options = json.loads(out)["options"]
        assert {name: options[name] for name in sampling.CHAT_SAMPLING} == sampling.CHAT_SAMPLING

    @pytest.mark.parametrize(
        ("fields", "flags", "temperature", "top_p"),
        [
            ({"do_sample": True, "temperature": 0.4}, [], 0.4, 1.0),
            ({"do_sample": False}, [], 0.0, 1.0),
            ({"eos_token_id": 0}, [], 0.7, 0.9),
            ({"do_sample": True, "top_p": 0.5}, ["--temperature", "0.2"], 0.2, 0.5),
            ({}, ["--temperature", "0"], 0.0, 1.0),
            ({}, ["--top-p", "0.3"], 0.7, 0.3),
            ({}, ["--num-beams", "2"], 0.0, 1.0),
        ],
    )
    def test_flags_then_the_model_then_the_default(
        self,
        chat: Chat,
        tmp_path: Path,
        fields: dict[str, Any],
        flags: list[str],
        temperature: float,
        top_p: float,
    ) -> None:
        folder = write_alphabet(tmp_path / "m")
        write_generation_config(folder, **fields)
        _, out, _ = chat("", "letters", "--json", *flags, of=folder)
        options = json.loads(out)["options"]
        assert (options["temperature"], options["top_p"]) == (temperature, top_p)
        penalties = [options["repetition_penalty"], options["frequency_penalty"]]
        if temperature == 0 or fields.get("do_sample"):
            assert penalties == [1.0, 0.0]

    def test_an_answer_that_repeats_itself_is_stopped(self, chat: Chat, tmp_path: Path) -> None:
        """Four tokens repeat without end. The first check after 65 tokens finds 64 repeated
        ones."""
        code, out, err = chat("run\n/more\n", "--session", tmp_path / "s", "-n", "200")
        said, more = out.splitlines()
        assert code == 0 and 64 <= len(said) < 96 and set(said.split()[:-1]) == {"UVW"}
        assert "(stopped: the answer repeats itself)\n(cut at 200 tokens" in err
        assert len(more) == 200
        _, out, err = chat("run\n", "-n", "200", "--temperature", "0")
        assert len(out.strip("\n")) == 200 and "repeats itself" not in err

    @pytest.mark.parametrize(
        ("ids", "repeats"),
        [
            ([7] * 64, True),
            ([*range(100), *[7] * 60], False),
            ([*range(16)] * 4, True),
            ([*range(16)] * 3 + [0] * 16, False),
            ([*range(64)] * 4, True),
            ([*range(64)] * 3, False),
            ([*range(65)] * 8, False),
            ([*range(64)], False),
        ],
    )
    def test_the_repetitions_that_end_an_answer(self, ids: list[int], repeats: bool) -> None:
        assert sampling._repeats(np.asarray(ids, np.int32)) is repeats

    def test_the_library_is_greedy_by_default(self, model: str) -> None:
        with LLM(model) as llm:
            assert llm.chat("dice").options.temperature == 0
            assert llm.session().send("dice").options.temperature == 0


class TestStdin:
    """In child processes, whose stdin is a real one."""

    @pytest.fixture
    def child(self, model: str, child_environment: dict[str, str]) -> Callable[..., Any]:
        def run(*words: str, **stdin: Any) -> tuple[int, str, str]:
            done = subprocess.run(
                [sys.executable, "-m", "onward", "chat", "--model", model, "--json", *words],
                capture_output=True,
                text=True,
                env=child_environment,
                timeout=60,
                check=False,
                **stdin,
            )
            return done.returncode, done.stdout, done.stderr

        return run

    def test_piped_text_is_added_to_the_message(self, child: Any) -> None:
        code, out, _ = child("what is this?", input="one\ntwo\n")
        asked = bytes(json.loads(out)["prompt_token_ids"]).decode()
        assert code == 0 and asked.startswith("<user>what is this?\n\none\ntwo\n<assistant>")

    def test_all_of_stdin_is_the_message(self, child: Any) -> None:
        code, out, _ = child("-", input="one\n\n/reset\n")
        asked = bytes(json.loads(out)["prompt_token_ids"]).decode()
        assert code == 0 and asked.startswith("<user>one\n\n/reset\n<assistant>")

    def test_stdin_without_text_does_not_change_the_message(self, child: Any) -> None:
        code, out, err = child("one", stdin=subprocess.DEVNULL)
        asked = bytes(json.loads(out)["prompt_token_ids"]).decode()
        assert (code, err) == (0, "") and asked.startswith("<user>one\n<assistant>")


class TestSaving:
    def test_each_answer_is_in_the_file_before_the_next(
        self, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from onward.cli.chat import loop

        path, seen = tmp_path / "s", []
        take = loop._take

        def watched(*arguments: Any) -> None:
            take(*arguments)
            seen.append(len(messages_in(path)))

        monkeypatch.setattr(loop, "_take", watched)
        assert chat("a\nb\n/rewind\n", "--session", path)[0] == 0
        assert seen == [2, 4, 2]

    def test_a_file_without_keys_and_values_loads_without_a_warning(
        self, model: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
    ) -> None:
        with LLM(model) as llm:
            session = llm.session()
            session.send("a")
            session.save(tmp_path / "whole")
            session.save(tmp_path / "light", cache=False)
            again = llm.session()
            again.load(tmp_path / "light")
            assert again.messages == session.messages and again.token_ids == session.token_ids
            assert again.send("b").text == ALPHABET
        assert (tmp_path / "light").stat().st_size < (tmp_path / "whole").stat().st_size
        assert not recwarn.list

    def test_an_error_while_saving_is_reported_and_the_file_stays(
        self, chat: Chat, tmp_path: Path
    ) -> None:
        path = tmp_path / "s"
        chat("a\n", "--session", path)
        before = path.read_bytes()
        folder = tmp_path / "gone"
        folder.mkdir()
        code, out, err = chat(f"/save {folder / 'x' / 'y'}\n", "--session", path)
        assert (code, out) == (1, "") and "cannot write: there is no folder" in err
        assert path.read_bytes() == before


class TestHistory:
    def test_entries_are_saved_for_the_owner_only(self, tmp_path: Path) -> None:
        path = tmp_path / "state" / "onward" / "chat_history"
        for text in ("one", "two\nlines", "two\nlines", "  ", "\ud800"):
            History(path).add(text)
        assert History(path).entries == ["one", "two\nlines", "\ud800"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_the_history_has_a_limit(self, tmp_path: Path) -> None:
        path = tmp_path / "h"
        path.write_text("".join(f'"{i}"\n' for i in range(2 * ENTRIES + 1)))
        assert History(path).entries == [str(i) for i in range(ENTRIES + 1, 2 * ENTRIES + 1)]
        assert len(path.read_text().splitlines()) == ENTRIES
        assert os.listdir(tmp_path) == ["h"]

    def test_damaged_lines_are_skipped(self, tmp_path: Path) -> None:
        (tmp_path / "h").write_bytes(b'"a"\n\xff\n{}\n[' + b"[" * 100_000 + b'\n"b"\n"c')
        assert History(tmp_path / "h").entries == ["a", "b"]

    def test_a_folder_in_place_of_the_file_is_reported_once(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        history = History(tmp_path)
        history.add("a")
        assert history.entries == ["a"]
        assert capsys.readouterr().err.count("no history is saved") == 1

    def test_the_path_of_the_history(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("ONWARD_HISTORY", raising=False)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        assert history_path() == tmp_path / "onward" / "chat_history"
        monkeypatch.setenv("XDG_STATE_HOME", "relative")
        assert history_path() == Path("~/.local/state/onward/chat_history").expanduser()
        monkeypatch.setenv("ONWARD_HISTORY", "")
        assert history_path() is None
        monkeypatch.setenv("ONWARD_HISTORY", str(tmp_path / "x"))
        assert history_path() == tmp_path / "x"


class TestMore:
    """``Session.more``, which ``/more`` calls."""

    def test_more_extends_the_answer_without_computing_it_again(self, model: str) -> None:
        with LLM(model) as llm:
            session = llm.session(max_new_tokens=10)
            first = session.send("a")
            second = session.more()
            assert (first.text, second.text) == (ALPHABET[:10], ALPHABET[10:20])
            assert second.prompt_token_ids == first.prompt_token_ids + first.token_ids
            assert "".join(session.stream_more()) == ALPHABET[20:]
            assert session.messages[1:] == [{"role": "assistant", "content": ALPHABET}]

    def test_more_without_an_answer_is_an_error(self, model: str) -> None:
        with LLM(model) as llm:
            session = llm.session()
            with pytest.raises(InvalidArgument, match="more: there is no answer"):
                session.more()

    def test_more_continues_a_stopped_answer(self, model: str) -> None:
        with LLM(model) as llm:
            session = llm.session()
            with session.stream("a") as stream:
                begin = next(stream)
            assert begin + session.more().text == ALPHABET

    def test_more_continues_an_edited_answer(self, model: str) -> None:
        with LLM(model) as llm:
            session = llm.session(max_new_tokens=5)
            session.send("a")
            session.edit(1, "xabc")
            assert session.more().text == "defgh"
            assert session.messages[1]["content"] == "xabcdefgh"

    def test_more_completes_a_cut_character(self, tmp_path: Path) -> None:
        folder = write_byte_script(tmp_path / "m", "é😀x".encode(), max_position_embeddings=2000)
        template = (
            "{% for m in messages %}<{{ m.role }}>{{ '\x01' if m.role == 'assistant' }}"
            "{{ m.content }}{% endfor %}{{ '<assistant>\x01' if add_generation_prompt }}"
        )
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        with LLM(folder) as llm:
            session = llm.session(max_new_tokens=3)
            assert session.send("a").text == "é\ufffd"
            assert session.more().text == "😀"
            assert session.messages[1]["content"] == "é😀"
            assert session.more(max_new_tokens=1).text == "x"
            assert session.messages[1]["content"] == "é😀x"

    def test_save_refuses_a_cache_flag_that_is_not_a_boolean(
        self, model: str, tmp_path: Path
    ) -> None:
        with LLM(model) as llm, pytest.raises(TypeError, match="cache: is 1"):
            llm.session().save(tmp_path / "s", cache=1)  # type: ignore[arg-type]
        with LLM(model) as llm, pytest.raises(SessionError):
            llm.session().save(tmp_path / "no" / "s", cache=False)
