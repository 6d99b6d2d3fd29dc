"""Hostile tokenizer.json files are refused at once, and every failure of the library is caught."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, decoders, normalizers

from builders import tokenizer_bombs
from builders.tiny_tokenizers import byte_level, write_folder
from onward.errors import TokenizerError
from onward.text.streaming import TextStream
from onward.text.tokenizer.growth import MAX_GROWTH
from onward.text.tokenizer.tokenizer import Tokenizer

PANICS = ("strip more than there is", "chunks of nothing", "no table", "an empty trie")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The message of the TokenizerError of each bomb, by name."""
    program = Path(tokenizer_bombs.__file__)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path_factory.mktemp("bombs"))],
        capture_output=True,
        check=True,
        timeout=300,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


class TestBombs:
    @pytest.mark.parametrize("name", [n for n in tokenizer_bombs.BOMBS if n not in PANICS])
    def test_bombs_are_refused_by_growth_or_count(
        self, outcomes: dict[str, str], name: str
    ) -> None:
        assert "expected at most" in outcomes[name] or "expected once" in outcomes[name]
        assert "tokenizer.json: " in outcomes[name]

    @pytest.mark.parametrize("name", PANICS)
    def test_bombs_that_make_the_library_panic_are_refused(
        self, outcomes: dict[str, str], name: str
    ) -> None:
        assert "failed on" in outcomes[name] or "not a usable tokenizer" in outcomes[name]


class TestGrowth:
    def test_growth_within_the_bound_is_allowed(self, tmp_path: Path) -> None:
        backend = byte_level()
        doubling = normalizers.Replace("a", "aa")
        backend.normalizer = normalizers.Sequence([doubling] * 4)
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path / "16", backend))
        assert tokenizer.encode("a" * 1000) == [97] * 16_000
        # Beyond it each text is measured: one that does not grow is allowed.
        backend.normalizer = normalizers.Sequence([doubling] * 5)
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path / "32", backend))
        assert tokenizer.encode("b" * 1000) == [98] * 1000
        assert tokenizer.encode("aa") == [97] * 64
        with pytest.raises(TokenizerError, match=f"more than {MAX_GROWTH:g} times as long"):
            tokenizer.encode("a" * 1000)

    def test_growth_of_real_normalizers_is_allowed(self, tmp_path: Path) -> None:
        """As in T5 and ALBERT: each may lengthen some text, but no text grows by the product."""
        backend = byte_level()
        steps = [normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.Lowercase()]
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(" ", "\u2581")]
        backend.normalizer = normalizers.Sequence(steps)
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path, backend))
        assert tokenizer.decode(tokenizer.encode("\ufb01 A   b")) == "fi\u2581a\u2581b"
        assert tokenizer.encode("\ufdfa" * 1000)


def test_a_panic_in_the_decoder_is_an_error_of_every_call(tmp_path: Path) -> None:
    backend = byte_level()
    backend.decoder = decoders.Strip("a", 0, 2)
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, backend))
    calls: list[Any] = [
        lambda: tokenizer.decode([97]),
        lambda: TextStream(tokenizer, [97]),
        lambda: TextStream(tokenizer, []).push(97),
    ]
    for call in calls:
        with pytest.raises(TokenizerError, match="its decoder failed on token ids"):
            call()
    assert tokenizer.encode("ab") == [97, 98]
    pytest.importorskip("llguidance")
    from onward.text.tokenizer.token_table import TokenTable

    with pytest.raises(TokenizerError, match="its decoder failed on token ids"):
        TokenTable(tokenizer, 256)


NESTED: Any = [[[[[[[["z"]]]]]]]]
WRONG = (None, True, 3, -1.5, "text", [], [1, None, "<z>"], {}, {"content": 5}, NESTED, "\ud800")
KEYS = (
    "add_bos_token",
    "add_eos_token",
    "add_prefix_space",
    "added_tokens_decoder",
    "additional_special_tokens",
    "bos_token",
    "chat_template",
    "clean_up_tokenization_spaces",
    "eos_token",
    "extra_special_tokens",
    "image_token",
    "model_max_length",
    "pad_token",
    "tokenizer_class",
    "unk_token",
)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("key", KEYS)
def test_values_of_a_wrong_type(tmp_path: Path, file: str, key: str) -> None:
    from onward.text.template.template import ChatTemplate

    folder = write_folder(tmp_path, byte_level())
    for value in WRONG:
        for text in (value, {"1": value}, [value]):
            (folder / file).write_text(json.dumps({key: text}), "utf-8")
            try:
                tokenizer = Tokenizer.from_folder(folder)
            except TokenizerError as error:
                assert key in str(error)
                continue
            assert tokenizer.encode("ab", add_special_tokens=False)[-2:] == [97, 98]
            assert tokenizer.decode([97, 98]) == "ab"
            ChatTemplate.from_folder(folder, tokenizer)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_added_tokens_json_of_wrong_types(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level())
    for value in WRONG:
        (folder / "added_tokens.json").write_text(json.dumps({"<x>": value, "": 3}), "utf-8")
        tokenizer = Tokenizer.from_folder(folder)
        assert tokenizer.token_to_id("<x>") is None


@pytest.mark.parametrize("key", ["special_tokens", "add_bos_token", "eos_token_ids", "config"])
def test_a_pack_whose_tokenizer_config_has_wrong_types(key: str) -> None:
    from onward.errors import PackError
    from onward.load import pack_contents as contents

    texts = contents.tokenizer_texts(Tokenizer(byte_level(), special_tokens={"eos_token": "a"}))
    good = json.loads(texts["tokenizer_config"])
    for value in (3, "text", [1.5], [None], {"eos_token": 5}, {"eos_token": "\ud800"}):
        changed = json.dumps({**good, key: value})
        try:
            found = contents.read_tokenizer({**texts, "tokenizer_config": changed}, "a.onward")
        except PackError as error:
            assert key in str(error)
        else:
            assert found is not None and key in ("config", "special_tokens")
            assert isinstance(value, dict) and found.encode("a") == [97]


def test_lone_surrogates_do_not_reach_the_library() -> None:
    tokenizer = Tokenizer(byte_level(), special_tokens={"eos_token": "\ud800"})
    assert tokenizer.eos_token_ids == []
    assert tokenizer.token_to_id("a\udfff") is None
