"""The ids of added tokens, and which tokens are special, from each file that can define them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders.tiny_tokenizers import byte_level, sentencepiece, write_folder
from onward.errors import TokenizerError
from onward.text.tokenizer.tokenizer import Tokenizer


def _entry(token_id: int, content: str, special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    return {"id": token_id, "content": content, "special": special, **flags}


def _folder(
    path: Path, added: list[dict[str, Any]], vocab: dict[str, int] | None = None, **model: Any
) -> Path:
    """A byte-level tokenizer.json with these added tokens and these pieces besides the bytes."""
    folder = write_folder(path, byte_level(special=()))
    state = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    state["added_tokens"] = added
    state["model"]["vocab"].update(vocab or {})
    state["model"].update(model)
    (folder / "tokenizer.json").write_text(json.dumps(state), "utf-8")
    return folder


class TestIdsOfTheFile:
    @pytest.mark.parametrize(
        ("vocab", "added"),
        [
            ({}, [(300, "<x>"), (301, "<y>")]),  # a gap before the added tokens
            ({}, [(256, "<x>"), (300, "<y>")]),  # a gap between them
            ({}, [(300, "<x>"), (256, "<y>")]),  # not in order
            ({"ab": 500}, [(501, "<x>"), (502, "<y>")]),  # a gap in the vocabulary
            ({"ab": 258}, [(257, "<x>"), (256, "<y>")]),  # added tokens that fill a gap
            ({}, [(256, "<x>"), (256, "<x>"), (257, "<y>")]),  # the same entry twice
        ],
    )
    def test_ids_of_the_file_are_used(
        self, tmp_path: Path, vocab: dict[str, int], added: list[tuple[int, str]]
    ) -> None:
        folder = _folder(tmp_path, [_entry(i, text) for i, text in added], vocab)
        (folder / "tokenizer_config.json").write_text('{"eos_token": "<y>"}', "utf-8")
        tokenizer = Tokenizer.from_folder(folder)
        ids = dict((text, i) for i, text in added)
        assert tokenizer.encode("a<x>b<y>") == [97, ids["<x>"], 98, ids["<y>"]]
        assert tokenizer.eos_token_ids == [ids["<y>"]]
        assert tokenizer.decode([97, ids["<x>"], 98]) == "ab"
        assert tokenizer.decode([ids["<x>"], ids["<y>"]], False) == "<x><y>"
        for piece, token_id in vocab.items():
            assert tokenizer.decode([token_id]) == piece
        packed = Tokenizer.from_text(tokenizer.backend.to_str(), where="a pack")
        assert packed.encode("<x><y>") == [ids["<x>"], ids["<y>"]]

    @pytest.mark.parametrize(
        ("vocab", "added", "words"),
        [
            ({"ab": 97}, [], ['"a"', '"ab"', "one id, 97"]),
            ({}, [(97, "<x>")], ['"<x>" the id 97', 'id of "a"']),
            ({}, [(256, "<x>"), (256, "<y>")], ['"<y>" the id 256', 'id of "<x>"']),
            ({}, [(300, "a")], ['"a" the id 300', "already has the id 97"]),
            ({}, [(256, "<x>"), (257, "<x>")], ['"<x>" the id 257', "already has the id 256"]),
        ],
    )
    def test_contradicting_ids_are_an_error(
        self, tmp_path: Path, vocab: dict[str, int], added: list[tuple[int, str]], words: list[str]
    ) -> None:
        folder = _folder(tmp_path, [_entry(i, text) for i, text in added], vocab)
        with pytest.raises(TokenizerError) as error:
            Tokenizer.from_folder(folder)
        assert all(word in str(error.value) for word in ["tokenizer.json", *words])

    def test_ids_after_a_gap_are_an_error_without_ids_in_the_vocabulary(
        self, tmp_path: Path
    ) -> None:
        state = {
            "version": "1.0",
            "added_tokens": [_entry(9, "<x>")],
            "model": {"type": "Unigram", "unk_id": 0, "vocab": [["u", 0.0], ["a", -1.0]]},
        }
        (tmp_path / "tokenizer.json").write_text(json.dumps(state), "utf-8")
        with pytest.raises(TokenizerError, match=r'"<x>" has the id 9 after a gap.* give it 2'):
            Tokenizer.from_folder(tmp_path)


class TestSpecialTokens:
    """The expected values are from transformers 5.24 with PreTrainedTokenizerFast."""

    @pytest.mark.parametrize(
        ("files", "ids", "special"),
        [
            # added_tokens.json alone: special where a special token is named so
            ({"added_tokens.json": {"<x>": 256, "<y>": 257}}, [256, 257], []),
            (
                {
                    "added_tokens.json": {"<x>": 256, "<y>": 257},
                    "special_tokens_map.json": {"eos_token": "<y>"},
                },
                [256, 257],
                ["<y>"],
            ),
            (
                {"tokenizer_config.json": {"additional_special_tokens": ["<x>", "<y>"]}},
                [256, 257],
                ["<x>", "<y>"],
            ),
            (
                {"tokenizer_config.json": {"extra_special_tokens": ["<x>", {"content": "<y>"}]}},
                [256, 257],
                ["<x>"],
            ),
            (
                {"special_tokens_map.json": {"additional_special_tokens": ["<x>", "<y>"]}},
                [256, 257],
                ["<x>", "<y>"],
            ),
            (
                {
                    "tokenizer_config.json": {
                        "added_tokens_decoder": {
                            "257": {"content": "<y>", "special": True},
                            "256": {"content": "<x>"},
                        }
                    },
                    # not read beside added_tokens_decoder
                    "added_tokens.json": {"<z>": 258},
                    "special_tokens_map.json": {"eos_token": "<x>"},
                },
                [256, 257],
                ["<y>"],
            ),
        ],
    )
    def test_special_tokens_in_a_companion_file(
        self, tmp_path: Path, files: dict[str, Any], ids: list[int], special: list[str]
    ) -> None:
        texts = {name: json.dumps(value) for name, value in files.items()}
        tokenizer = Tokenizer.from_folder(
            write_folder(tmp_path, byte_level(special=()), None, texts)
        )
        assert tokenizer.encode("<x><y>") == ids
        shown = "".join(text for text in ("<x>", "<y>") if text not in special)
        assert tokenizer.decode(ids) == shown
        assert tokenizer.decode(ids, skip_special_tokens=False) == "<x><y>"

    @pytest.mark.parametrize(("listed", "special"), [({}, False), (None, True)])
    def test_a_named_token_is_special_unless_added_tokens_decoder_leaves_it_out(
        self, tmp_path: Path, listed: object, special: bool
    ) -> None:
        config = {"eos_token": "<x>"} | ({} if listed is None else {"added_tokens_decoder": listed})
        backend = byte_level(special=(), added=("<x>",))
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path, backend, config))
        assert tokenizer.eos_token_ids == [256]
        assert tokenizer.decode([97, 256]) == ("a" if special else "a<x>")

    def test_the_map_has_priority_over_the_configuration(self, tmp_path: Path) -> None:
        files = {"special_tokens_map.json": '{"eos_token": "b"}'}
        folder = write_folder(tmp_path, byte_level(), {"eos_token": "a"}, files)
        assert Tokenizer.from_folder(folder).eos_token_ids == [98]

    @pytest.mark.parametrize("key", ["bos_token", "eos_token", "pad_token", "unk_token"])
    @pytest.mark.parametrize("rows", [None, 257])
    def test_special_tokens_that_do_not_exist_are_a_warning(
        self, tmp_path: Path, key: str, rows: int | None
    ) -> None:
        folder = write_folder(tmp_path, byte_level(), {key: "</none>"})
        with pytest.warns(UserWarning, match=f"not in the vocabulary: {key} '</none>'"):
            tokenizer = Tokenizer.from_folder(folder, rows)
        # As in transformers, a new id; but only where the model has a row for it.
        expected = [257] if rows is None else list(b"</none>")
        assert tokenizer.encode("</none>", add_special_tokens=False) == expected

    def test_special_tokens_with_the_id_of_another_token_are_a_warning(
        self, tmp_path: Path
    ) -> None:
        config = {"added_tokens_decoder": {"97": {"content": "<x>"}, "300": {"content": "b"}}}
        with pytest.warns(UserWarning) as reported:
            tokenizer = Tokenizer.from_folder(write_folder(tmp_path, byte_level(), config))
        text = " ".join(str(warning.message) for warning in reported)
        assert "'<x>' the id 97, but in tokenizer.json it is 'a'" in text
        assert "'b' the id 300, but in tokenizer.json that token has the id 98" in text
        assert tokenizer.encode("ab") == [97, 98]
        assert tokenizer.token_to_id("<x>") is None


class TestPrefixSpace:
    """The expected values are from transformers 5.24, where the tokenizer's class has the
    setting."""

    @pytest.mark.parametrize(
        ("name", "model_type", "setting", "in_the_file", "adds"),
        [
            ("GPT2Tokenizer", "llama", True, False, True),
            ("GPT2TokenizerFast", "llama", False, True, False),
            ("GPT2Tokenizer", "llama", None, True, False),
            ("Qwen2Tokenizer", "qwen2", True, False, True),
            ("PreTrainedTokenizerFast", "qwen2", True, False, True),
            (None, "qwen3", True, False, True),
            ("PreTrainedTokenizerFast", "qwen3", True, False, False),
            ("PreTrainedTokenizerFast", "llama", False, True, True),
            ("LlamaTokenizer", "llama", False, True, True),
            ("GPT2Tokenizer", "mistral", False, True, True),
        ],
    )
    def test_prefix_space_of_byte_level_tokenizers(
        self,
        tmp_path: Path,
        name: str | None,
        model_type: str,
        setting: bool | None,
        in_the_file: bool,
        adds: bool,
    ) -> None:
        from tokenizers import pre_tokenizers

        backend = byte_level()
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(in_the_file, use_regex=False)
        config: dict[str, Any] = {"tokenizer_class": name} if name else {}
        if setting is not None:
            config["add_prefix_space"] = setting
        files = {"config.json": json.dumps({"model_type": model_type})}
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path, backend, config, files))
        assert tokenizer.encode("a a") == list(b" a a" if adds else b"a a")

    @pytest.mark.parametrize("setting", [None, True, False])
    @pytest.mark.parametrize("name", ["LlamaTokenizer", "PreTrainedTokenizerFast"])
    def test_prefix_space_of_sentencepiece_tokenizers(
        self, tmp_path: Path, name: str, setting: bool | None
    ) -> None:
        backend = sentencepiece(adds_bos=False)
        config: dict[str, Any] = {"tokenizer_class": name, "add_prefix_space": setting}
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path, backend, config))
        space, a = tokenizer.token_to_id("\u2581"), tokenizer.token_to_id("a")
        without = name == "LlamaTokenizer" and setting is False
        assert tokenizer.encode("a a") == [a, space, a] if without else [space, a, space, a]
        assert tokenizer.decode([space, a]) == (" a" if without else "a")  # type: ignore[list-item]
