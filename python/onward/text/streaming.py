"""Text while it is being generated: pieces that never have to be taken back, and stop strings.

The text of a generation is what `decode(prompt + generated)` has beyond the longest prefix it
shares with `decode(prompt)`; the pieces of a TextStream joined are exactly that text. A character
whose bytes are spread over tokens is held until it is complete. It does not know the engine, nor
which tokens end a generation.

`tokenizers.decoders.DecodeStream` holds all text that ends in U+FFFD (also where the model wrote
that character), fails where decoding is not monotone and has no flush, so it is not used. Instead
there is one source of text for each way of decoding:

* byte-level tokenizers are bytes joined, then read as UTF-8;
* SentencePiece byte fallback reads a run of byte tokens as a whole: one bad byte turns the run
  into U+FFFD, so a run is held until it ends or is known to be bad. Stop strings look into the
  held run, because a generation that ends there ends with that text;
* any other decoder is asked to decode a window: the last token shown and what came after.

Each costs a constant amount of work a token.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Protocol

from onward.text.decoding import Decoding
from onward.text.stop_strings import Symbol, automata_of

if TYPE_CHECKING:
    from onward.text.tokenizer.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"
_WINDOW_IDS = 32  # an incomplete character spans at most 4 tokens


class _Source(Protocol):
    """Text of ids that arrive one by one. `push` returns the text that is certain, then the text
    that would follow if the generation ended here, as far as it was not returned before."""

    def push(self, token_id: int) -> tuple[str, str]: ...
    def finish(self) -> str: ...
    def fork(self) -> _Source: ...


class _Bytes:
    """Byte-level tokenizers."""

    def __init__(self, decoding: Decoding, prompt: Sequence[int], skip: bool) -> None:
        self._decoding = decoding
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        tail = b""
        for token_id in reversed(prompt):
            if len(tail) >= 4:
                break
            if not (skip and token_id in decoding.special_ids):
                tail = decoding.piece(token_id) + tail
        self._utf8.decode(tail[-4:])
        # decode(prompt) shows an incomplete character as U+FFFD, which belongs to the prompt.
        self._of_prompt = self._utf8.getstate()[0].decode("utf-8", "replace")

    def push(self, token_id: int) -> tuple[str, str]:
        return self._own(self._utf8.decode(self._decoding.piece(token_id))), ""

    def finish(self) -> str:
        return self._own(self._utf8.decode(b"", True))

    def fork(self) -> _Bytes:
        twin = copy(self)
        twin._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        twin._utf8.setstate(self._utf8.getstate())
        return twin

    def _own(self, text: str) -> str:
        if text and self._of_prompt:
            text = text[_shared(text, self._of_prompt) :]
            self._of_prompt = ""
        return text


class _Window:
    """Any decoder: decodes a few ids, the newest shown ones and the ones after them."""

    def __init__(self, decoding: Decoding, prompt: Sequence[int], skip: bool) -> None:
        self._decoding = decoding
        self._skip = skip
        self._incomplete_is_possible = decoding.kind == "mixed"
        self._ids = self._tail(prompt)
        self._shown = self._decode(self._ids)

    def push(self, token_id: int) -> tuple[str, str]:
        if not self._decoding.has_text(token_id, self._skip):
            return "", ""
        self._ids.append(token_id)
        text = self._decode(self._ids)
        if self._incomplete_is_possible and text.endswith(_REPLACEMENT):
            new = self._reveal(text[:-1])
            if len(self._ids) >= _WINDOW_IDS:
                del self._ids[:-8]
                self._shown = self._decode(self._ids)[:-1]
            return new, ""
        new = self._reveal(text)
        self._restart()
        return new, ""

    def finish(self) -> str:
        return self._reveal(self._decode(self._ids))

    def fork(self) -> _Window:
        twin = copy(self)
        twin._ids = list(self._ids)
        return twin

    def _decode(self, ids: list[int]) -> str:
        return self._decoding.decode(ids, self._skip)

    def _reveal(self, text: str) -> str:
        """The part of `text`, the text of the window, that has not been shown."""
        shown = self._shown
        self._shown = text
        if text.startswith(shown):
            return text[len(shown) :]
        if shown.startswith(text):  # an ending that a decoder trims: wait for what follows
            self._shown = shown
            return ""
        return text[_shared(shown, text) :]

    def _restart(self) -> None:
        """Drop the window except one token with text: the next token needs it in front."""
        alone = self._decode(self._ids[-1:])
        if alone:
            del self._ids[:-1]
            self._shown = alone
        elif len(self._ids) > 2 and self._decode(self._ids[:1]):
            self._ids = [self._ids[0], self._ids[-1]]
            self._shown = self._decode(self._ids)
        elif len(self._ids) > _WINDOW_IDS:
            del self._ids[:-8]
            self._shown = self._decode(self._ids)

    def _tail(self, prompt: Sequence[int]) -> list[int]:
        """The newest ids of the prompt, enough of them to have text."""
        count = 8
        while True:
            tail = [i for i in prompt[-count:] if self._decoding.has_text(i, self._skip)]
            if count >= len(prompt) or self._decode(tail):
                return tail
            count *= 4


class _Runs(_Window):
    """SentencePiece with byte fallback."""

    def __init__(self, decoding: Decoding, prompt: Sequence[int], skip: bool) -> None:
        super().__init__(decoding, prompt, skip)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("strict")
        self._in_run = False
        self._bad_run = False
        for token_id in self._run_of(prompt):
            self._run_byte(token_id)

    def push(self, token_id: int) -> tuple[str, str]:
        if not self._decoding.has_text(token_id, self._skip):
            return "", ""
        byte = self._decoding.byte(token_id)
        if byte is None:
            self._end_run()
            return super().push(token_id)
        if self._bad_run:
            self._ids = [token_id]
            self._shown = self._decode(self._ids)
            return _REPLACEMENT, ""
        first = not self._ids
        tentative = self._run_byte(token_id)
        self._ids.append(token_id)
        if self._bad_run:
            new = self._reveal(self._decode(self._ids))
            self._ids = [token_id]
            self._shown = self._decode(self._ids)
            return new, ""
        if first and tentative:  # a decoder may strip the start of a text
            tentative = self._decode(self._ids)
        return "", tentative

    def fork(self) -> _Runs:
        twin = copy(self)
        twin._ids = list(self._ids)
        twin._utf8 = codecs.getincrementaldecoder("utf-8")("strict")
        twin._utf8.setstate(self._utf8.getstate())
        return twin

    def _run_byte(self, token_id: int) -> str:
        """Take one more byte of a run. Returns the character that it completes, if any."""
        self._in_run = True
        try:
            byte = self._decoding.byte(token_id)
            return "" if byte is None else self._utf8.decode(bytes([byte]))
        except UnicodeDecodeError:
            self._bad_run = True
            return ""

    def _end_run(self) -> None:
        if self._in_run:
            self._in_run = self._bad_run = False
            self._utf8.reset()

    def _run_of(self, prompt: Sequence[int]) -> list[int]:
        """The byte tokens at the end of the prompt."""
        run: list[int] = []
        for token_id in reversed(prompt):
            if not self._decoding.has_text(token_id, self._skip):
                continue
            if self._decoding.byte(token_id) is None:
                break
            run.append(token_id)
        return run[::-1]

    def _tail(self, prompt: Sequence[int]) -> list[int]:
        run = self._run_of(prompt)
        if not run:
            return super()._tail(prompt)
        before = len(prompt)
        for _ in run:
            before -= 1
            while not self._decoding.has_text(prompt[before], self._skip):
                before -= 1
        return super()._tail(prompt[:before]) + run


def _shared(left: str, right: str) -> int:
    """Length of the longest common prefix."""
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


class TextStream:
    """The text of one generation, token by token.

    The stop string that the text completes first ends the text; if one character completes several,
    the longest one. Its characters are not returned, and text is held back only while it may become
    a stop string. Stop strings are looked for in the generated text only. A stop string that
    contains the text of a special token is found whether or not special tokens are shown.

    Attributes:
        stopped: the stop string that was found, or None.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        stop: str | Sequence[str] = (),
        skip_special_tokens: bool = True,
    ) -> None:
        """Begin after `prompt_ids`.

        Raises:
            InvalidArgument: a stop string is empty.
            ArgumentTypeError: a stop string is not a str.
        """
        decoding = tokenizer.decoding
        self.stopped: str | None = None
        self._hidden = decoding.special_ids if skip_special_tokens else frozenset()
        self._source = _source_of(decoding, prompt_ids, skip_special_tokens)
        hidden_texts = decoding.special_texts if skip_special_tokens else {}
        self._automata = automata_of(stop, hidden_texts)
        self._states = [0] * len(self._automata)
        self._ahead = list(self._states)  # states after the symbols that are not certain
        self._unsettled: list[Symbol] = []
        self._held = ""
        self._pieces: list[str] = []
        self._ended = False

    @property
    def text(self) -> str:
        """All text returned so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def push(self, token_id: int) -> str:
        """The text that becomes certain with `token_id`: often one word, sometimes nothing."""
        if self._ended:
            return ""
        if token_id in self._hidden:
            return self._emit(self._look_ahead([token_id])) if self._automata else ""
        settled, tentative = self._source.push(token_id)
        if not self._automata:
            return self._emit(settled)
        piece = self._settle(settled) if settled else ""
        if tentative and self.stopped is None:
            piece += self._look_ahead(tentative)
        return self._emit(piece)

    def fork(self) -> TextStream:
        """An independent copy of this stream at its present state."""
        twin = copy(self)
        twin._source = self._source.fork()
        twin._states, twin._ahead = list(self._states), list(self._ahead)
        twin._unsettled, twin._pieces = list(self._unsettled), list(self._pieces)
        return twin

    def finish(self) -> str:
        """The text that is still held, if the generation ends without a stop string."""
        if self._ended:
            return ""
        settled = self._source.finish()
        piece = self._settle(settled) if self._automata else settled
        self._ended = True
        return self._emit(piece + self._held if self.stopped is None else piece)

    def _emit(self, piece: str) -> str:
        if piece:
            self._pieces.append(piece)
        return piece

    def _settle(self, text: str) -> str:
        """Add text that is certain. Returns the part of it and of the held text that can be
        shown."""
        symbols: list[Symbol] | str = text
        if self._unsettled:
            known = "".join(symbol for symbol in self._unsettled if isinstance(symbol, str))
            if text.startswith(known):
                symbols = [*self._unsettled, *text[len(known) :]]
            self._unsettled.clear()
        held = self._held
        self._held = ""
        passed = 0
        for symbol in symbols:
            passed += isinstance(symbol, str)
            cut = self._step(self._states, symbol)
            if cut is not None:
                return self._stop(held + text[:passed], cut)
        self._ahead[:] = self._states
        held += text
        holds = [a.shown_length[s] for a, s in zip(self._automata, self._states, strict=True)]
        keep = len(held) - max(holds)
        self._held = held[keep:]
        return held[:keep]

    def _look_ahead(self, symbols: Sequence[Symbol]) -> str:
        """The text before a stop string that the uncertain symbols complete; None if there is
        none."""
        for symbol in symbols:
            self._unsettled.append(symbol)
            cut = self._step(self._ahead, symbol)
            if cut is not None:
                known = "".join(s for s in self._unsettled if isinstance(s, str))
                return self._stop(self._held + known, cut)
        if not any(isinstance(symbol, str) for symbol in self._unsettled):
            self._states[:] = self._ahead
            self._unsettled.clear()
            holds = [a.shown_length[s] for a, s in zip(self._automata, self._states, strict=True)]
            keep = len(self._held) - max(holds)
            free, self._held = self._held[:keep], self._held[keep:]
            return free
        return ""

    def _step(self, states: list[int], symbol: Symbol) -> int | None:
        """Advance `states`. Returns the length of the stop string that is now complete, if any."""
        cut: int | None = None
        for i, automaton in enumerate(self._automata):
            if i == 0 and isinstance(symbol, int):
                continue  # the shown text does not contain this token
            states[i] = automaton.step(states[i], symbol)
            name = automaton.completes[states[i]]
            length = automaton.completed_length[states[i]]
            if name is not None and (cut is None or length > cut):
                self.stopped, cut = name, length
        return cut

    def _stop(self, text: str, cut: int) -> str:
        self._ended = True
        self._held = ""
        return text[: len(text) - cut]


def _source_of(decoding: Decoding, prompt_ids: Sequence[int], skip: bool) -> _Source:
    if decoding.kind == "bytes":
        return _Bytes(decoding, prompt_ids, skip)
    kind = _Runs if decoding.kind == "fallback" else _Window
    return kind(decoding, prompt_ids, skip)
