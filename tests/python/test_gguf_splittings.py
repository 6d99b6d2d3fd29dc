"""Pre-tokenizers of GGUF files: their words, derived by hand from their regular expressions."""

from __future__ import annotations

import pytest

from builders.tiny_tokenizers import gguf_byte_level
from onward.errors import TokenizerError
from onward.text.gguf.splittings import SPLITTINGS
from onward.text.gguf.tokenizer import read_tokenizer as read_gguf_tokenizer

TEXT = "HelloWorld I'M 12345 x.y\n\n  日本語 end"
# The names that share a pre-tokenizer, and the words of TEXT.
WORDS = {
    "gpt-2 default phi-2 jais trillion granite-docling exaone4 roberta-bpe mpt olmo gigachat": (
        "HelloWorld| I|'|M| 12345| x|.|y|\n\n | 日本語| end"
    ),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": (
        "HelloWorld| I|'|M| |1|2|3|4|5| x|.|y|\n\n | 日本語| end"
    ),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 dbrx smaug-bpe chatglm-bpe glm4": (
        "HelloWorld| I|'M| |123|45| x|.y|\n\n| | 日本語| end"
    ),
    "qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2 bailingmoe llada-moe": (
        "HelloWorld| I|'M| |1|2|3|4|5| x|.y|\n\n| | 日本語| end"
    ),
    "tekken": "Hello|World| I|'M| |1|2|3|4|5| x|.y|\n\n| | 日本語| end",
    "gpt-4o llama4 kanana2 minimax-m2": "Hello|World| I'M| |123|45| x|.y|\n\n| | 日本語| end",
    "tiny_aya cohere2moe": "Hello|World| I'M| |12|345| x|.y|\n\n| | 日本語| end",
    "deepseek-llm": "HelloWorld| I|'|M| |1|2|3|4|5| x|.|y|\n|\n|  |日本語| end",
    "deepseek-coder": "HelloWorld| I|'|M| |1|2|3|4|5| x|.|y|\n|\n| | |日本語| end",
    "deepseek-v3 hunyuan-dense joyai-llm": ("HelloWorld| I|'M| |123|45| x|.y|\n\n|  |日本語| end"),
    "falcon": "HelloWorld| I|'|M| |123|45| x|.|y|\n\n | 日本語| end",
    "bloom poro-chat gpt3-finnish": "HelloWorld| I'M| 12345| x|.|y|\n\n | 日本語| end",
    "viking": "HelloWorld| I'M| |1|2|3|4|5| x|.|y|\n\n | 日本語| end",
    "superbpe": "HelloWorld I'M |12|345| x.y\n\n  日本語 end",
    "chameleon": "HelloWorld| I|'|M| |1|2|3|4|5| x|.|y|\n|\n|  |日本語| end",
}
# Words where one differs from its neighbours above.
SPECIAL = [
    ("kimi-k2", "Kimi日本", "Kimi|日本"),
    ("gpt-4o", "Kimi日本", "Kimi日本"),
    ("qwen35", "a\u0301b \u0301!", "a\u0301b| \u0301|!"),
    ("qwen2", "x\u0301b", "x|\u0301b"),
    ("ufakzeka", "Ali'den", "Ali|'den"),
    ("qwen2", "Ali'den", "Ali|'d|en"),
    ("seed-coder", "a !\n", "a| !|\n"),
    ("qwen2", "a !\n", "a| !\n"),
    ("exaone-moe", "two words, three", "two words|,| three"),
    ("laguna", "!\n!", "!|\n|!"),
    ("qwen2", "!\n!", "!\n|!"),
    ("jais-2", " " * 7 + "x", "    |  | x"),
    ("llama-bpe", " " * 7 + "x", "      | x"),
    ("minicpm5", "12345", "123|45"),
    ("spark2_5", "12345!\n\n", "1|2|3|4|5|!|\n|\n"),
    ("youtu", "한국어abc\u2026!", "한국어|abc|\u2026|!"),
    ("tekken", "a//\n/", "a|//\n/"),
    ("gpt-4o", "they'll", "they'll"),
    ("falcon", "1234 12 $$", "123|4| 12| |$$"),
    ("bailingmoe", "a'S it'Ll", "a|'S| it|'Ll"),
    ("deepseek-llm", "(ж,é)", "(|ж|,|é|)"),
    ("deepseek-llm", "ÀÉcole", "ÀÉ|cole"),
    ("deepseek-v3", "a_b (c", "a|_b| (|c"),
    ("chameleon", "xIMGIMGABZx", "x|IMGIMGABZ|x"),
]


def words(pre: str, text: str) -> list[str]:
    pre_tokenizer = read_gguf_tokenizer(gguf_byte_level(pre)).backend.pre_tokenizer
    return [text[a:b] for _, (a, b) in pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("names", WORDS)
def test_words_of_a_text(names: str) -> None:
    for name in names.split():
        assert words(name, TEXT) == WORDS[names].split("|"), name


@pytest.mark.parametrize(("pre", "text", "expected"), SPECIAL)
def test_differences_between_pre_tokenizers(pre: str, text: str, expected: str) -> None:
    assert words(pre, text) == expected.split("|")


def test_words_lose_nothing() -> None:
    """The words of a text joined are the text, whatever the pre-tokenizer."""
    text = "\r\n\t Ab1½٣ e\u0301 한 \u3000ไทย <|x|>👍🏽 don't__\n"
    for name in SPLITTINGS:
        tokenizer = read_gguf_tokenizer(gguf_byte_level(name, add_bos_token=False))
        composed = SPLITTINGS[name].composed
        assert "".join(words(name, text)) == text
        assert (tokenizer.decode(tokenizer.encode(text)) == text) != composed


@pytest.mark.parametrize("pre", ["qwen2", "mpt", "olmo", "command-r"])
def test_some_compose_characters(pre: str) -> None:
    tokenizer = read_gguf_tokenizer(gguf_byte_level(pre))
    assert tokenizer.encode("e\u0301") == tokenizer.encode("é")


def test_the_default_pre_tokenizer_is_gpt2() -> None:
    with pytest.warns(UserWarning, match=r"pre: the key is missing, so text is cut .* as GPT-2 "):
        tokenizer = read_gguf_tokenizer(gguf_byte_level(pre=None))
    assert tokenizer.encode("ab12 a") == read_gguf_tokenizer(gguf_byte_level()).encode("ab12 a")


@pytest.mark.parametrize("pre", ["gemma4", "whitespace", "afmoe", "banana"])
def test_unknown_pre_tokenizers_are_refused_by_name(pre: str) -> None:
    with pytest.raises(
        TokenizerError, match=f"pre: .* '{pre}' is not supported, .*default, .*llada"
    ):
        read_gguf_tokenizer(gguf_byte_level(pre))
