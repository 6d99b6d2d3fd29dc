"""Files tokenizer.json that would take all memory or time; each is tested in its own process.

As a program with an empty folder, it prints a line of JSON with the outcome of each file.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

CPU_S = 3  # a bound of CPU time, not of wall time; refusing takes far less
MEMORY_BYTES = 1 << 30
MARK = "\u2581"


def _sequence(key: str, steps: list[dict[str, Any]], nested: bool = False) -> dict[str, Any]:
    if nested and len(steps) > 1:
        return {"type": "Sequence", key: [steps[0], _sequence(key, steps[1:], True)]}
    return {"type": "Sequence", key: steps}


def _replace(content: str, text: str = "", regex: str = "") -> dict[str, Any]:
    pattern = {"Regex": regex} if regex else {"String": text}
    return {"type": "Replace", "pattern": pattern, "content": content}


def _charsmap(replacement: bytes) -> dict[str, Any]:
    data = (0).to_bytes(4, "little") + replacement + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(data).decode()}


def _template(ids: int, texts: int = 1) -> dict[str, Any]:
    piece: dict[str, Any] = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [piece, *[text] * texts],
        "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0] * ids, "tokens": ["a"]}},
    }


def _normalizers(steps: list[dict[str, Any]], nested: bool = False) -> dict[str, Any]:
    return {"normalizer": _sequence("normalizers", steps, nested)}


def _decoders(steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {"decoder": _sequence("decoders", steps)}


def _token(content: str) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "special"), False)
    return {"id": 4, "content": content, "normalized": True, **flags}


_DOUBLE = _replace("aa", "a")
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}

BOMBS: dict[str, dict[str, Any]] = {
    **{f"{n} doublings": _normalizers([_DOUBLE] * n) for n in (20, 40, 60)},
    "nested doublings": _normalizers([_DOUBLE] * 40, nested=True),
    "doublings without types": {
        "normalizer": {"normalizers": [{k: v for k, v in _DOUBLE.items() if k != "type"}] * 40}
    },
    "doublings by a regex": _normalizers([_replace("aa", regex="a")] * 40),
    "doublings of an added token": {
        **_normalizers([_replace("zz", "z")] * 40),
        "added_tokens": [_token("z")],
    },
    "between characters": _normalizers([_replace("-", "")] * 40),
    "one long replacement": _normalizers([_replace("a" * 1_000_000, "a")]),
    "a long prefix": _normalizers([{"type": "Prepend", "prepend": "a" * 1_000_000}]),
    "many prefixes": _normalizers([{"type": "Prepend", "prepend": "a"}] * 60),
    "many steps": _normalizers([{"type": "NFC"}] * 100_000),
    "ligatures": _normalizers([_replace("\ufdfa", "\u0644"), {"type": "NFKD"}] * 12 + [_DOUBLE]),
    "a table of replacements": _normalizers([_charsmap(b"a" * 1_000_000)]),
    "bytes of bytes": {"pre_tokenizer": _sequence("pretokenizers", [_BYTES] * 60)},
    "a decoder that doubles": _decoders([_replace("aa", "a")] * 40),
    "a decoder that spreads": _decoders([_replace("-", "")] * 40),
    "a decoder of suffixes": _decoders([{"type": "BPEDecoder", "suffix": ""}] * 60),
    "ten million ids": {"post_processor": _template(10_000_000)},
    "ids of many templates": {"post_processor": _sequence("processors", [_template(200)] * 60)},
    "texts of many templates": {"post_processor": _sequence("processors", [_template(1, 2)] * 40)},
    "a prefix of each character": {"model": {"continuing_subword_prefix": "a" * 1_000_000}},
    "a long piece": {"model": {"vocab": {"a": 0, "b": 1, "a" * 1_000_000: 2}}},
    # Panics of the Rust library
    "strip more than there is": {
        "decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 2}
    },
    "chunks of nothing": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "no table": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
    "an empty trie": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"}},
}


def write(folder: Path, bomb: dict[str, Any]) -> None:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "x": 2, MARK: 3}, "merges": []}
    state = {"version": "1.0", **bomb, "model": {**model, **bomb.get("model", {})}}
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(state), "utf-8")


def _try(folder: Path) -> str:
    from onward.errors import TokenizerError
    from onward.text.streaming import TextStream
    from onward.text.tokenizer.tokenizer import Tokenizer

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        tokenizer = Tokenizer.from_folder(folder)
        tokenizer.encode("abx \u0644")
    except TokenizerError as error:
        return str(error)
    outcomes = []
    for call in (
        lambda: tokenizer.decode([0, 1]),
        lambda: TextStream(tokenizer, [0]).push(1),
        lambda: TextStream(tokenizer, [0]).finish(),
    ):
        try:
            call()
        except TokenizerError as error:
            outcomes.append(str(error))
        else:
            outcomes.append("accepted")
    return outcomes[0] if len(set(outcomes)) == 1 else str(outcomes)


def main(root: Path) -> None:
    warnings.simplefilter("ignore")
    import onward.text.streaming  # noqa: F401, before the fork

    found = {}
    for name, bomb in BOMBS.items():
        folder = root / name.replace(" ", "-")
        write(folder, bomb)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                text = _try(folder)
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"[:200]
            os.write(writing, text.encode("utf-8", "replace"))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            text = pipe.read().decode()
        _, status = os.waitpid(child, 0)
        found[name] = text or f"killed: {status}"
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
