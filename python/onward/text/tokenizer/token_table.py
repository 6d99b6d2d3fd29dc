"""A tokenizer's vocabulary as bytes, in the form in which llguidance reads it.

A grammar is about the bytes of the output, so each token is entered with the bytes it adds to a
text. Where a decoder treats the beginning of a text differently (SentencePiece drops a space
there), a token has a second entry, its start form, for the case that it is the first with text.

Special tokens are entered by name, apart from all text: only a grammar that names one reaches it.
The end of the output is an entry of its own, because each request brings its own stop tokens.
It does not know options, grammars or outputs.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onward.errors import Error, MissingExtra
from onward.machine.extras import install_command
from onward.text.decoding import Decoding
from onward.text.tokenizer import checked_calls

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from onward.text.tokenizer.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"
# With these decoders, what a token adds to a text depends on the tokens after it.
_FORESEEING = {"BPEDecoder", "CTC"}
_END = b"\x00end"  # a name that no grammar can write
_COMPILED = 16  # grammars of one model that are kept


class TokenTable:
    """The tokens of one model.

    Attributes:
        vocab_size: rows of the model. Those without a token, and those whose token has no text,
            are in no mask.
        start_ids: the tokens that have a start form.
        start_entries: the entries of these forms, in the same order.
        silent_ids: the tokens that add nothing at the start of a text, but do inside.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        """Raises Error where the tokenizer's decoder does not give tokens bytes of their own, and
        MissingExtra without llguidance."""
        try:
            from llguidance import LLTokenizer
        except ImportError as failure:
            raise MissingExtra(
                "json_schema, regex, choices, grammar: llguidance is not installed, expected it "
                f"for constrained output: {install_command('grammar')}"
            ) from failure
        decoding = tokenizer.decoding
        foreseeing = _FORESEEING.intersection(decoding.steps)
        if foreseeing:
            raise Error(
                f"tokenizer: its decoder is {min(foreseeing)}, where the text of a token depends "
                "on the next one; expected one that constrained output can follow"
            )
        self.vocab_size = vocab_size
        inside, start = _bytes_of_tokens(tokenizer, decoding, vocab_size)
        special = _named_only(tokenizer, vocab_size)
        for i, name in special.items():
            inside[i] = start[i] = name.encode("utf-8")
        changed = [i for i in range(vocab_size) if start[i] not in (inside[i], b"")]
        silent = [i for i in range(vocab_size) if inside[i] and not start[i]]
        self.start_ids = np.array(changed, dtype=np.int64)
        self.start_entries = np.arange(vocab_size, vocab_size + len(changed))
        self.silent_ids = np.array(silent, dtype=np.int64)
        self._pieces = inside
        self._start_pieces = {i: start[i] for i in [*changed, *silent]}
        self._at_start = {i: [vocab_size + n] for n, i in enumerate(changed)}
        self._at_start.update((i, []) for i in silent)
        end = vocab_size + len(changed)
        entries = [*inside, *(start[i] for i in changed), _END]
        source = _Entries(entries, [*special, end], end)
        self._tokenizer: LLTokenizer = LLTokenizer(source)  # type: ignore[arg-type]
        self.matcher = lru_cache(_COMPILED)(self._matcher)

    def _matcher(self, grammar: str) -> LLMatcher:
        """A matcher at the beginning of `grammar`; shared, so only to be copied. It has an error
        where the grammar has one, and where no token can begin."""
        from llguidance import LLMatcher

        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if not matcher.is_error():
            matcher.compute_bitmask()
        return matcher

    def piece(self, token: int, at_start: bool) -> bytes:
        """The bytes that a token adds to a text, in the middle of it or as the first."""
        inside = self._pieces[token]
        return self._start_pieces.get(token, inside) if at_start else inside

    def at_start(self, token: int) -> list[int]:
        """The entry of a token that begins a text; none where it adds nothing to it."""
        return self._at_start.get(token, [token])

    def mask(self, matcher: LLMatcher) -> NDArray[np.bool_]:
        """Of each entry, whether it may come next."""
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        return np.unpackbits(bits, bitorder="little").view(np.bool_)


class _Entries:
    """What LLTokenizer asks of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], special_token_ids: list[int], end: int) -> None:
        self.tokens = tokens
        self.special_token_ids = special_token_ids
        self.eos_token_id = end

    def __call__(self, text: str) -> list[int]:
        """Only for grammars that let llguidance choose the tokens of a text; ours never do."""
        raise Error(f"constraint: llguidance asked for the tokens of {text!r}")


_tables: weakref.WeakKeyDictionary[Tokenizer, dict[int, TokenTable]] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def _renew_lock() -> None:
    global _making
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def table_of(tokenizer: Tokenizer, vocab_size: int) -> TokenTable:
    """The table of a model, made once. It takes up to some 30 MB to make, so threads that need it
    at the same time wait for one of them."""
    with _making:
        tables = _tables.setdefault(tokenizer, {})
        if vocab_size not in tables:
            tables[vocab_size] = TokenTable(tokenizer, vocab_size)
        return tables[vocab_size]


def _named_only(tokenizer: Tokenizer, vocab_size: int) -> dict[int, str]:
    """Tokens that no text of a grammar is spelled with: the special ones, and added ones that look
    like a mark (`<tool_call>`), whose text models take for an instruction all the same."""
    found = {}
    for i, token in tokenizer.backend.get_added_tokens_decoder().items():
        mark = token.content.startswith("<") and token.content.endswith(">")
        if i < vocab_size and (token.special or mark):
            found[i] = token.content
    return found


def _bytes_of_tokens(
    tokenizer: Tokenizer, decoding: Decoding, vocab_size: int
) -> tuple[list[bytes], list[bytes]]:
    """What each token adds to a text inside of it, and at its start; nothing where there is no
    such token."""
    known = [i for i in range(vocab_size) if tokenizer.id_to_token(i) is not None]
    inside = [b""] * vocab_size
    if decoding.kind == "bytes":
        for i in known:
            inside[i] = decoding.piece(i)
        return inside, inside
    start = list(inside)
    alone = _decoded(tokenizer, [[i] for i in known])
    before = _plainest(decoding, known, alone)
    shown = tokenizer.decode(before)
    pairs = _decoded(tokenizer, [[*before, i] for i in known])
    for i, first, pair in zip(known, alone, pairs, strict=True):
        added = pair[len(shown) :] if pair.startswith(shown) else ""
        byte = decoding.byte(i) if decoding.kind == "fallback" else None
        # A part of a character is not text yet: the decoder shows U+FFFD for it.
        part = b""
        if byte is not None and byte >= 0x80:
            part = bytes([byte])
        elif decoding.kind == "mixed" and _REPLACEMENT in first:
            part = decoding.piece(i)
        inside[i] = part or added.encode("utf-8")
        start[i] = part or first.encode("utf-8")
    return inside, start


def _decoded(tokenizer: Tokenizer, batch: Sequence[list[int]]) -> list[str]:
    return checked_calls.decode_batch(tokenizer.backend, batch, True, tokenizer.trial)


def _plainest(decoding: Decoding, known: Sequence[int], texts: Sequence[str]) -> list[int]:
    """A token to put before others, so that they are inside of a text; none if there is none."""
    best: list[int] = []
    for i, text in zip(known, texts, strict=True):
        if not text.strip() or _REPLACEMENT in text or decoding.byte(i) is not None:
            continue
        if text.isascii() and text.isalnum():
            return [i]
        best = best or [i]
    return best
