"""Draws constrained outputs from seeded random logits in the same way as an engine, for many
tokenizers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from builders.tiny_tokenizers import (
    MARK,
    byte_level,
    gguf_byte_level,
    gguf_sentencepiece,
    sentencepiece,
    smollm2,
)
from onward.options.grammar import Grammar
from onward.text.constraints import Constraint, ConstraintRule
from onward.text.gguf.tokenizer import read_tokenizer as read_gguf_tokenizer
from onward.text.tokenizer.tokenizer import Tokenizer

PADDING = 5  # rows of the model beyond the tokens


def words() -> tokenizers.Tokenizer:
    """Words, which are joined with spaces."""
    vocab = {word: i for i, word in enumerate(["[UNK]", "yes", "no", "maybe", "not", "</s>"])}
    backend = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["</s>"])
    backend.add_tokens(["<tool>"])
    return backend


def stripped() -> tokenizers.Tokenizer:
    backend = byte_level([("a", "b")])
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return backend


# Each has a special stop token and a prompt without text.
SPELLS_ALL: dict[str, Callable[[], tuple[Tokenizer, int]]] = {
    "byte level": lambda: (
        Tokenizer(byte_level([("a", "b"), ("t", "r"), ("ð", "Ł")], added=("日本", "<tool>"))),
        259,
    ),
    "sentencepiece": lambda: (Tokenizer(sentencepiece()), 2),
    "no prefix space": lambda: (
        Tokenizer(
            sentencepiece(
                decoders.Sequence(
                    [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
                )
            )
        ),
        2,
    ),
    "fallback and metaspace": lambda: (
        Tokenizer(
            sentencepiece(decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]))
        ),
        2,
    ),
    "byte level, stripped": lambda: (Tokenizer(stripped()), 257),
    "gguf byte level": lambda: (read_gguf_tokenizer(gguf_byte_level()), 259),
    "gguf sentencepiece": lambda: (read_gguf_tokenizer(gguf_sentencepiece()), 2),
    "smollm2": lambda: (smollm2(), 2),
}
SPELLS_SOME: dict[str, Callable[[], tuple[Tokenizer, int]]] = {
    "words": lambda: (Tokenizer(words()), 5),
    "metaspace": lambda: (Tokenizer(sentencepiece(decoders.Metaspace())), 2),
    "wordpiece": lambda: (Tokenizer(sentencepiece(decoders.WordPiece())), 2),
}
ANY = {**SPELLS_ALL, **SPELLS_SOME}


@cache
def made(kind: str) -> tuple[Tokenizer, int]:
    return ANY[kind]()


def rows_of(tokenizer: Tokenizer) -> int:
    return tokenizer.vocab_size + PADDING


def constraint_of(tokenizer: Tokenizer, **options: Any) -> Constraint:
    grammar = Grammar.of(**options)
    assert grammar is not None
    return Constraint(grammar, tokenizer, rows_of(tokenizer))


def ids_of(prompt: Sequence[int], output: Sequence[int]) -> np.ndarray:
    ids = np.array([*prompt, *output], dtype=np.int32)
    ids.flags.writeable = False
    return ids


def allowed_after(
    rule: ConstraintRule, rows: int, prompt: Sequence[int], output: Sequence[int] = ()
) -> set[int]:
    scores = np.zeros(rows, dtype=np.float32)
    rule.process(ids_of(prompt, output), scores)
    assert set(np.unique(scores)) <= {0.0, -np.inf}
    return set(np.flatnonzero(scores == 0).tolist())


def draw(
    constraint: Constraint,
    rows: int,
    prompt: Sequence[int],
    stops: Sequence[int],
    seed: int,
    limit: int = 2000,
) -> list[int]:
    """A complete output, without the stop token."""
    rng = np.random.default_rng(seed)
    rule = constraint.rule(prompt, stops)
    output: list[int] = []
    while len(output) < limit:
        scores = rng.standard_normal(rows, dtype=np.float32)
        rule.process(ids_of(prompt, output), scores)
        token = int(scores.argmax())
        assert scores[token] > -np.inf
        if token in stops:
            return output
        output.append(token)
        if rule.ends(ids_of(prompt, output)):
            return output
    raise AssertionError(f"no end after {limit} tokens")


def prompts_of(tokenizer: Tokenizer, stop: int) -> list[list[int]]:
    """No text at all, and some."""
    return [[stop], [stop, *tokenizer.encode("no a", add_special_tokens=False)]]


SHORT = {"type": "string", "maxLength": 6}
SCHEMAS: dict[str, Any] = {
    "object": {
        "type": "object",
        "properties": {"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "enum": {"enum": ["red", "green", 3, None, "日本", "<|end|>"]},
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    "number": {"type": "number", "minimum": -2, "maximum": 2},
    "string": {"type": "string", "minLength": 3, "maxLength": 8},
    "pattern": {"type": "string", "pattern": "^[A-C]{2}[0-9]{1,3}$"},
    "const": {"const": {"a": [1, "é"]}},
    "nested": {
        "type": "object",
        "properties": {
            "point": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                "required": ["x", "y"],
                "additionalProperties": False,
            },
            "tags": {"type": "array", "items": SHORT, "maxItems": 2},
        },
        "required": ["point", "tags"],
        "additionalProperties": False,
    },
    "optional": {
        "type": "object",
        "properties": {"a": {"type": "null"}, "b": {"type": "boolean"}, "c": {"enum": ["x"]}},
        "additionalProperties": False,
    },
    "unicode keys": {
        "type": "object",
        "properties": {"ключ 🦙": {"enum": ["välue", "値"]}},
        "required": ["ключ 🦙"],
        "additionalProperties": False,
    },
    "any of": {"anyOf": [{"type": "boolean"}, {"type": "array", "items": False}]},
    "reference": {
        "$defs": {"leaf": {"enum": [1, 2]}},
        "type": "array",
        "items": {"$ref": "#/$defs/leaf"},
        "minItems": 1,
        "maxItems": 3,
    },
}
