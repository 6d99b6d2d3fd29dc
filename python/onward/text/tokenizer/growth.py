"""How much larger a tokenizer.json can make a text, found from the file before it is used.

A normalizer, pre-tokenizer or decoder is a chain of steps, and each step may lengthen the text. A
short file with 40 steps that each double a text would take all memory. The bounds here are on the
number of steps, on the growth of each step and on the growth of the chain. Where a chain of
normalizers only might exceed the bound, `TextGrowth` measures the growth of each text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from onward.errors import TokenizerError
from onward.message_text import shown
from onward.text.tokenizer.checked_calls import failure

MAX_STEPS = 64
MAX_GROWTH = 16.0  # bytes after all steps for each byte before them
MAX_ADDED_BYTES = 256  # what one step may add to a text or put in place of a character
MAX_PREPENDED_BYTES = 16  # before a text, and after each special token in it
MAX_FRAME_IDS = 256  # ids that the post-processor adds to a text

_CHAINS = ("normalizers", "pretokenizers", "processors", "decoders")
# The most bytes that a step with this type makes of one byte. NFKD turns U+FDFA (3 bytes) into 33.
_GROWTH_OF_TYPE = {
    "NFC": 3.0,
    "NFD": 3.0,
    "NFKC": 11.0,
    "NFKD": 11.0,
    "Lowercase": 1.5,
    "BertNormalizer": 6.0,
    "ByteLevel": 2.0,
    "BPEDecoder": 2.0,
    "CTC": 2.0,
}


class TextGrowth:
    """Measures what a chain of normalizers makes of a text, one step at a time."""

    def __init__(self, steps: Iterable[Mapping[str, Any]], where: str) -> None:
        self._where = where
        self._normalizers = [_normalizer(step, where) for step in steps]

    def check(self, text: str) -> None:
        """TokenizerError where the normalizers make more of `text` than MAX_GROWTH allows."""
        limit = MAX_GROWTH * len(text.encode("utf-8", "surrogatepass")) + MAX_ADDED_BYTES
        grown = text
        for normalizer in self._normalizers:
            try:
                grown = normalizer.normalize_str(grown)
            except BaseException as error:
                raise failure(error, f"{self._where}: its normalizer failed on a text") from None
            if len(grown.encode("utf-8")) > limit:
                raise TokenizerError(
                    f"{self._where}: its normalizer makes a text of {len(text)} characters "
                    f"more than {MAX_GROWTH:g} times as long, expected at most that"
                )


def check_growth(state: Mapping[str, Any], where: str) -> TextGrowth | None:
    """Check the steps of a tokenizer.json; what measures texts where the check leaves a doubt.

    Raises:
        TokenizerError: a part has too many steps, or would make a text too long.
    """
    for part in ("pre_tokenizer", "decoder"):
        steps = _steps(state, part, where)
        growth = prod(_growth(step, part, where) for step in steps)
        if growth > MAX_GROWTH:
            raise TokenizerError(
                f"{where}: {part} makes a text up to {growth:.3g} times as long, "
                f"expected at most {MAX_GROWTH:g} times"
            )
    _check_post_processor(_steps(state, "post_processor", where), where)
    model = state.get("model")
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        value = model.get(key) if isinstance(model, Mapping) else None
        if isinstance(value, str) and len(value) > MAX_ADDED_BYTES:
            raise TokenizerError(
                f"{where}: model.{key} has {len(value)} characters, "
                f"expected at most {MAX_ADDED_BYTES}"
            )
    steps = _steps(state, "normalizer", where)
    prepended = sum(_bytes(t) for step in steps if isinstance(t := step.get("prepend"), str))
    if prepended > MAX_PREPENDED_BYTES:
        raise TokenizerError(
            f"{where}: normalizer puts {prepended} bytes before a text, "
            f"expected at most {MAX_PREPENDED_BYTES}"
        )
    if prod(_growth(step, "normalizer", where) for step in steps) <= MAX_GROWTH:
        return None
    return TextGrowth(steps, where)


def _steps(state: Mapping[str, Any], part: str, where: str) -> list[Mapping[str, Any]]:
    """The steps of a part in order, nested sequences included."""
    pending = [state.get(part)]
    steps: list[Mapping[str, Any]] = []
    visited = 0
    while pending:
        step = pending.pop()
        visited += 1
        if visited > MAX_STEPS:
            raise TokenizerError(
                f"{where}: {part} has more than {MAX_STEPS} steps, expected at most {MAX_STEPS}"
            )
        if not isinstance(step, Mapping):
            continue  # the library refuses what is not a step
        inner = next((step[key] for key in _CHAINS if isinstance(step.get(key), list)), None)
        if inner is None:
            steps.append(step)
            continue
        if len(step) > 2 or step.get("type", "Sequence") != "Sequence":
            # The library ignores the keys that a step's type does not have.
            raise TokenizerError(
                f"{where}: {part} has a step that is a sequence and something else, "
                f"{shown(dict(step))}, expected one of the two"
            )
        pending += inner[: MAX_STEPS + 1][::-1]
    return steps


def _growth(step: Mapping[str, Any], part: str, where: str) -> float:
    """The most bytes that a step makes of one byte. Steps are known by their keys, because the
    library also reads steps without a type."""
    pattern, content = step.get("pattern"), step.get("content")
    growth = 1.0
    added = 0
    if isinstance(pattern, Mapping) and isinstance(content, str):
        added = _bytes(content)
        found = pattern.get("String")
        if isinstance(found, str) and found:
            growth = max(1.0, added / _bytes(found))
        else:  # a regular expression may match nothing at all, between two characters
            growth = 1.0 + added
    elif isinstance(step.get("prepend"), str):
        growth = 1.0 + _bytes(step["prepend"])
    elif "precompiled_charsmap" in step:
        added = _longest_replacement(step["precompiled_charsmap"])
        growth = max(1.0, float(added))
    elif isinstance(step.get("replacement"), str):  # Metaspace
        growth = max(1.0, float(_bytes(step["replacement"])))
    else:
        growth = _GROWTH_OF_TYPE.get(str(step.get("type")), 1.0)
    if added > MAX_ADDED_BYTES:
        raise TokenizerError(
            f"{where}: {part} has a step that inserts {added} bytes, "
            f"expected at most {MAX_ADDED_BYTES}"
        )
    return growth


def _longest_replacement(value: object) -> int:
    """Bytes of the longest text in a SentencePiece table of replacements: a trie, with its size in
    the first four bytes, and then texts that end in a zero byte."""
    try:
        data = base64.b64decode(value if isinstance(value, str) else "", validate=True)
    except ValueError:
        return 0  # the library refuses it
    trie = int.from_bytes(data[:4], "little")
    return max(map(len, data[4 + trie :].split(b"\0")))


def _check_post_processor(steps: Iterable[Mapping[str, Any]], where: str) -> None:
    added = 0
    for step in steps:
        known = step.get("special_tokens")
        for name in ("single", "pair"):
            pieces = step.get(name)
            if not isinstance(pieces, list):
                continue
            added += len(pieces)
            texts = sum(isinstance(piece, Mapping) and "Sequence" in piece for piece in pieces)
            if name == "single" and texts != 1:
                raise TokenizerError(
                    f"{where}: post_processor.single has the text {texts} times, expected once"
                )
        if isinstance(known, Mapping):
            for token in known.values():
                ids = token.get("ids") if isinstance(token, Mapping) else None
                added += len(ids) if isinstance(ids, list) else 0
    if added > MAX_FRAME_IDS:
        raise TokenizerError(
            f"{where}: post_processor has {added} pieces and ids, expected at most {MAX_FRAME_IDS}"
        )


def _normalizer(step: Mapping[str, Any], where: str) -> Any:
    from tokenizers import Tokenizer as Backend

    model = {"type": "BPE", "vocab": {}, "merges": []}
    text = json.dumps({"version": "1.0", "normalizer": step, "model": model})
    try:
        return Backend.from_str(text).normalizer
    except BaseException as error:
        reason = f"{where}: it is not a usable tokenizer: the normalizer {shown(dict(step))}"
        raise failure(error, reason) from None


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
