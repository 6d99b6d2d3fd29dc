"""The token ids of a conversation, kept from one prompt to the next.

A prompt is found in the engine's cache by its ids, so it has to begin with those of the prompt
before it and with those that were generated, which the text of an answer may not give again: a
model can write a word in other tokens than a tokenizer would. A transcript therefore keeps what was
rendered and said in segments, each a text with its ids. The next rendering keeps the segments that
it begins with, and only what follows them is turned into ids. Where a template tells the past in
another way, its segments are dropped from there on. Knows texts and ids; no messages, no engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from onward.text.streaming import TextStream

if TYPE_CHECKING:
    from onward.text.tokenizer.tokenizer import Tokenizer

_CUT_AT_MOST = 32
"""Tokens of an answer that its message may lack: a stop token, a stop string, a space that the
template takes away. Where more differ, none is kept."""


@dataclass(frozen=True)
class Segment:
    """Text as it is in the rendered conversation, and its ids."""

    text: str
    token_ids: tuple[int, ...]
    messages: int
    """How many messages of the conversation are told by its end."""
    said: bool
    """Whether the model generated it, so that a beginning of it can be kept, too."""


def ids_of(segments: Iterable[Segment]) -> list[int]:
    """Those of all, one after another."""
    return list(chain.from_iterable(segment.token_ids for segment in segments))


class Transcript:
    """The segments of one conversation."""

    def __init__(self, tokenizer: Tokenizer, segments: Iterable[Segment] = ()) -> None:
        self._tokenizer = tokenizer
        self.segments = tuple(segments)

    def prompt(
        self, rendered: str, messages: int, encode_whole: Callable[[], list[int]]
    ) -> Transcript:
        """The transcript of a prompt: what is kept of this one, then the rest of ``rendered``.

        ``encode_whole`` gives the ids where nothing is kept: those that any prompt has, BOS
        included.
        """
        kept, at = self._kept(rendered)
        if not kept:
            ids = encode_whole()
        else:
            ids = _encode_after(self._tokenizer, kept[-1].token_ids[-1], rendered[at:])
        if ids:
            kept.append(Segment(rendered[at:], tuple(ids), messages, said=False))
        return Transcript(self._tokenizer, kept)

    def answered(self, token_ids: Iterable[int], messages: int) -> Transcript:
        """This prompt, with the ids that were generated after it."""
        ids = tuple(token_ids)
        if not ids:
            return self
        segment = Segment(self._text(self.token_ids(), ids), ids, messages, said=True)
        return Transcript(self._tokenizer, (*self.segments, segment))

    def completed(self, text: str, token_ids: Iterable[int]) -> str:
        """A text that ends this prompt, as it reads with the ids that were generated after it: a
        character whose bytes were cut may be whole now, and is then part of what follows."""
        last = self.segments[-1] if self.segments else None
        if last is None or not last.said or not text.endswith("\ufffd"):
            return text
        before = ids_of(self.segments[:-1])
        grown = self._text(before, (*last.token_ids, *token_ids))
        return text if grown.startswith(last.text) else text[:-1]

    def first(self, messages: int) -> Transcript:
        """What tells of no more than the first so many messages."""
        kept = [segment for segment in self.segments if segment.messages <= messages]
        return Transcript(self._tokenizer, kept)

    def token_ids(self) -> list[int]:
        """Of all segments."""
        return ids_of(self.segments)

    def _kept(self, rendered: str) -> tuple[list[Segment], int]:
        """The segments that a rendered conversation begins with, and where it goes on."""
        kept: list[Segment] = []
        at = 0
        for segment in self.segments:
            if rendered.startswith(segment.text, at):
                kept.append(segment)
                at += len(segment.text)
                continue
            if segment.said and (part := self._part(kept, segment, rendered, at)):
                kept.append(part)
                at += len(part.text)
            break
        return kept, at

    def _part(
        self, before: list[Segment], segment: Segment, rendered: str, at: int
    ) -> Segment | None:
        """The most of an answer that a text has at a place."""
        if not segment.text or not rendered.startswith(segment.text[0], at):
            return None
        prompt, ids = ids_of(before), segment.token_ids
        for count in range(len(ids) - 1, max(len(ids) - 1 - _CUT_AT_MOST, 0), -1):
            text = self._text(prompt, ids[:count])
            if text and rendered.startswith(text, at):
                return Segment(text, ids[:count], segment.messages, said=True)
        return None

    def _text(self, prompt: list[int], token_ids: Iterable[int]) -> str:
        """Of ids that were generated after a prompt, special tokens as they are spelled."""
        stream = TextStream(self._tokenizer, prompt, skip_special_tokens=False)
        return "".join([*map(stream.push, token_ids), stream.finish()])


def _encode_after(tokenizer: Tokenizer, token_id: int, text: str) -> list[int]:
    """The ids of a text that follows a token: some tokenizers treat the beginning of a text in
    another way than its middle, and some tokens swallow the spaces after them."""
    if not text:
        return []
    before = tokenizer.decode([token_id], skip_special_tokens=False)
    known = tokenizer.encode(before, add_special_tokens=False)
    ids = tokenizer.encode(before + text, add_special_tokens=False)
    if known[-1:] == [token_id] and ids[: len(known)] == known:
        return ids[len(known) :]
    return tokenizer.encode(text, add_special_tokens=False)
