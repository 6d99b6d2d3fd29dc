"""Reads tokenizer.json into a `tokenizers.Tokenizer` whose tokens have the ids of the file.

The library numbers added tokens itself: after a gap in the vocabulary their ids differ from the
ids in the file, without a warning. Here the ids of the file are compared with each other and then
with the ids of the library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onward.errors import TokenizerError
from onward.files.json_file import parse_json_object
from onward.message_text import label
from onward.text.tokenizer.checked_calls import failure
from onward.text.tokenizer.growth import TextGrowth, check_growth
from onward.text.tokenizer.trial import TextTrial, trial_of

if TYPE_CHECKING:
    import tokenizers

MAX_BYTES = 64 << 20  # the largest published tokenizer.json has about 35 MB
MAX_PIECES = 1 << 22
MAX_PIECE_CHARACTERS = 4096
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
_MAX_ID = 2**32 - 1


@dataclass
class TokenizerFile:
    """A tokenizer.json that was read and checked.

    Attributes:
        state: the object of the file.
        growth: what measures how long the normalizer makes a text; None where that is bounded.
        trial: what tries texts first, once `build` was called; None where none is needed.
        pieces: the id of each token, of the vocabulary and added.
        owners: the token of each id.
        where: the name of the file in messages.
    """

    state: dict[str, Any]
    growth: TextGrowth | None
    pieces: dict[str, int]
    owners: dict[int, str]
    where: str
    data: bytes | None
    trial: TextTrial | None = None

    @classmethod
    def parse(cls, data: bytes, where: str) -> TokenizerFile:
        """Read and check the bytes of a tokenizer.json.

        Raises:
            TokenizerError: it is no JSON object, it breaks a bound, or two tokens have one id.
        """
        if len(data) > MAX_BYTES:
            raise TokenizerError(f"{where}: it has {len(data)} bytes, expected at most {MAX_BYTES}")
        state = parse_json_object(data, where, error=TokenizerError)
        growth = check_growth(state, where)
        listed = _vocabulary(state.get("model"), where)
        owners: dict[int, str] = {}
        for piece, token_id in listed:
            other = owners.setdefault(token_id, piece)
            if other != piece:
                raise TokenizerError(
                    f"{where}: the vocabulary has {_quoted(other)} and {_quoted(piece)} "
                    f"with one id, {token_id}, expected an id for each"
                )
        file = cls(state, growth, dict(listed), owners, where, data)
        for token_id, content, _ in _added(state):
            _check_length(content, where)
            file.claim(content, token_id, "added_tokens gives")
        return file

    def claim(self, content: str, token_id: int, giver: str) -> None:
        """Take note of the id of an added token.

        Raises:
            TokenizerError: another token has the id, or the token has another id.
        """
        known = self.pieces.get(content)
        owner = self.owners.get(token_id)
        if known is not None and known != token_id:
            raise TokenizerError(
                f"{self.where}: {giver} {_quoted(content)} the id {token_id}, "
                f"but it already has the id {known}"
            )
        if owner is not None and owner != content:
            raise TokenizerError(
                f"{self.where}: {giver} {_quoted(content)} the id {token_id}, "
                f"but that is the id of {_quoted(owner)}"
            )
        self.pieces[content] = token_id
        self.owners[token_id] = content

    def added_flags(self) -> dict[str, dict[str, bool]]:
        """How the added tokens of the file are matched, by text."""
        found = {}
        entries = self.state.get("added_tokens")
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping) and isinstance(entry.get("content"), str):
                found[entry["content"]] = {name: entry.get(name) is True for name in FLAGS}
        return found

    def next_id(self) -> int:
        """The first id after all tokens."""
        return max(self.owners, default=-1) + 1

    def build(self, more: list[tokenizers.AddedToken]) -> tokenizers.Tokenizer:
        """The library's tokenizer, with `more` tokens added, whose ids were claimed.

        Raises:
            TokenizerError: the library refuses the file, takes too long to read it, or cannot give
                a token the id it has.
        """
        self.trial = trial_of(self.state, more, self.where)
        if self.trial is None and self.growth is not None:
            for _, content, normalized in _added(self.state):
                if normalized:
                    self.growth.check(content)
        data = self.data
        if data is None:
            data = json.dumps(self.state).encode()
        backend = _backend(data, more, self.where)
        wanted = {content: token_id for token_id, content, _ in _added(self.state)}
        wanted.update((token.content, self.pieces[token.content]) for token in more)
        if all(backend.token_to_id(content) == i for content, i in wanted.items()):
            return backend
        # The library takes the id of an added token from the vocabulary where it stands there.
        model = self.state["model"]
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        if isinstance(vocabulary, dict):
            model["vocab"] = {**vocabulary, **wanted}
            backend = _backend(json.dumps(self.state).encode(), more, self.where)
        for content, token_id in wanted.items():
            found = backend.token_to_id(content)
            if found != token_id:
                raise TokenizerError(
                    f"{self.where}: the added token {_quoted(content)} has the id {token_id} after "
                    f"a gap, where the library would give it {found}; expected ids without a gap"
                )
        return backend


def _vocabulary(model: object, where: str) -> list[tuple[str, int]]:
    """The pieces and their ids, as far as the file is well formed; the library refuses the rest."""
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    listed: list[tuple[str, int]] = []
    if isinstance(vocabulary, Mapping):
        if all(type(i) is int and 0 <= i <= _MAX_ID for i in vocabulary.values()):
            listed = list(vocabulary.items())
    elif isinstance(vocabulary, list):  # of a Unigram model: pieces and scores in order
        for i, entry in enumerate(vocabulary):
            if isinstance(entry, list) and entry and isinstance(entry[0], str):
                listed.append((entry[0], i))
    if len(listed) > MAX_PIECES:
        raise TokenizerError(
            f"{where}: the vocabulary has {len(listed)} pieces, expected at most {MAX_PIECES}"
        )
    _check_length(max((piece for piece, _ in listed), key=len, default=""), where)
    return listed


def _added(state: Mapping[str, Any]) -> list[tuple[int, str, bool]]:
    """Id, text and whether it is normalized, of each added token that is well formed."""
    found = []
    entries = state.get("added_tokens")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping):
            token_id, content = entry.get("id"), entry.get("content")
            if type(token_id) is not int or not 0 <= token_id <= _MAX_ID:
                continue
            if isinstance(content, str) and content:  # the library leaves out an empty one
                found.append((token_id, content, entry.get("normalized") is not False))
    return found


def _check_length(piece: str, where: str) -> None:
    if len(piece) > MAX_PIECE_CHARACTERS:
        raise TokenizerError(
            f"{where}: the piece {_quoted(piece)} has {len(piece)} characters, "
            f"expected at most {MAX_PIECE_CHARACTERS}"
        )


def _backend(data: bytes, more: list[tokenizers.AddedToken], where: str) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer as Backend

    try:
        backend = Backend.from_buffer(data)
        backend.no_truncation()
        backend.no_padding()
        backend.add_tokens(more)
    except BaseException as error:
        raise failure(error, f"{where}: it is not a usable tokenizer") from None
    return backend


def _quoted(text: str) -> str:
    return f'"{label(text)}"'
