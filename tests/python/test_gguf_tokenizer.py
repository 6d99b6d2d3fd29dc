"""Tokenizers from GGUF metadata, and the tokenizer of the default model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.tiny_tokenizers import LETTERS, MARK, gguf_byte_level, gguf_sentencepiece, smollm2
from onward.errors import TokenizerError
from onward.text.gguf.tokenizer import read_tokenizer as read_gguf_tokenizer

TEXTS = (
    "Hello world",
    "  two  spaces\n\n\tand a tab",
    "def f(x):\n    return x**2\n",
    "El niño comió piñas; ¿cuántas?",
    "日本語のテキスト。漢字とかな",
    "👨‍👩‍👧‍👦 a family, 🦙 a llama",
    "ภาษาไทย မြန်မာ हिन्दी العربية",
    "a\u0301 é e\u0308",
    "\x00\x01\x7f",
    "\ufffd literal",
    " ",
    "\n\n\n",
)

# From transformers 5.24 with SmolLM2's own split (digits alone, then GPT-2's words).
SMOLLM2_IDS = {
    "": [],
    "Hello world": [19556, 905],
    "1234 567 a1b2": [33, 34, 35, 36, 216, 37, 38, 39, 253, 33, 82, 34],
}


def test_smollm2_special_tokens() -> None:
    tokenizer = smollm2()
    assert tokenizer.special_tokens["bos_token"] == "<|im_start|>"
    assert tokenizer.eos_token_ids == [2]
    assert not tokenizer.adds_bos
    assert tokenizer.vocab_size == 49152
    ids = [tokenizer.encode(text) for text in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    assert ids == [[0], [1], [2]]
    assert tokenizer.decode([1, 4093, 2]) == "user"
    assert tokenizer.decode([1, 4093, 2], skip_special_tokens=False) == "<|im_start|>user<|im_end|>"


@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_round_trip(text: str) -> None:
    tokenizer = smollm2()
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_smollm2_round_trip_of_anything(text: str) -> None:
    """Any text without the few bytes that have no token, such as 0x16 and 0xF1."""
    tokenizer = smollm2()
    known = [byte for byte in range(256) if tokenizer.token_to_id(LETTERS[byte]) is not None]
    text = "".join(c for c in text if set(c.encode()) <= set(known))
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False) == text


@pytest.mark.parametrize("text", SMOLLM2_IDS)
def test_smollm2_ids(text: str) -> None:
    assert smollm2().encode(text) == SMOLLM2_IDS[text]


def test_smollm2_digits_stand_alone() -> None:
    tokenizer = smollm2()
    for text in ("1234", "a 2024-01-31", "x=  42", "½²٣"):
        pieces = [tokenizer.decode([i]) for i in tokenizer.encode(text)]
        assert all(len(piece) == 1 for piece in pieces if piece.isnumeric())
    assert tokenizer.encode("  23")[-2:] == [34, 35]
    assert len(tokenizer.encode("  23")) == 3  # both spaces are one token, not one and one


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "ab 12", ["ab", "Ġ", "1", "2"]),
        ("gpt-2", "abc abc", ["ab", "c", "Ġa", "b", "c"]),
        ("default", "abc", ["ab", "c"]),
        ("llama-bpe", "abc", ["abc"]),  # a whole word that is a token is not merged together
        ("qwen2", "abc", ["ab", "c"]),
        ("tekken", "abc", ["abc"]),
    ],
)
def test_pre_tokenizers(pre: str, text: str, pieces: list[str]) -> None:
    tokenizer = read_gguf_tokenizer(gguf_byte_level(pre, add_bos_token=False))
    assert [tokenizer.id_to_token(i) for i in tokenizer.encode(text)] == pieces
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_token_types() -> None:
    tokenizer = read_gguf_tokenizer(gguf_byte_level())
    assert tokenizer.encode("a<|end|><tool>") == [97, 259, 260]
    assert tokenizer.decode([259, 260]) == "<tool>"
    assert tokenizer.special_ids == {259}


@pytest.mark.parametrize(
    ("pre", "said", "adds"),
    [
        ("gpt-2", None, False),
        ("gpt-2", True, True),
        ("llama-bpe", None, True),
        ("llama-bpe", False, False),
        ("qwen2", None, False),
    ],
)
def test_bos_of_byte_level(pre: str, said: bool | None, adds: bool) -> None:
    changes = {} if said is None else {"add_bos_token": said}
    assert read_gguf_tokenizer(gguf_byte_level(pre, **changes)).adds_bos == adds


def test_ends_of_a_turn_are_ends() -> None:
    tokenizer = read_gguf_tokenizer(gguf_byte_level(eot_token_id=260, eom_token_id=260))
    assert tokenizer.eos_token_ids == [259, 260]


def test_sentencepiece() -> None:
    tokenizer = read_gguf_tokenizer(gguf_sentencepiece())
    pieces = [tokenizer.id_to_token(i) for i in tokenizer.encode("hello hello")]
    # "el" scores best, so it is merged before "he" and "ll" can be.
    assert pieces == ["<s>", MARK, "h", "el", "l", "o", MARK, "h", "el", "l", "o"]
    ids = tokenizer.encode("é\n<tool>hello")
    assert [tokenizer.id_to_token(i) for i in ids[1:5]] == [MARK, "<0xC3>", "<0xA9>", "<0x0A>"]
    assert tokenizer.token_to_id("<tool>") in ids
    for text in ("hello", " hello", "hello  hello ", "é 日本 🦙\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_sentencepiece_without_prefix_space() -> None:
    tokenizer = read_gguf_tokenizer(gguf_sentencepiece(add_space_prefix=False, add_bos_token=False))
    assert [tokenizer.id_to_token(i) for i in tokenizer.encode("he he")] == ["he", MARK, "he"]
    assert tokenizer.decode(tokenizer.encode(" he")) == " he"


def test_arrays_may_be_numpy() -> None:
    metadata = gguf_byte_level(bos_token_id=np.uint32(259))
    metadata["tokenizer.ggml.token_type"] = np.array(metadata["tokenizer.ggml.token_type"])
    assert read_gguf_tokenizer(metadata).bos_token_id == 259


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "t5"}, "'t5' is not supported"),
        ({"model": None}, "None is not supported"),
        ({"pre": "banana"}, "'banana' is not supported"),
        ({"pre": 3}, "3 is not supported"),
        ({"tokens": None}, "tokens: the key is missing"),
        ({"tokens": "abc"}, "expected an array"),
        ({"tokens": ["a", 3]}, "entry 1 is 3"),
        (
            {"tokens": ["a", "a"], "token_type": None, "bos_token_id": 0, "eos_token_id": 0},
            "'a' occurs twice, as 0 and 1",
        ),
        ({"token_type": [1]}, "expected 261 integers"),
        ({"token_type": ["x"] * 261}, "expected 261 integers"),
        ({"merges": None}, "merges: the key is missing"),
        ({"merges": ["ab"]}, "expected two pieces"),
        ({"merges": [" b"]}, "expected two pieces"),
        ({"merges": ["no piece"]}, "not a usable tokenizer"),
        ({"eos_token_id": 261}, "found 261, expected 0 to 260"),
        ({"eos_token_id": -1}, "found -1"),
        ({"bos_token_id": "x"}, "found 'x'"),
        ({"add_bos_token": 1}, "expected true or false"),
        ({"add_bos_token": True, "bos_token_id": None}, "bos_token is missing"),
    ],
)
def test_broken_metadata(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        read_gguf_tokenizer(gguf_byte_level(**changes))


@pytest.mark.parametrize("changes", [{"scores": None}, {"scores": [0.0]}, {"scores": ["x"] * 271}])
def test_broken_scores(changes: dict[str, Any]) -> None:
    with pytest.raises(TokenizerError, match="scores"):
        read_gguf_tokenizer(gguf_sentencepiece(**changes))


def test_no_metadata() -> None:
    with pytest.raises(TokenizerError, match="model: None is not supported"):
        read_gguf_tokenizer({})
