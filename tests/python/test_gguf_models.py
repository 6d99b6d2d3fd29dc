"""GGUF models through the API: ends of answers, markers in prompts, and files without a
tokenizer.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from builders.checkpoints import TINY_GGUF, gguf_bytes, tiny_gguf_tensors
from onward import LLM
from onward.errors import TokenizerError
from onward.load.packing import pack_model

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}ab{{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>ab{% endif %}"
)
PIECES = ["a", "b", "ab", *"usertini", "c", "</s>", "<|im_start|>", "<|im_end|>", "<|stop|>"]
PIECES = list(dict.fromkeys(PIECES))
ID = {piece: i for i, piece in enumerate(PIECES)}


def write(path: Path, kind: int = 3, template: str = CHATML, **changes: Any) -> Path:
    """The tiny model of 16 tokens with a byte-level tokenizer, EOS </s>, markers of one type."""
    metadata = {
        **TINY_GGUF,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": PIECES,
        "tokenizer.ggml.token_type": [kind if len(piece) > 2 else 1 for piece in PIECES],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": ID["</s>"],
        "tokenizer.chat_template": template,
    }
    metadata |= {key.replace("__", "."): value for key, value in changes.items()}
    metadata = {key: value for key, value in metadata.items() if value is not None}
    path.write_bytes(gguf_bytes(metadata, tiny_gguf_tensors()))
    return path


def ended_by(llm: LLM, piece: str) -> bool:
    """Whether the first token of an answer ends it, where that token is this one."""
    result = llm.chat("a", max_new_tokens=3, temperature=0, logit_bias={ID[piece]: 1e4})
    return (result.finish_reason, result.usage.completion_tokens) == ("stop", 1)


@pytest.mark.parametrize("kind", [1, 3])
def test_answers_end_where_the_template_ends_turns(tmp_path: Path, kind: int) -> None:
    """At <|im_end|>, whether the file types it as a control token or not, and at EOS."""
    template = CHATML + "{# <|stop|> #}"
    with LLM(write(tmp_path / "m.gguf", kind, template), threads=1) as llm:
        assert [piece for piece in PIECES if ended_by(llm, piece)] == ["</s>", "<|im_end|>"]
        ids = llm.tokenize("<|im_start|>a<|im_end|>")
        assert ids == [ID["<|im_start|>"], ID["a"], ID["<|im_end|>"]]


def test_a_template_with_its_own_end_token(tmp_path: Path) -> None:
    template = CHATML.replace("<|im_end|>", "<|stop|>")
    tokens = [piece.replace("<|im_end|>", "<|other|>") for piece in PIECES]
    path = write(tmp_path / "m.gguf", 3, template, tokenizer__ggml__tokens=tokens)
    with LLM(path, threads=1) as llm:
        assert [piece for piece in PIECES if ended_by(llm, piece)] == ["</s>", "<|stop|>"]
    pack_model(path, tmp_path / "m.onward", threads=1)
    with LLM(tmp_path / "m.onward", threads=1) as llm:
        assert [piece for piece in PIECES if ended_by(llm, piece)] == ["</s>", "<|stop|>"]


def test_streams_and_sessions_end_at_the_same_tokens(tmp_path: Path) -> None:
    with LLM(write(tmp_path / "m.gguf"), threads=1) as llm:
        options = {"max_new_tokens": 3, "temperature": 0, "logit_bias": {ID["<|im_end|>"]: 1e4}}
        stream = llm.chat("ab", stream=True, **options)
        assert list(stream) == [] and stream.result.finish_reason == "stop"
        session = llm.session()
        assert session.send("a", **options).finish_reason == "stop"


@pytest.mark.parametrize("model", [None, "none", "no_vocab"])
def test_without_a_tokenizer(tmp_path: Path, model: str | None) -> None:
    """The model works with token ids. Calls with text raise an error that names the missing
    part."""
    changes: dict[str, Any] = {
        f"tokenizer__ggml__{key}": None
        for key in ("pre", "tokens", "token_type", "merges", "eos_token_id")
    }
    path = write(tmp_path / "bare.gguf", tokenizer__ggml__model=model, **changes)
    with_tokenizer = write(tmp_path / "m.gguf")
    with LLM(path, threads=1) as llm, LLM(with_tokenizer, threads=1) as other:
        options: dict[str, Any] = {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}
        expected = other.generate([1, 2, 3], **options).token_ids
        assert llm.generate([1, 2, 3], **options).token_ids == expected
        for call in (llm.generate, llm.chat, llm.tokenize):
            with pytest.raises(TokenizerError, match=r"bare\.gguf: the GGUF file has no tokenizer"):
                call("a")


def test_a_broken_tokenizer_is_an_error(tmp_path: Path) -> None:
    """It is not loaded as a model without text."""
    path = write(tmp_path / "m.gguf", tokenizer__ggml__tokens=None)
    with pytest.raises(TokenizerError, match="tokens: the key is missing"):
        LLM(path, threads=1)


def test_warnings_come_from_where_the_model_is_made(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", tokenizer__ggml__padding_token_id=16)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LLM(path, threads=1).close()
    [warning] = caught
    assert "padding_token_id: found 16, expected 0 to 14; the key is ignored" in str(
        warning.message
    )
    assert warning.filename == __file__
