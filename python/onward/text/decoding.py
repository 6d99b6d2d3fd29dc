"""How the decoder of a tokenizer turns token ids into text."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Literal

from onward.errors import InvalidArgument
from onward.text.tokenizer import checked_calls

if TYPE_CHECKING:
    import tokenizers

    from onward.text.tokenizer.trial import TextTrial

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Decoding:
    """How the decoder of a tokenizer turns ids into text. Results of look-ups are kept."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special_ids: frozenset[int],
        trial: TextTrial | None = None,
    ) -> None:
        self.backend = backend
        self.trial = trial
        self.special_ids = special_ids
        self.special_texts = {text: i for i in self.special_ids if (text := self._spelling(i))}
        self.kind: Literal["bytes", "fallback", "window", "mixed"]
        self.steps = _decoder_steps(backend)
        if self.steps == ["ByteLevel"]:
            self.kind = "bytes"
        elif "ByteLevel" in self.steps:
            self.kind = "mixed"
        else:
            self.kind = "fallback" if "ByteFallback" in self.steps else "window"
        self._pieces: dict[int, bytes] = {}
        self._byte_tokens: dict[int, int | None] = {}

    def piece(self, token_id: int) -> bytes:
        """Bytes of a byte-level token; none for an id that the vocabulary does not have."""
        found = self._pieces.get(token_id)
        if found is None:
            token = self._spelling(token_id) or ""
            table = _byte_of_letter()
            try:
                found = bytes([table[letter] for letter in token])
            except KeyError:  # an added token, spelled as it reads
                found = token.encode("utf-8")
            self._pieces[token_id] = found
        return found

    def byte(self, token_id: int) -> int | None:
        """The byte that a token such as `<0x0A>` stands for, or None."""
        try:
            return self._byte_tokens[token_id]
        except KeyError:
            match = _BYTE_TOKEN.fullmatch(self._spelling(token_id) or "")
            value = int(match[1], 16) if match else None
            self._byte_tokens[token_id] = value
            return value

    def has_text(self, token_id: int, skip: bool) -> bool:
        """False for ids that decoding leaves out: special ones, and ones outside the vocabulary."""
        hidden = skip and token_id in self.special_ids
        return not hidden and self._spelling(token_id) is not None

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        """The text of `ids` alone."""
        return checked_calls.decode(self.backend, ids, skip_special_tokens, self.trial)

    def _spelling(self, token_id: int) -> str | None:
        try:
            return self.backend.id_to_token(token_id)
        except OverflowError:
            raise InvalidArgument(f"token id {token_id}: expected 0 to 4294967295") from None


def _decoder_steps(backend: tokenizers.Tokenizer) -> list[str]:
    """Type names of the steps of the decoder; empty if it has none or cannot be described."""
    try:
        state = json.loads(backend.decoder.__getstate__())
    except Exception:  # no decoder, or one written in Python
        return []
    steps: list[str] = []
    pending = [state]
    while pending:
        step = pending.pop(0)
        if step.get("type") == "Sequence":
            pending[:0] = step["decoders"]
        else:
            steps.append(str(step.get("type")))
    return steps


@cache
def _byte_of_letter() -> dict[str, int]:
    """The alphabet of byte-level vocabularies: a printable letter for every byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table
