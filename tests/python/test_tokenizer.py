"""Tokenizer: folders, special tokens, BOS, arguments, deliberately broken files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import processors

from builders.tiny_tokenizers import (
    byte_level,
    gguf_byte_level,
    sentencepiece,
    smollm2,
    write_folder,
)
from onward.errors import ArgumentTypeError, InvalidArgument, TokenizerError
from onward.text.gguf.tokenizer import read_tokenizer as read_gguf_tokenizer
from onward.text.tokenizer.tokenizer import Tokenizer

FIXTURES = Path(__file__).parents[1] / "fixtures"
EXPECTED = FIXTURES / "tokenizers" / "expected.json"
KINDS = ("bytelevel", "metaspace", "prepend")


@pytest.mark.parametrize(
    ("ignore_merges", "one", "two"), [(True, [257], [256, 99, 256]), (False, [256, 99], None)]
)
def test_ignore_merges(ignore_merges: bool, one: list[int], two: list[int] | None) -> None:
    backend = byte_level([("a", "b")], special=(), ignore_merges=ignore_merges)
    state = json.loads(backend.to_str())
    state["model"]["vocab"]["abc"] = 257
    from tokenizers import Tokenizer as Backend

    tokenizer = Tokenizer(Backend.from_str(json.dumps(state)))
    assert tokenizer.encode("abc") == one
    assert two is None or tokenizer.encode("abcab") == two


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_texts_equal_the_reference(kind: str) -> None:
    if not EXPECTED.exists():
        pytest.skip("tests/fixtures/tokenizers has not been made")
    expected = json.loads(EXPECTED.read_text("utf-8"))[kind]
    tokenizer = Tokenizer.from_folder(EXPECTED.parent / kind)
    for entry in expected["texts"]:
        assert tokenizer.encode(entry["text"], add_special_tokens=False) == entry["ids"]
        bos = tokenizer.bos_token_id
        if entry["ids"][:1] != [bos]:
            assert tokenizer.encode(entry["text"]) == entry["ids_with_special"]
    for entry in expected["decodings"]:
        assert tokenizer.decode(entry["ids"]) == entry["text"]
        assert tokenizer.decode(entry["ids"], False) == entry["text_with_special"]


def test_byte_fallback_decodes_to_text() -> None:
    tokenizer = Tokenizer(sentencepiece())
    whole = [3 + byte for byte in "깰".encode()]
    assert tokenizer.decode(whole) == "깰"
    assert tokenizer.decode(whole[:2]) == "\ufffd\ufffd"
    assert tokenizer.decode([3 + 0xEA, 3 + 0x41]) == "\ufffd\ufffd"


def test_bos_is_added_once(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sentencepiece(), {"bos_token": "<s>", "eos_token": "</s>"})
    tokenizer = Tokenizer.from_folder(folder)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.adds_bos) == (1, [2], True)
    assert tokenizer.encode("a").count(1) == 1
    assert tokenizer.encode("<s>a") == [1, *tokenizer.encode("<s>a", add_special_tokens=False)[1:]]
    assert tokenizer.encode("a", add_special_tokens=False).count(1) == 0
    assert tokenizer.encode("") == [1]
    assert tokenizer.encode("a<s>")[0] == 1


@pytest.mark.parametrize("processor_adds", [True, False])
@pytest.mark.parametrize("bos", [None, True, False])
@pytest.mark.parametrize("eos", [None, True, False])
def test_add_bos_and_add_eos_of_the_configuration(
    tmp_path: Path, processor_adds: bool, bos: bool | None, eos: bool | None
) -> None:
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}
    config.update({"add_bos_token": bos, "add_eos_token": eos})  # type: ignore[dict-item]
    folder = write_folder(tmp_path, sentencepiece(adds_bos=processor_adds), config)
    tokenizer = Tokenizer.from_folder(folder)
    plain = tokenizer.encode("a", add_special_tokens=False)
    starts = [1] if (processor_adds if bos is None else bos) else []
    assert tokenizer.encode("a") == starts + plain  # a prompt never ends with the end token
    assert tokenizer.adds_bos == bool(starts)


def test_add_eos_token_of_a_gguf_file_puts_nothing_after_a_prompt() -> None:
    tokenizer = read_gguf_tokenizer(gguf_byte_level(add_eos_token=True))
    assert tokenizer.encode("a") == [97]
    assert tokenizer.encode("<|end|>") == [259]  # what the caller writes stays


def test_add_bos_without_bos_token_is_an_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, sentencepiece(adds_bos=False), {"add_bos_token": True})
    with pytest.raises(TokenizerError, match="bos_token is missing"):
        Tokenizer.from_folder(folder)


def test_a_post_processor_puts_nothing_after_a_prompt(tmp_path: Path) -> None:
    backend = byte_level(special=("<s>", "</s>"))
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 256), ("</s>", 257)]
    )
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, backend))
    assert tokenizer.encode("a") == [256, 97]


@pytest.mark.filterwarnings("ignore:.*not in the vocabulary")
def test_named_tokens_become_special(tmp_path: Path) -> None:
    """A vocabulary entry that the configuration calls EOS is special, as in transformers."""
    backend = byte_level([("<", "e"), ("<e", ">")], special=())
    config = {"eos_token": "<e>", "extra_special_tokens": {"image_token": "<image>"}}
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, backend, config))
    end = tokenizer.token_to_id("<e>")
    assert tokenizer.eos_token_ids == [end]
    assert tokenizer.encode("a<e>b") == [97, end, 98]
    assert tokenizer.decode([97, 257, 98]) == "ab"
    assert tokenizer.decode([97, 257, 98], skip_special_tokens=False) == "a<e>b"
    assert tokenizer.encode("<image>") == [258]
    rows = Tokenizer.from_folder(tmp_path, 258)  # the model has no row for a new id
    assert rows.token_to_id("<image>") is None
    assert tokenizer.special_tokens["image_token"] == "<image>"


def test_added_tokens_of_the_configuration(tmp_path: Path) -> None:
    config = {
        "added_tokens_decoder": {
            "257": {"content": "<x>", "special": True},
            "258": {"content": "<y>", "special": False},
            "900": {"content": "<z>", "special": False},
        }
    }
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, byte_level(), config))
    assert tokenizer.encode("<x><y><z>") == [257, 258, 900]
    assert tokenizer.decode([257, 258, 900]) == "<y><z>"


def test_special_tokens_map_is_read(tmp_path: Path) -> None:
    files = {"special_tokens_map.json": json.dumps({"eos_token": {"content": "<|end|>"}})}
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, byte_level(), None, files))
    assert tokenizer.eos_token_ids == [256]


def test_prompts_are_not_truncated_or_padded(tmp_path: Path) -> None:
    backend = byte_level()
    backend.enable_truncation(3)
    backend.enable_padding(length=12)
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, backend))
    assert tokenizer.encode("abcdef") == list(b"abcdef")


def test_spaces_before_punctuation_stay(tmp_path: Path) -> None:
    config = {"clean_up_tokenization_spaces": True}
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, byte_level(), config))
    assert tokenizer.decode(tokenizer.encode("a . b ?")) == "a . b ?"


def test_encode_refuses_values_that_are_not_text() -> None:
    tokenizer = Tokenizer(byte_level())
    for value in (None, 3, b"a", ["a"], [1]):
        with pytest.raises(ArgumentTypeError, match="expected a str"):
            tokenizer.encode(value)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"character 1 is a lone surrogate \(U\+D83D\)"):
        tokenizer.encode("a\ud83d")
    assert tokenizer.encode("\x00") == [0]


def test_decode_takes_any_integers() -> None:
    tokenizer = Tokenizer(byte_level())
    ids = list("é!".encode())
    assert tokenizer.decode(np.array(ids, np.uint32)) == "é!"
    assert tokenizer.decode(tuple(ids)) == tokenizer.decode(iter(ids)) == "é!"
    assert tokenizer.decode([97, 5000, 98]) == "ab"  # rows of the model without a token
    assert tokenizer.decode([]) == ""
    wrong: list[tuple[Any, type[Exception]]] = [
        (-1, InvalidArgument),
        (2**32, InvalidArgument),
        (1.5, ArgumentTypeError),
        ("a", ArgumentTypeError),
    ]
    for value, error in wrong:
        with pytest.raises(error, match="decode: token id"):
            tokenizer.decode([value])


def test_arguments_of_a_wrong_type() -> None:
    tokenizer = Tokenizer(byte_level())
    assert tokenizer.id_to_token(-1) is tokenizer.id_to_token(2**40) is None
    calls: list[Any] = [
        lambda: tokenizer.id_to_token("a"),  # type: ignore[arg-type]
        lambda: tokenizer.token_to_id(3),  # type: ignore[arg-type]
        lambda: tokenizer.decode([97], skip_special_tokens="no"),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(ArgumentTypeError, match="expected"):
            call()


NESTED = '{"a":' + "[" * 100_000
BROKEN = {
    "nested": NESTED,
    "nested in the model": '{"version":"1.0","model":{"type":"BPE","vocab":' + '{"a":' * 50_000,
    "nested decoders": '{"decoder":{"type":"Sequence","decoders":[' * 20_000,
    "empty": "",
    "no object": "[1]",
    "no JSON": "hello",
    "byte order mark": '\ufeff{"a": 1}',
    "cut": '{"version":"1.0","model":{"type":"BPE"',
    "no model": '{"version":"1.0"}',
    "not a number": '{"version": NaN}',
    "unknown model": '{"version":"1.0","model":{"type":"Banana"}}',
    "merge of unknown pieces": json.dumps(
        {"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}
    ),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_broken_tokenizer_json(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content, "utf-8")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)


def test_tokenizer_json_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("content", [NESTED, "", "[]", "\ufeff{}", "{'a': 1}", '{"a"', "nope"])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_broken_companions(tmp_path: Path, name: str, content: str) -> None:
    folder = write_folder(tmp_path, byte_level(), None, {name: content})
    with pytest.raises(TokenizerError, match=name):
        Tokenizer.from_folder(folder)


@pytest.mark.parametrize(
    "config",
    [
        {"add_bos_token": "yes"},
        {"add_eos_token": 1},
    ],
)
def test_flags_that_are_not_booleans_are_errors(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(TokenizerError, match="expected true or false"):
        Tokenizer.from_folder(write_folder(tmp_path, byte_level(), config))


def test_unusual_configurations_are_accepted(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "eos_token": 7,
        "bos_token": {"content": None},
        "additional_special_tokens": [3, None, {"content": "<|end|>"}],
        "added_tokens_decoder": {
            "x": {"content": "a"},
            "-1": 3,
            "99999999999999": {"content": "q"},
        },
        "extra_special_tokens": 5,
    }
    with pytest.warns(UserWarning) as reported:
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path, byte_level(), config))
    text = " ".join(str(warning.message) for warning in reported)
    for key in ("eos_token", "bos_token", "decoder[x]", "decoder[-1]", "decoder[99999999999999]"):
        assert key in text
    assert "extra_special_tokens is 5" in text
    assert tokenizer.eos_token_ids == []
    assert tokenizer.decode([97, 256]) == "a"


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: the file is missing"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(TokenizerError, match="SentencePiece"):
        Tokenizer.from_folder(tmp_path)


def test_huge_file_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "tokenizer.json", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TokenizerError, match="expected at most"):
        Tokenizer.from_folder(tmp_path)


def test_smollm2_prompts_have_the_reference_ids() -> None:
    path = FIXTURES / "smollm2" / "expected.json"
    if not path.exists():
        pytest.skip("tests/fixtures/smollm2 has not been made")
    tokenizer = smollm2()
    for prompt in json.loads(path.read_text("utf-8"))["prompts"]:
        assert tokenizer.encode(prompt["text"]) == prompt["token_ids"], prompt["name"]
        assert tokenizer.decode(prompt["greedy_ids"]) == prompt["greedy_text"]
        assert tokenizer.decode(prompt["greedy_ids"], False) == prompt["greedy_text_with_special"]
