"""The token ids of a conversation, kept from one prompt to the next.

The engine finds a cached prompt by its ids. So a prompt has to begin with the ids of the prompt
before it and with the generated ids. The text of an answer may encode to other ids, because a model
can write a word in other tokens than the tokenizer would. A transcript therefore keeps segments:
each is a text, rendered or generated, with its ids. The next rendering keeps the segments that it
begins with, and only the text after them is encoded. If a template renders the past in another way,
the segments from there on are dropped.
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
"""Number of tokens at the end of an answer that its message may lack: a stop token, a stop string,
a space that the template removes. If more tokens differ, none of the answer is kept."""


@dataclass(frozen=True)
class Segment:
    """A text of the rendered conversation, and its ids."""

    text: str
    token_ids: tuple[int, ...]
    messages: int
    """Number of messages that are rendered up to the end of this segment."""
    said: bool
    """Whether the model generated it. The beginning of such a segment can be kept, too."""


def ids_of(segments: Iterable[Segment]) -> list[int]:
    """The ids of all segments, one after another."""
    return list(chain.from_iterable(segment.token_ids for segment in segments))


class Transcript:
    """The segments of one conversation."""

    def __init__(self, tokenizer: Tokenizer, segments: Iterable[Segment] = ()) -> None:
        self._tokenizer = tokenizer
        self.segments = tuple(segments)

    def prompt(
        self, rendered: str, messages: int, encode_whole: Callable[[], list[int]]
    ) -> Transcript:
        """The transcript of a prompt: the kept segments, then the rest of ``rendered``.

        ``encode_whole`` encodes the text if nothing is kept: as for any prompt, with BOS.
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
        """This prompt, followed by the ids that were generated for it."""
        ids = tuple(token_ids)
        if not ids:
            return self
        segment = Segment(self._text(self.token_ids(), ids), ids, messages, said=True)
        return Transcript(self._tokenizer, (*self.segments, segment))

    def completed(self, text: str, token_ids: Iterable[int]) -> str:
        """The text at the end of this prompt, decoded together with the generated ids. A character
        whose bytes were cut may be complete now; it is then part of the following text."""
        last = self.segments[-1] if self.segments else None
        if last is None or not last.said or not text.endswith("\ufffd"):
            return text
        before = ids_of(self.segments[:-1])
        grown = self._text(before, (*last.token_ids, *token_ids))
        return text if grown.startswith(last.text) else text[:-1]

    def first(self, messages: int) -> Transcript:
        """The segments that render at most the first ``count`` messages."""
        kept = [segment for segment in self.segments if segment.messages <= messages]
        return Transcript(self._tokenizer, kept)

    def token_ids(self) -> list[int]:
        """The ids of all segments."""
        return ids_of(self.segments)

    def _kept(self, rendered: str) -> tuple[list[Segment], int]:
        """The segments that a rendered conversation begins with, and the position after them."""
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
        """The longest beginning of an answer that a text has at a position."""
        if not segment.text or not rendered.startswith(segment.text[0], at):
            return None
        prompt, ids = ids_of(before), segment.token_ids
        for count in range(len(ids) - 1, max(len(ids) - 1 - _CUT_AT_MOST, 0), -1):
            text = self._text(prompt, ids[:count])
            if text and rendered.startswith(text, at):
                return Segment(text, ids[:count], segment.messages, said=True)
        return None

    def _text(self, prompt: list[int], token_ids: Iterable[int]) -> str:
        """Text of the ids generated after a prompt, with special tokens spelled out."""
        stream = TextStream(self._tokenizer, prompt, skip_special_tokens=False)
        return "".join([*map(stream.push, token_ids), stream.finish()])


def _encode_after(tokenizer: Tokenizer, token_id: int, text: str) -> list[int]:
    """The ids of a text that follows a token. Some tokenizers treat the beginning of a text
    differently from its middle, and some tokens remove the spaces after them."""
    if not text:
        return []
    before = tokenizer.decode([token_id], skip_special_tokens=False)
    known = tokenizer.encode(before, add_special_tokens=False)
    ids = tokenizer.encode(before + text, add_special_tokens=False)
    if known[-1:] == [token_id] and ids[: len(known)] == known:
        return ids[len(known) :]
    return tokenizer.encode(text, add_special_tokens=False)
