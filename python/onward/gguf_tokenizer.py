"""A `tokenizers.Tokenizer` from the tokenizer.ggml.* metadata of a GGUF file.

Two kinds exist in practice: `gpt2`, byte-level BPE with explicit merges and a named pre-tokenizer,
and `llama`, SentencePiece BPE with a score a piece and byte fallback. It does not know how the
metadata is stored in the file, nor what becomes of the tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onward.errors import TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.pre_tokenizers import PreTokenizer

_KEY = "tokenizer.ggml."
_MAX_TOKENS = 1 << 22
_SPACE = "\u2581"  # SentencePiece's visible space

# Values of tokenizer.ggml.token_type
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}"
)


@dataclass(frozen=True)
class _Splitting:
    """How a pre-tokenizer cuts text into words before the merges."""

    pattern: str = ""  # empty: the pattern of GPT-2
    digits_alone: bool = False
    composed: bool = False  # Unicode NFC first
    ignore_merges: bool = False  # a word that is one token is that token
    adds_bos: bool = False  # when the file does not say


_GPT2 = _Splitting()
_LLAMA3 = _Splitting(
    rf"{_WORDS}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_REST}", ignore_merges=True, adds_bos=True
)
_QWEN2 = _Splitting(rf"{_WORDS}|\p{{N}}|{_SYMBOLS}|{_REST}", composed=True)

SPLITTINGS: Mapping[str, _Splitting] = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "smollm": _Splitting(digits_alone=True),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": _Splitting(_TEKKEN, ignore_merges=True, adds_bos=True),
}


@dataclass
class Built:
    """What a GGUF file says about its tokenizer."""

    backend: Backend
    special_tokens: dict[str, str]
    add_bos: bool
    add_eos: bool
    more_eos_ids: list[int] = field(default_factory=list)


def build(metadata: Mapping[str, Any]) -> Built:
    """Build the tokenizer that `metadata` describes.

    Raises:
        TokenizerError: a key is missing or malformed, or the kind or its pre-tokenizer is unknown.
    """
    kind = metadata.get(_KEY + "model")
    if kind not in ("gpt2", "llama"):
        raise TokenizerError(
            f"{_KEY}model: {_short(kind)} is not supported, expected gpt2 or llama"
        )
    tokens = _strings(metadata, "tokens")
    ids: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if ids.setdefault(token, i) != i:
            raise TokenizerError(
                f"{_KEY}tokens: {_short(token)} occurs twice, as {ids[token]} and {i}"
            )
    types = _integers(metadata, "token_type", len(tokens))
    unknown = _token_id(metadata, "unknown_token_id", len(tokens))
    try:
        if kind == "gpt2":
            backend, adds_bos = _byte_level(metadata, ids)
        else:
            unk = tokens[unknown] if unknown is not None else None
            backend, adds_bos = _sentencepiece(metadata, tokens, ids, types, unk)
        _add_special(backend, tokens, types)
    except TokenizerError:
        raise
    except BaseException as error:  # a panic of the Rust library is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        raise TokenizerError(f"{_KEY}*: it is not a usable tokenizer: {error}") from error
    special_tokens = {}
    for name, key in (("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding")):
        named = _token_id(metadata, f"{key}_token_id", len(tokens))
        if named is not None:
            special_tokens[name] = tokens[named]
    if unknown is not None:
        special_tokens["unk_token"] = tokens[unknown]
    ends = (_token_id(metadata, f"{key}_token_id", len(tokens)) for key in ("eot", "eom"))
    add_bos = _flag(metadata, "add_bos_token", adds_bos and "bos_token" in special_tokens)
    return Built(
        backend,
        special_tokens,
        add_bos=add_bos,
        add_eos=_flag(metadata, "add_eos_token", False),
        more_eos_ids=[i for i in ends if i is not None],
    )


def _byte_level(metadata: Mapping[str, Any], ids: dict[str, int]) -> tuple[Backend, bool]:
    from tokenizers import Tokenizer, decoders, models, normalizers

    name = metadata.get(_KEY + "pre", "default")
    splitting = SPLITTINGS.get(name) if isinstance(name, str) else None
    if splitting is None:
        raise TokenizerError(
            f"{_KEY}pre: the pre-tokenizer {_short(name)} is not known, "
            f"expected one of {', '.join(SPLITTINGS)}"
        )
    merges = []
    for i, line in enumerate(_strings(metadata, "merges")):
        left, _, right = line.partition(" ")
        if not left or not right:
            raise TokenizerError(f"{_KEY}merges: entry {i} is {_short(line)}, expected two pieces")
        merges.append((left, right))
    backend = Tokenizer(models.BPE(ids, merges, ignore_merges=splitting.ignore_merges))
    if splitting.composed:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(splitting)
    backend.decoder = decoders.ByteLevel()
    return backend, splitting.adds_bos


def _pre_tokenizer(splitting: _Splitting) -> PreTokenizer:
    from tokenizers import Regex, pre_tokenizers

    steps: list[PreTokenizer] = []
    if splitting.digits_alone:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if splitting.pattern:
        steps.append(pre_tokenizers.Split(Regex(splitting.pattern), behavior="isolated"))
    gpt2 = not splitting.pattern
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=gpt2))
    return pre_tokenizers.Sequence(steps)


def _sentencepiece(
    metadata: Mapping[str, Any],
    tokens: Sequence[str],
    ids: dict[str, int],
    types: Sequence[int],
    unk: str | None,
) -> tuple[Backend, bool]:
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = _numbers(metadata, "scores", len(tokens))
    plain = [kind not in (_UNKNOWN, _CONTROL, _BYTE) for kind in types]
    backend = Tokenizer(
        models.BPE(
            ids,
            _merges_of_scores(tokens, ids, scores, plain),
            unk_token=unk,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix_space = _flag(metadata, "add_space_prefix", True)
    replace = normalizers.Replace(" ", _SPACE)
    backend.normalizer = (
        normalizers.Sequence([normalizers.Prepend(_SPACE), replace]) if prefix_space else replace
    )
    steps: list[decoders.Decoder] = [
        decoders.Replace(_SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if prefix_space:
        steps.append(decoders.Strip(" ", 1, 0))
    backend.decoder = decoders.Sequence(steps)
    return backend, True


def _merges_of_scores(
    tokens: Sequence[str], ids: dict[str, int], scores: Sequence[float], plain: Sequence[bool]
) -> list[tuple[str, str]]:
    """Merge rules that act as SentencePiece does: the pair whose result scores best goes first.

    Every way of cutting a piece into two pieces is a rule of that piece's rank.
    """
    rules = []
    for i, token in enumerate(tokens):
        if not plain[i] or len(token) > 512:
            continue
        for cut in range(1, len(token)):
            left, right = ids.get(token[:cut]), ids.get(token[cut:])
            if left is not None and right is not None and plain[left] and plain[right]:
                rules.append((-scores[i], left, right))
    rules.sort()
    return [(tokens[left], tokens[right]) for _, left, right in rules]


def _add_special(backend: Backend, tokens: Sequence[str], types: Sequence[int]) -> None:
    from tokenizers import AddedToken

    special, ordinary = [], []
    for token, kind in zip(tokens, types, strict=True):
        if not token:
            continue
        if kind in (_CONTROL, _UNKNOWN):
            special.append(AddedToken(token, special=True, normalized=False))
        elif kind == _USER_DEFINED:
            ordinary.append(AddedToken(token, special=False, normalized=False))
    backend.add_special_tokens(special)
    backend.add_tokens(ordinary)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _array(metadata: Mapping[str, Any], key: str) -> list[Any]:
    value = metadata.get(_KEY + key)
    if value is None:
        raise TokenizerError(f"{_KEY}{key}: the key is missing")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise TokenizerError(f"{_KEY}{key}: found a {type(value).__name__}, expected an array")
    if len(value) > _MAX_TOKENS:
        raise TokenizerError(f"{_KEY}{key}: {len(value)} entries, expected at most {_MAX_TOKENS}")
    return list(value)


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    values = _array(metadata, key)
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise TokenizerError(f"{_KEY}{key}: entry {i} is {_short(value)}, expected a string")
    return values


def _integers(metadata: Mapping[str, Any], key: str, count: int) -> list[int]:
    if metadata.get(_KEY + key) is None:
        return [1] * count
    values = _array(metadata, key)
    if len(values) != count or not all(type(value) is int for value in values):
        raise TokenizerError(
            f"{_KEY}{key}: {len(values)} entries, expected {count} integers, one a token"
        )
    return values


def _numbers(metadata: Mapping[str, Any], key: str, count: int) -> list[float]:
    values = _array(metadata, key)
    if len(values) != count or not all(type(value) in (int, float) for value in values):
        raise TokenizerError(
            f"{_KEY}{key}: {len(values)} entries, expected {count} numbers, one a token"
        )
    return values


def _token_id(metadata: Mapping[str, Any], key: str, count: int) -> int | None:
    value = metadata.get(_KEY + key)
    if value is None:
        return None
    if hasattr(value, "item"):
        value = value.item()
    if type(value) is not int or not 0 <= value < count:
        if value == 0xFFFFFFFF:  # llama.cpp's "none"
            return None
        raise TokenizerError(f"{_KEY}{key}: found {_short(value)}, expected 0 to {count - 1}")
    return value


def _flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    value = metadata.get(_KEY + key, default)
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, bool):
        raise TokenizerError(f"{_KEY}{key}: found {_short(value)}, expected true or false")
    return value
