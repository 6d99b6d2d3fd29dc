"""Regular expressions of a tokenizer.json: slow ones are stopped, all others keep their tokens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from builders import pattern_bombs
from builders.pattern_bombs import PLACES, state_of
from builders.tiny_tokenizers import gguf_byte_level
from onward.errors import TokenizerError
from onward.text.gguf.splittings import SPLITTINGS
from onward.text.gguf.tokenizer import read_tokenizer
from onward.text.tokenizer import trial as text_trial
from onward.text.tokenizer.linear_patterns import LINEAR
from onward.text.tokenizer.tokenizer import Tokenizer

TEXT = "Hello, it's WORLD's 12345,678 x\u0301y \u65e5\u672c\u8a9e\r\n\n   f(x) = `a//b`;\tend  "
_WORD, _REST = r"[^\r\n\p{L}\p{N}]?\p{L}+", r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+{0}"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*{0}"
)
# Patterns as the tokenizer.json of these models spell them. They are used without a trial.
REAL = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k, llama 3, glm 4": rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORD}|\p{{N}}{{1,3}}|{_REST}",
    "qwen 2 and 3": rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORD}|\p{{N}}|{_REST}",
    "o200k, gpt-oss": _CASED.replace("{0}", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?")
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "mistral nemo": _CASED.replace("{0}", "")
    + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek v3, digits": r"\p{N}{1,3}",
    "deepseek v3, scripts": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "deepseek v3": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "falcon": "[0-9][0-9][0-9]",
    "bloom": " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",
    "clip, albert": r"\s+",
    "t5": " {2,}",
    "single digits": r"\d",
}
# Harmless, but of no model that is known here: used after a trial of each text.
UNKNOWN = (r"(,[0-9]+)*", r"[a-z]+|[0-9]{1,4}", r"\s+$", r"\d{1,3}(?=(?:\d{3})*\b)", r"(?<=l)(?=o)")


def of_state(parts: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_text(json.dumps(state_of(parts)), where="tokenizer.json")


def split(pattern: str) -> dict[str, Any]:
    parts: dict[str, Any] = PLACES["split"](pattern, "")
    return parts


def words(parts: dict[str, Any], text: str) -> list[str]:
    """The tokens of a text by the library alone."""
    backend = tokenizers.Tokenizer.from_str(json.dumps(state_of(parts)))
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)]


def outcomes(limit: float, places: str, timeout: float) -> list[list[Any]]:
    done = subprocess.run(
        [sys.executable, pattern_bombs.__file__, str(limit), places],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=timeout,
    )
    found: list[list[Any]] = json.loads(done.stdout)
    return found


class TestBombs:
    def test_bombs_end_by_the_limit_and_other_threads_run(self) -> None:
        for place, pattern, outcome, own_seconds, steps in outcomes(0.1, "one", 250):
            assert own_seconds < 0.5, (place, pattern)  # this process does none of the work
            assert steps > 5 or outcome == "done", (place, pattern)
            if "takes too long" in outcome:
                part = next(iter(PLACES[place](pattern, "a")))
                assert repr(pattern) in outcome and f"of {part}" in outcome
                assert "replace this part" in outcome
            elif pattern == pattern_bombs.HARMLESS:
                assert outcome == "done"
            else:  # Oniguruma ends one match after ten million retries
                assert "retry-limit" in outcome, (place, pattern, outcome)

    @pytest.mark.slow
    def test_bombs_in_each_place_end_within_the_documented_time(self) -> None:
        found = outcomes(text_trial.LIMIT_S, "all", 280)
        assert len(found) == len(PLACES) * len(pattern_bombs.BOMBS)
        for place, pattern, outcome, own_seconds, _ in found:
            assert own_seconds < 2.5 - text_trial.LIMIT_S, (place, pattern)
            assert outcome == "done" or "tokenizer" in outcome, (place, pattern, outcome)
        stopped = {pattern for _, pattern, outcome, _, _ in found if outcome != "done"}
        assert stopped == set(pattern_bombs.BOMBS) - {pattern_bombs.HARMLESS}


class TestAcceptedPatterns:
    @pytest.mark.parametrize("name", REAL)
    def test_patterns_of_real_models_are_used_without_a_trial(self, name: str) -> None:
        assert REAL[name] in LINEAR
        tokenizer = of_state(split(REAL[name]))
        assert tokenizer.trial is None

    def test_known_patterns_are_used_without_a_trial(self) -> None:
        assert len(LINEAR) > 60
        for pattern in LINEAR:
            for part in (split(pattern), PLACES["nested replace"](pattern, "")):
                assert of_state(part).trial is None, pattern

    @pytest.mark.parametrize("pattern", UNKNOWN)
    def test_unknown_patterns_keep_their_tokens(self, pattern: str) -> None:
        parts = split(pattern)
        tokenizer = of_state(parts)
        assert tokenizer.trial is not None
        backend = tokenizers.Tokenizer.from_str(json.dumps(state_of(parts)))
        assert tokenizer.encode(TEXT) == backend.encode(TEXT).ids
        assert tokenizer.decode([72, 105]) == backend.decode([72, 105])
        found = tokenizer.backend.pre_tokenizer.pre_tokenize_str(TEXT)
        assert [word for word, _ in found] == words(parts, TEXT)

    def test_an_unknown_pattern_of_a_decoder_keeps_its_text(self) -> None:
        tokenizer = of_state(PLACES["decoder"](r"(b|[b-c])+", ""))
        assert tokenizer.decode([97, 98, 99, 97]) == "a-a"

    @pytest.mark.slow
    @pytest.mark.timeout(1200)
    @pytest.mark.parametrize("pattern", sorted(LINEAR))
    def test_known_patterns_take_time_in_proportion_to_the_text(self, pattern: str) -> None:
        """With a slow pattern, 20,000 characters take seconds; the limit of 0.8 s ends it."""
        parts = {**split(pattern), "added_tokens": []}
        trial = text_trial.TextTrial(state_of(parts), [], ["the pattern"], "tokenizer.json")
        for unit in ("a", "A", "1", " ", "\n", " \n", "!", " a", "\u4e00", "\u0301", "A1", "12,"):
            for end in ("", "x", "\u4e00", "!"):
                trial.encode(unit * (20_000 // len(unit)) + end)


class TestTrial:
    def test_the_trial_of_a_gguf_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two real pre-tokenizers take quadratic time in the digits or the spaces of a text."""
        assert read_tokenizer(gguf_byte_level("llama-bpe")).trial is None
        tokenizer = read_tokenizer(gguf_byte_level("superbpe"))
        assert tokenizer.encode("1234") == [49, 50, 51, 52]
        monkeypatch.setattr(text_trial, "LIMIT_S", 0.1)
        with pytest.raises(TokenizerError, match=r"ggml\.pre: it takes too long on a"):
            tokenizer.encode("1" * 60_000)
        assert tokenizer.encode("12") == [49, 50]
        slow = [name for name in SPLITTINGS if not set(SPLITTINGS[name].patterns) <= LINEAR]
        assert slow == ["jais-2", "tiny_aya", "cohere2moe", "deepseek-llm", "superbpe"]

    @pytest.mark.parametrize(
        ("parts", "reason"),
        [
            (
                {"pre_tokenizer": {**split("x")["pre_tokenizer"], "pattern": {"String": "a" * 65}}},
                "the string of 65 characters that pre_tokenizer searches for",
            ),
            ({"model": {"max_input_chars_per_word": 101}}, "max_input_chars_per_word of 101"),
        ],
    )
    def test_the_trial_of_other_slow_parts(self, parts: dict[str, Any], reason: str) -> None:
        from onward.text.tokenizer.linear_patterns import unproven

        assert reason in str(unproven(parts))

    def test_the_trial_of_a_wordpiece_and_a_unigram_model(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One word of WordPiece takes the cube of its length, and a character of Unigram the number
        of pieces that begin there."""
        vocab = {"a": 0, "##a": 1, "[UNK]": 2}
        wordpiece = {"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]"}
        wordpiece |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 10**9}
        pieces = [["a" * k, -1.0 * k] for k in range(1, 1000)]
        unigram = {"type": "Unigram", "vocab": pieces, "unk_id": 0, "byte_fallback": False}
        for model, ids in ((wordpiece, [0, 1, 1]), (unigram, None)):
            text = json.dumps({"version": "1.0", "model": model})
            tokenizer = Tokenizer.from_text(text, where="tokenizer.json")
            found = tokenizer.encode("aaa")
            assert found == ids or (ids is None and found)
            monkeypatch.setattr(text_trial, "LIMIT_S", 0.1)
            with pytest.raises(TokenizerError, match="takes too long on a text of 20000"):
                tokenizer.encode("a" * 20_000)
            monkeypatch.undo()

    def test_the_trial_includes_a_step_that_claims_to_be_a_sequence(self) -> None:
        """The library ignores keys that a type does not have, so they must not hide a step."""
        for key in ("normalizers", "pretokenizers"):
            parts = split(r"(a+)+$")
            parts["pre_tokenizer"][key] = []
            with pytest.raises(TokenizerError, match="a sequence and something else"):
                of_state(parts)

    def test_the_trial_survives_a_killed_child_and_an_error(self) -> None:
        tokenizer = of_state(split(r"(a+)+$"))
        assert tokenizer.trial is not None
        child = tokenizer.trial._children[0].process
        os.kill(child.pid, signal.SIGKILL)
        assert tokenizer.encode("ab") == [97, 98]
        with pytest.raises(TokenizerError, match=r"takes too long|failed on a text"):
            tokenizer.encode("a" * 60 + "b")
        assert tokenizer.encode("ab") == [97, 98]

    def test_trials_from_many_threads_and_after_a_fork(self) -> None:
        tokenizer = of_state(split(r"(a+)+c?"))
        found: list[list[int]] = []
        threads = [
            threading.Thread(target=lambda: found.append(tokenizer.encode("ab"))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [[97, 98]] * 8
        process = os.fork()
        if process == 0:
            os._exit(0 if tokenizer.encode("ab") == [97, 98] else 1)
        assert os.waitpid(process, 0)[1] == 0
        assert tokenizer.encode("ab") == [97, 98]

    def test_the_child_of_the_trial_ends_with_the_tokenizer(self) -> None:
        tokenizer = of_state(split(r"(a+)+c?"))
        assert tokenizer.trial is not None
        process = tokenizer.trial._children[0].process
        del tokenizer
        import gc

        gc.collect()
        assert process.returncode is not None

    def test_there_is_no_trial_if_no_python_can_be_started(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(sys, "executable", "")
        assert of_state(split(r"(a+)+c?")).encode("ab") == [97, 98]
