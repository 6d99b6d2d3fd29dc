r"""Regular expressions of real tokenizers whose time grows in proportion to the text.

Oniguruma, the engine of `tokenizers`, tries other ways to match where one fails. With some patterns
the number of ways grows with the square of the text's length, or exponentially, and no simple rule
tells these from harmless ones. So the harmless ones are listed: each was measured on long runs of
letters, digits, spaces, line ends, symbols and marks. trial.py deals with all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onward.text.gguf.splittings import SPLITTINGS

MAX_STRING = 64  # characters of a plain string to search for; each start may compare all of them
MAX_WORDPIECE_CHARACTERS = 100  # of a word; the time grows with the cube of them
MAX_UNIGRAM_PIECE = 32  # characters; each start may compare all pieces that fit there

# `\s+$` and a look ahead over all digits begin anew at each character of a long run, and
# `\s{512}` looks for a line end in the rest of the run each time.
_SLOW_SPLITTINGS = ("deepseek-llm", "superbpe", "tiny_aya", "cohere2moe", "jais-2")
_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_EACH_CASE = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_MORE = (
    # The GPT-2, cl100k and o200k families in other spellings.
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+",
    *(f"{_EACH_CASE}{_WORD}{digits}{_REST}" for digits in (r"\p{N}", r"\p{N}{1,3}")),
    f"{_CONTRACTION}{_WORD}\\p{{N}}{{1,2}}{_REST}",
    # CLIP.
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    # Classes of DeepSeek and BLOOM, spelled in characters.
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",
    " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    # One class alone, as normalizers (T5, ALBERT, CLIP) and chains of splits have it.
    *(r" {2,}", r" +", r"\s+", r"\s{2,}", r"\s", r"\n", r"\n+", r"\r\n", r"[\r\n]+", r"\S+"),
    *(r"\d", r"\d+", r"\d{1,3}", r"[0-9]", r"[0-9]+", r"[0-9]{1,3}", r"\p{N}+"),
    *(r"\w+", r"\w+|[^\w\s]+", r"[^\w\s]+", r"\p{L}+", r"\p{P}", r"[\p{P}]", r"[\p{Han}]+", r"."),
)
LINEAR = frozenset(_MORE) | {
    pattern
    for name, splitting in SPLITTINGS.items()
    if name not in _SLOW_SPLITTINGS
    for pattern in splitting.patterns
}


def unproven(state: Mapping[str, Any]) -> list[str]:
    """What may make the time of a tokenizer.json grow faster than the text, each as a phrase."""
    found = {}
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        for kind, text in _patterns(state.get(part)):
            if kind == "Regex" and text not in LINEAR:
                found[f"the regular expression {text!r} of {part}"] = True
            elif kind == "String" and len(text) > MAX_STRING:
                found[f"the string of {len(text)} characters that {part} searches for"] = True
    return [*found, *unproven_model(state)]


def unproven_model(state: Mapping[str, Any]) -> list[str]:
    """What may make the time of the model in a tokenizer.json grow faster than the text."""
    model = state.get("model")
    if not isinstance(model, Mapping):
        return []
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int) and longest > MAX_WORDPIECE_CHARACTERS:
        return [f"model.max_input_chars_per_word of {longest}"]
    pieces = model.get("vocab")
    if isinstance(pieces, list):  # of a Unigram model
        texts = (entry[0] for entry in pieces if isinstance(entry, list) and entry)
        longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
        if longest > MAX_UNIGRAM_PIECE:
            return [f"a Unigram piece of {longest} characters"]
    return []


def _patterns(part: object) -> Iterator[tuple[str, str]]:
    """The kind and text of each pattern in a part of the file, however deep it stands."""
    pending = [part]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            pattern = value.get("pattern")
            if isinstance(pattern, Mapping):
                for kind, text in pattern.items():
                    if isinstance(text, str):
                        yield str(kind), text
            pending += value.values()
        elif isinstance(value, list):
            pending += value
