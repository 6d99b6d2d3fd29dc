"""The tokenizer of a GGUF file, from its tokenizer.ggml.* metadata.

Two kinds exist in practice: `gpt2`, byte-level BPE with explicit merges and a named pre-tokenizer,
and `llama`, SentencePiece BPE with a score for each piece and byte fallback.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onward.errors import TokenizerError
from onward.machine.caller import warn_caller
from onward.message_text import shown
from onward.text.gguf.keys import MAX_MERGES, MAX_TOKENS, PREFIX, TokenizerKeys
from onward.text.gguf.markers import (
    BYTE,
    CONTROL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    ends_of_answers,
    token_types,
)
from onward.text.gguf.splittings import SPLITTINGS, Splitting
from onward.text.template.template import gguf_templates
from onward.text.tokenizer.tokenizer import Tokenizer
from onward.text.tokenizer.trial import TextTrial, trial_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from tokenizers.pre_tokenizers import PreTokenizer
_NO_TOKENIZER = (None, "none", "no_vocab")
_SPACE = "\u2581"  # SentencePiece's visible space
# Control and user-defined tokens; the largest published files have about 6,500.
_MAX_ADDED = 1 << 16
# Limits of a SentencePiece vocabulary: characters of its pieces, and merge rules made from them.
# The.
# largest published one, with 262,144 pieces, has about 2 million and 600,000: two rules per piece.
_MAX_PIECE_CHARACTERS = 1 << 23
_MAX_RULES = 1 << 20
_RULES_FOR_A_PIECE, _MORE_RULES = 8, 1 << 16
_LONGEST_MERGED = 512  # characters; a longer piece is never the result of merges

# The name of a special token -> its key before "_token_id". Such a token may be missing.
_OPTIONAL = {
    **{"pad": "padding", "unk": "unknown", "sep": "seperator", "cls": "cls", "mask": "mask"},
    **{"eot": "eot", "eom": "eom"},
}
_ENDS = ("eot", "eom")
# The spelling of pieces without one of their own: noncharacters, which no text contains.
_SPARE = "\ufdd0{}\ufdd1"


def has_tokenizer(metadata: Mapping[str, Any]) -> bool:
    """Whether the file says that it has a tokenizer, of a supported kind or not."""
    return metadata.get(PREFIX + "model") not in _NO_TOKENIZER


def read_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that `metadata` describes.

    Warns about ids out of range of tokens that generation does not need, and about ordinary pieces
    that look like control tokens.

    Raises:
        TokenizerError: a key is missing or malformed, the kind or its pre-tokenizer is unknown, or
            the vocabulary is larger than the limits.
    """
    keys = TokenizerKeys(metadata)
    kind = keys.get("model")
    if kind not in ("gpt2", "llama"):
        raise keys.wrong("model", f"{shown(kind)} is not supported, expected gpt2 or llama")
    tokens = keys.strings("tokens", MAX_TOKENS)
    count = len(tokens)
    ids = {name: keys.needed_id(f"{name}_token_id", count) for name in ("bos", "eos")}
    for name, key in _OPTIONAL.items():
        ids[name] = keys.optional_id(f"{key}_token_id", count)
    named = [i for i in ids.values() if i is not None]
    sources = gguf_templates(metadata)
    given = keys.integers("token_type", count)
    merges = keys.strings("merges", MAX_MERGES) if kind == "gpt2" else []
    types = token_types(tokens, given, named, sources.values(), merges)
    tokens, spare = _distinct(keys, tokens, types, named)
    _check_added(keys, types, spare)
    vocabulary = {token: i for i, token in enumerate(tokens)}
    unknown = ids["unk"]
    try:
        if kind == "gpt2":
            backend, adds_bos = _byte_level(keys, vocabulary, merges)
        else:
            unk = tokens[unknown] if unknown is not None else None
            backend, adds_bos = _sentencepiece(keys, tokens, vocabulary, types, unk)
        _add_special(backend, tokens, types)
    except TokenizerError:
        raise
    except BaseException as error:  # a panic of the Rust library is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        raise TokenizerError(f"{PREFIX}*: it is not a usable tokenizer: {error}") from error
    special_tokens = {
        f"{name}_token": tokens[i] for name, i in ids.items() if i is not None and name not in _ENDS
    }
    ends = ends_of_answers(
        tokens,
        types,
        named=[i for name in ("eos", *_ENDS) if (i := ids[name]) is not None],
        unknown=unknown,
        templates=sources,
        special_tokens=special_tokens,
    )
    return Tokenizer(
        backend,
        special_tokens=special_tokens,
        add_bos=keys.flag("add_bos_token", adds_bos and "bos_token" in special_tokens),
        more_eos_ids=ends,
        trial=_trial(backend) if kind == "gpt2" else None,
        where="GGUF metadata tokenizer.ggml",
    )


def _trial(backend: Backend) -> TextTrial | None:
    """What tries texts first; None where the pre-tokenizer's time is in proportion to the text."""
    added = backend.get_added_tokens_decoder().items()
    state = {
        "normalizer": backend.normalizer and json.loads(backend.normalizer.__getstate__()),
        "pre_tokenizer": json.loads(backend.pre_tokenizer.__getstate__()),
        "added_tokens": [{"id": i, **token.__getstate__()} for i, token in added],
    }
    return trial_of(state, [], f"{PREFIX}pre")


def _distinct(
    keys: TokenizerKeys, tokens: Sequence[str], types: list[int], named: Sequence[int]
) -> tuple[list[str], int]:
    """The pieces with a unique spelling for each, and the number of changed spellings.

    Empty pieces, and unused pieces that are spelled like another one, keep their ids. They become
    control tokens without text and never result from text. `types` is changed accordingly.

    Raises:
        TokenizerError: two pieces that are in use have the same spelling.
    """
    first: dict[str, int] = {}
    in_use = set(named)
    spare = set()
    for i, token in enumerate(tokens):
        before = first.setdefault(token, i)
        if not token:
            spare.add(i)
        elif before != i:
            if i not in in_use and _unused(token, types[i]):
                spare.add(i)
            elif before not in in_use and _unused(token, types[before]):
                spare.add(before)
                first[token] = i
            else:
                raise keys.wrong("tokens", f"{shown(token)} occurs twice, as {before} and {i}")
    distinct = list(tokens)
    for i in spare:
        distinct[i] = _SPARE.format(i)
        types[i] = CONTROL
        if distinct[i] in first:
            raise keys.wrong("tokens", f"piece {first[distinct[i]]} is spelled in noncharacters")
    return distinct, len(spare)


def _unused(token: str, kind: int) -> bool:
    return kind == UNUSED or "unused" in token.lower()


def _check_added(keys: TokenizerKeys, types: Sequence[int], spare: int) -> None:
    added = sum(kind in (CONTROL, UNKNOWN, USER_DEFINED) for kind in types)
    if added > _MAX_ADDED:
        raise keys.wrong(
            "token_type",
            f"{added} control and user-defined tokens ({spare} of them empty or unused pieces), "
            f"expected at most {_MAX_ADDED}",
        )


def _byte_level(
    keys: TokenizerKeys, ids: dict[str, int], lines: Sequence[str]
) -> tuple[Backend, bool]:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers

    name = keys.get("pre")
    if name is None:
        name = "default"
        warn_caller(
            f"{PREFIX}pre: the key is missing, so text is cut into words as GPT-2 does; if the "
            "model cuts it in another way, its answers suffer: convert it anew"
        )
    splitting = SPLITTINGS.get(name) if isinstance(name, str) else None
    if splitting is None:
        raise keys.wrong(
            "pre",
            f"the pre-tokenizer {shown(name)} is not supported, expected one of "
            f"{', '.join(SPLITTINGS)}",
        )
    merges = []
    for i, line in enumerate(lines):
        left, _, right = line.partition(" ")
        if not left or not right:
            raise keys.wrong("merges", f"entry {i} is {shown(line)}, expected two pieces")
        merges.append((left, right))
    backend = Backend(models.BPE(ids, merges, ignore_merges=splitting.ignore_merges))
    if splitting.composed:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(splitting)
    backend.decoder = decoders.ByteLevel()
    return backend, splitting.adds_bos


def _pre_tokenizer(splitting: Splitting) -> PreTokenizer:
    from tokenizers import Regex, pre_tokenizers

    steps: list[PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in splitting.patterns
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps)


def _sentencepiece(
    keys: TokenizerKeys,
    tokens: Sequence[str],
    ids: dict[str, int],
    types: Sequence[int],
    unk: str | None,
) -> tuple[Backend, bool]:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers

    scores = keys.numbers("scores", len(tokens))
    plain = [kind not in (UNKNOWN, CONTROL, BYTE) for kind in types]
    backend = Backend(
        models.BPE(
            ids,
            _merges_of_scores(keys, tokens, ids, scores, plain),
            unk_token=unk,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix_space = keys.flag("add_space_prefix", True)
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
    keys: TokenizerKeys,
    tokens: Sequence[str],
    ids: dict[str, int],
    scores: Sequence[float],
    plain: Sequence[bool],
) -> list[tuple[str, str]]:
    """Merge rules that behave as SentencePiece does: the pair whose result has the best score is
    merged first. Every way to cut a piece into two pieces is a rule with the rank of that piece.
    Both the work and the number of rules are bounded."""
    merged = [i for i, token in enumerate(tokens) if plain[i] and len(token) <= _LONGEST_MERGED]
    characters = sum(len(tokens[i]) for i in merged)
    if characters > _MAX_PIECE_CHARACTERS:
        raise keys.wrong(
            "tokens",
            f"the pieces have {characters} characters, expected at most {_MAX_PIECE_CHARACTERS}",
        )
    rules: list[tuple[float, int, int]] = []
    for number, i in enumerate(merged):
        token = tokens[i]
        limit = min(_MAX_RULES, _RULES_FOR_A_PIECE * number + _MORE_RULES)
        if len(rules) > limit:
            raise keys.wrong(
                "tokens",
                f"{number} pieces can be made by merging two others in {len(rules)} ways, "
                f"expected at most {limit}",
            )
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
        if kind in (CONTROL, UNKNOWN):
            special.append(AddedToken(token, special=True, normalized=False))
        elif kind == USER_DEFINED:
            ordinary.append(AddedToken(token, special=False, normalized=False))
    backend.add_special_tokens(special)
    backend.add_tokens(ordinary)
