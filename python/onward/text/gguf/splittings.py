"""How the byte-level tokenizers of GGUF files cut text into words, by `tokenizer.ggml.pre`.

Each name means the pre-tokenizer of the model that first used it. The table is data; tokenizer.py
builds pre-tokenizers from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Splitting:
    """How text is cut into words before the merges."""

    patterns: tuple[str, ...]
    """Applied one after the other to the present pieces. A match is a piece, and so is the text
    between two matches."""
    composed: bool = False
    """Whether text is converted to Unicode's form NFC first."""
    ignore_merges: bool = False
    """Whether a word that is a token stays that token, without merges."""
    adds_bos: bool = False
    """Whether prompts begin with BOS if the file does not say."""


_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKED_WORD = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACE = r"\s+(?!\S)|\s+"
_LINES = r"\s*[\r\n]+"
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"
_THREE_DIGITS = r"\p{N}{1,3}"
_THREE_FROM_THE_END = r"\d{1,3}(?=(?:\d{3})*\b)"

# Words that begin with capitals, or are all capitals: a new word begins where a capital follows a
# small letter.
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_NOT_HAN = r"&&[^\p{Han}]"


def _cased(ending: str, restriction: str = "") -> str:
    upper, lower = f"[{_UPPER}{restriction}]", f"[{_LOWER}{restriction}]"
    lead = r"[^\r\n\p{L}\p{N}]?"
    return f"{lead}{upper}*{lower}+{ending}|{lead}{upper}+{lower}*{ending}"


def _any_of(*patterns: str) -> str:
    return "|".join(patterns)


_HAN_AND_KANA = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_HAN_AND_HANGUL = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
# Letters with case, except the blocks and scripts that the tokenizer leaves out.
_DEEPSEEK_LETTERS = (
    r"\s?[[\p{Lu}\p{Ll}\p{Lt}]&&[^\u0560-\u0588\u10c7-\u10ff\u1c80-\u1c8f\u2d00-\u2d2d"
    r"\ua790-\ua7ff\uab30-\uab6f\x{10570}-\x{105bf}\x{10d50}-\x{10d8f}\x{16e40}-\x{16e7f}"
    r"\x{1d400}-\x{1df2f}]]+"
)
_DEEPSEEK_SYMBOLS = r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_ASCII_SYMBOL_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
_MARKED_OR_SYMBOL_WORD = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_YOUTU_SCRIPTS = (
    r"[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
    r"\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_BLOOM_WORD = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_HALVING_SPACES = r"|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2"))

_GPT2 = Splitting((_GPT2_WORDS,))
_DIGITS_ALONE = Splitting((_DIGIT, _GPT2_WORDS))
_ONE_TO_THREE_DIGITS = Splitting(
    (_any_of(_CONTRACTION, _WORD, _THREE_DIGITS, _SYMBOLS, _LINES, _SPACE),)
)
_LLAMA3 = replace(_ONE_TO_THREE_DIGITS, ignore_merges=True, adds_bos=True)
_ONE_DIGIT = Splitting((_any_of(_CONTRACTION, _WORD, _DIGIT, _SYMBOLS, _LINES, _SPACE),))
_QWEN2 = replace(_ONE_DIGIT, composed=True)
_SYMBOLS_AND_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_GPT4O_PATTERN = _any_of(
    _cased(f"{_CONTRACTION}?"), _THREE_DIGITS, _SYMBOLS_AND_SLASHES, _LINES, _SPACE
)
_GPT4O = Splitting((_GPT4O_PATTERN,))
_DEEPSEEK_V3 = Splitting(
    (
        _THREE_DIGITS,
        _HAN_AND_KANA,
        _any_of(
            _ASCII_SYMBOL_WORD,
            _MARKED_OR_SYMBOL_WORD,
            r" ?[\p{P}\p{S}]+[\r\n]*",
            _LINES,
            _SPACE,
        ),
    )
)
_BLOOM = Splitting((_BLOOM_WORD,))
_BAILING = Splitting(
    (
        _any_of(
            r"'(?i:[sdmt]|ll|ve|re)",
            r"[^\r\n\p{L}\p{N}]?+\p{L}+",
            _DIGIT,
            r" ?[^\s\p{L}\p{N}]++[\r\n]*",
            r"\s*[\r\n]",
            _SPACE,
        ),
    )
)

SPLITTINGS: Mapping[str, Splitting] = {
    **dict.fromkeys(("default", "gpt-2", "phi-2", "jais", "trillion", "granite-docling"), _GPT2),
    **dict.fromkeys(("exaone4", "gigachat", "a.x-4.0", "mellum", "modern-bert"), _GPT2),
    **dict.fromkeys(("roberta-bpe", "jina-v1-en", "jina-v2-code", "jina-v2-es"), _GPT2),
    **dict.fromkeys(("jina-v2-de", "jina-es", "jina-de"), _GPT2),
    **dict.fromkeys(("mpt", "olmo"), replace(_GPT2, composed=True)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "exaone"), _DIGITS_ALONE),
    **dict.fromkeys(("minerva-7b", "mellum2"), _DIGITS_ALONE),
    "command-r": replace(_DIGITS_ALONE, composed=True),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1"), _LLAMA3),
    **dict.fromkeys(("pixtral", "midm-2.0", "lfm2", "jina-v5-nano"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"), _ONE_TO_THREE_DIGITS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"), _QWEN2),
    **dict.fromkeys(("stablelm2", "hunyuan", "solar-open", "grok-2"), _ONE_DIGIT),
    "qwen35": Splitting(
        (
            _any_of(
                _CONTRACTION,
                _MARKED_WORD,
                _DIGIT,
                r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
                _LINES,
                _SPACE,
            ),
        ),
        composed=True,
    ),
    "ufakzeka": Splitting((_any_of(_WORD, _DIGIT, _SYMBOLS, _LINES, _SPACE),)),
    "laguna": Splitting((r"[^\n]+|[\n]+", *_ONE_DIGIT.patterns)),
    "seed-coder": Splitting(
        (_any_of(_CONTRACTION, _WORD, _DIGIT, r" ?[^\s\p{L}\p{N}\r\n]+", _LINES, _SPACE),)
    ),
    "exaone-moe": Splitting(
        (
            _any_of(
                _CONTRACTION,
                r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
                _DIGIT,
                r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
                r"\s*[\r\n]",
                _SPACE,
            ),
        )
    ),
    "jais-2": Splitting(
        (_any_of(_CONTRACTION, _WORD, _THREE_DIGITS, _SYMBOLS, _LINES, _HALVING_SPACES, r"\s"),)
    ),
    "minicpm5": Splitting(
        (_THREE_DIGITS, _any_of(_CONTRACTION, _WORD, r"\p{N}+", _SYMBOLS, _LINES, _SPACE)),
        ignore_merges=True,
    ),
    "tekken": Splitting(
        (_any_of(_cased(""), _DIGIT, _SYMBOLS_AND_SLASHES, _LINES, _SPACE),),
        ignore_merges=True,
        adds_bos=True,
    ),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), Splitting((_THREE_FROM_THE_END, _GPT4O_PATTERN))),
    "kimi-k2": Splitting(
        (
            _any_of(
                r"[\p{Han}]+",
                _cased(f"{_CONTRACTION}?", _NOT_HAN),
                _THREE_DIGITS,
                _SYMBOLS,
                _LINES,
                _SPACE,
            ),
        )
    ),
    "deepseek-llm": Splitting(
        (r"[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_SYMBOLS, r"\s+$", _HAN_AND_HANGUL, _DIGIT)
    ),
    "deepseek-coder": Splitting((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_AND_HANGUL, _DIGIT)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _DEEPSEEK_V3),
    "spark2_5": Splitting(
        (
            _THREE_DIGITS,
            _HAN_AND_KANA,
            _any_of(
                _ASCII_SYMBOL_WORD,
                _MARKED_OR_SYMBOL_WORD,
                r" ?[\p{P}\p{S}]+",
                r"[\r\n]",
                _SPACE,
            ),
            _DIGIT,
        )
    ),
    "youtu": Splitting(
        (
            _YOUTU_SCRIPTS,
            _any_of(_cased(f"{_CONTRACTION}?"), _DIGIT, _SYMBOLS_AND_SLASHES, _LINES, _SPACE),
        ),
        ignore_merges=True,
    ),
    "falcon": Splitting((r"[\p{P}$+<=>^~|`]+", _GPT2_WORDS, r"[0-9][0-9][0-9]")),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), _BLOOM),
    "viking": Splitting((_BLOOM_WORD, _DIGIT)),
    "chameleon": Splitting(
        (
            r"<sentinel:[0-9]+>",
            r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            _DIGIT,
            r"[\p{P}!-/:-@\[-`{-~]",
            _GPT2_WORDS,
        ),
        adds_bos=True,
    ),
    "superbpe": Splitting((r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING),
}
