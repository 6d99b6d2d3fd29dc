"""Tokenizers, templates, packs, sessions and saved comparisons for the fuzzer, and the reader of
each damaged file.
"""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import numpy as np

from builders import packs, session_files, talking, tiny_tokenizers
from builders.checkpoints import TINY_GGUF, config_of, gguf_bytes, tiny_gguf_tensors
from builders.compare_sides import FIRST, rounds
from builders.mutations import Change, Target, damage, damaged, framed_header, other_value
from onward import LLM
from onward.lab.compare import result_file
from onward.lab.compare.side import Footprint, Text
from onward.text.template.template import ChatTemplate
from onward.text.tokenizer.tokenizer import Tokenizer

TEMPLATE = (
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.n = ns.n + 1 %}{{ '[%d] ' | format(ns.n) }}{% endif %}{{ m.role | upper ~ ': ' }}"
    "{{ m.content.strip().split('\\n')[0] | trim }}{{ eos_token }}{% endfor %}"
    "{% macro end(x) %}{{ x }}{% endmacro %}{{ end('>') if add_generation_prompt }}"
)
HI = [{"role": "system", "content": "s"}, {"role": "user", "content": "hi\nthere é"}]


def of_tokenizer(folder: Path, name: str, change: Change | None = None) -> Target:
    """One file of a tokenizer folder: it is read, then texts are encoded and decoded, and a
    conversation is rendered."""
    config = {
        "eos_token": "<|end|>",
        "bos_token": {"content": "<|begin|>", "lstrip": False},
        "added_tokens_decoder": {"256": {"content": "<|end|>", "special": True}},
        "chat_template": TEMPLATE,
        "add_bos_token": True,
    }
    files = {
        "special_tokens_map.json": json.dumps({"pad_token": "<|end|>"}),
        "added_tokens.json": json.dumps({"<|begin|>": 257}),
    }
    if name.endswith(".jinja"):
        files[name] = TEMPLATE
    backend = tiny_tokenizers.byte_level([("a", "b")], ["<|end|>", "<|begin|>"])
    tiny_tokenizers.write_folder(folder, backend, config, files)

    def outcome() -> None:
        tokenizer = Tokenizer.from_folder(folder)
        ids = tokenizer.encode("ab <|end|> é")
        tokenizer.decode([*ids, 0, 255])
        ChatTemplate.from_folder(folder, tokenizer).render(HI)

    file = folder / name
    return Target(file, change or damaged(file.stat().st_size), outcome)


def gguf_tokenizer(folder: Path) -> Target:
    """The metadata of a GGUF file with a tokenizer and a template, loaded completely."""
    path = folder / "m.gguf"
    facts = {**TINY_GGUF, **tiny_tokenizers.gguf_byte_level()}
    facts["tokenizer.chat_template"] = TEMPLATE
    tensors = tiny_gguf_tensors(config_of(vocab_size=320))
    path.write_bytes(gguf_bytes(facts, tensors))
    head = path.stat().st_size - sum(len(tensor.data) for tensor in tensors.values())

    def outcome() -> None:
        with LLM(path, threads=1) as llm:
            llm.detokenize(llm.tokenize("ab é"))
            llm.chat_token_ids(HI)

    return Target(path, damaged(head), outcome)


def pack(folder: Path, *, signed: bool) -> Target:
    """A pack; ``signed``: its texts are changed, with a checksum that fits."""
    path = packs.tiny_pack(folder)
    head = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    texts = folder / "changed.onward"

    def change(data: bytes, source: random.Random) -> bytes:
        if not signed:
            way = source.choice([framed_header, damaged(head)])
            return way(data, source)
        texts.write_bytes(data)
        parts = packs.parts_of(texts)
        name = source.choice(sorted(parts.metadata))
        text = parts.metadata[name].encode()
        try:
            parts.metadata[name] = other_value(text, source).decode()
        except (ValueError, TypeError, IndexError):  # not JSON, or JSON without places
            parts.metadata[name] = damage(text, len(text), source).decode("utf-8", "replace")
        return packs.put_together(parts)

    def outcome() -> None:
        with LLM(path, threads=1) as llm:
            llm.generate([1, 2], max_new_tokens=1)
            llm.chat_token_ids(HI)

    return Target(path, change, outcome)


def session(folder: Path, *, signed: bool) -> Target:
    """A saved session; ``signed``: its conversation is changed, with a hash that fits."""
    llm = LLM(talking.write_talking(folder / "m", num_layers=1), dtype="f32", threads=1)
    path = folder / "saved.session"
    talking.talked(llm, tokens=3).save(path)
    whole = folder / "changed.session"

    def change(data: bytes, source: random.Random) -> bytes:
        if not signed:
            return source.choice([framed_header, damaged(4096)])(data, source)
        whole.write_bytes(data)
        parts = session_files.read_parts(whole)
        text = other_value(parts.tensors["conversation"].tobytes(), source)
        parts.tensors["conversation"] = np.frombuffer(text, np.uint8)
        session_files.write_parts(whole, parts)
        return whole.read_bytes()

    def outcome() -> None:
        llm.session(max_new_tokens=2).load(path)

    return Target(path, change, outcome)


def comparison(folder: Path) -> Target:
    """A saved side of ``onward compare``."""
    path = folder / "side.npz"
    logits = (np.random.default_rng(0).standard_normal((4, 300)).astype(np.float32),)
    texts = (Text((1, 2, 3), (4,) * 4),)
    saved = result_file.Saved(FIRST, Footprint(1.0, 1, 2), texts, rounds(1, None), logits)
    result_file.save(saved, str(path))

    def change(data: bytes, source: random.Random) -> bytes:
        # A zip archive has headers at both ends; the JSON is at the beginning.
        if source.random() < 0.5:
            return damage(data, 3000, source)
        return damage(data[::-1], 600, source)[::-1]

    return Target(path, change, lambda: result_file.load(str(path)))


TEXTS = {
    "tokenizer": partial(of_tokenizer, name="tokenizer.json"),
    "tokenizer-values": partial(of_tokenizer, name="tokenizer.json", change=other_value),
    "tokenizer-config": partial(of_tokenizer, name="tokenizer_config.json", change=other_value),
    "special-tokens": partial(of_tokenizer, name="special_tokens_map.json", change=other_value),
    "added-tokens": partial(of_tokenizer, name="added_tokens.json", change=other_value),
    "template": partial(of_tokenizer, name="chat_template.jinja"),
    "gguf-tokenizer": gguf_tokenizer,
    "pack": partial(pack, signed=False),
    "pack-texts": partial(pack, signed=True),
    "session": partial(session, signed=False),
    "session-texts": partial(session, signed=True),
    "comparison": comparison,
}
