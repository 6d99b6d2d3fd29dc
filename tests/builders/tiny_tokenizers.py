"""Tiny tokenizers of each kind, as objects, folders and GGUF metadata; and SmolLM2's tokenizer.

`text_of` computes the text of a generation by definition, without regard to speed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from onward.errors import ModelNotFound
from onward.text.gguf.tokenizer import read_tokenizer as read_gguf_tokenizer
from onward.text.tokenizer.tokenizer import Tokenizer

PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [byte for byte in range(256) if byte not in PRINTABLE]
LETTERS = [chr(byte) if byte in PRINTABLE else chr(256 + OTHERS.index(byte)) for byte in range(256)]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MARK = "\u2581"
PIECES = [MARK, MARK * 2, "a", "b", "c", "é", "日", "ll", "he", "hello", MARK + "a", MARK + "hello"]


def byte_level(
    merges: Sequence[tuple[str, str]] = (),
    special: Sequence[str] = ("<|end|>",),
    added: Sequence[str] = (),
    **model: Any,
) -> tokenizers.Tokenizer:
    """Ids 0 to 255 are the bytes; then the merged pieces, special tokens and added ones."""
    vocab = {letter: i for i, letter in enumerate(LETTERS)}
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    backend = tokenizers.Tokenizer(models.BPE(vocab, list(merges), **model))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(special))
    backend.add_tokens(list(added))
    return backend


def sentencepiece(
    decoder: decoders.Decoder | None = None, adds_bos: bool = True
) -> tokenizers.Tokenizer:
    """<unk>, <s>, </s>, the byte tokens at 3 to 258, then PIECES."""
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *PIECES]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [("l", "l")] if "l" in vocab else []
    backend = tokenizers.Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    )
    backend.decoder = decoder or decoders.Sequence(
        [
            decoders.Replace(MARK, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 1)]
        )
    return backend


def wrapped(backend: tokenizers.Tokenizer, **names: str) -> Tokenizer:
    return Tokenizer(backend, special_tokens=names)


def write_folder(
    folder: Path,
    backend: tokenizers.Tokenizer,
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def gguf_byte_level(pre: str | None = "gpt-2", **changes: Any) -> dict[str, Any]:
    tokens = [*LETTERS, "Ġa", "ab", "abc", "<|end|>", "<tool>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 259 + [3, 4],
        "tokenizer.ggml.merges": ["Ġ a", "a b"],
        "tokenizer.ggml.bos_token_id": 259,
        "tokenizer.ggml.eos_token_id": 259,
        **{f"tokenizer.ggml.{key}": value for key, value in changes.items()},
    }


def gguf_sentencepiece(**changes: Any) -> dict[str, Any]:
    words = [MARK, "h", "e", "l", "o", "he", "ll", "hell", "hello", MARK + "hello", "el", "<tool>"]
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *words]
    scores = [0.0] * 259 + [-float(i) for i in (9, 9, 9, 9, 9, 2, 3, 4, 5, 6, 1, 0)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * (len(words) - 1), 4],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **{f"tokenizer.ggml.{key}": value for key, value in changes.items()},
    }


@cache
def smollm2_metadata() -> Mapping[str, Any] | None:
    from onward.load.hub import find_model
    from onward.load.weights import open_checkpoint

    try:
        files = find_model(None)
    except ModelNotFound:
        return None
    if files.kind != "gguf":
        return None
    checkpoint = open_checkpoint(files)
    try:
        return dict(checkpoint.metadata)
    finally:
        checkpoint.close()


@cache
def _smollm2() -> Tokenizer | None:
    metadata = smollm2_metadata()
    return None if metadata is None else read_gguf_tokenizer(metadata)


def smollm2() -> Tokenizer:
    """The tokenizer of the default model's GGUF file; skips the test if there is none."""
    tokenizer = _smollm2()
    if tokenizer is None:
        pytest.skip("the default model's GGUF file is not installed")
    return tokenizer


def text_of(tokenizer: Tokenizer, prompt: list[int], generated: list[int], skip: bool) -> str:
    """The part of decode(prompt + generated) after the prefix that it shares with
    decode(prompt)."""
    before = tokenizer.decode(prompt, skip_special_tokens=skip)
    after = tokenizer.decode(prompt + generated, skip_special_tokens=skip)
    shared = 0
    while shared < min(len(before), len(after)) and before[shared] == after[shared]:
        shared += 1
    return after[shared:]
