"""An answer of a session while it is being written.

What was said becomes part of the conversation when the stream ends, also where it is closed
half-way; an error leaves the conversation as it was. Knows a stream's events, and whom to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onward.calls.generation import Generation, Stream
from onward.calls.result import Usage

if TYPE_CHECKING:
    from onward.calls.driver import Call


@dataclass(frozen=True)
class Answer:
    """What a model has said, and what it cost."""

    text: str
    token_ids: tuple[int, ...]
    usage: Usage
    whole: bool = True
    """Whether it ended by itself."""


class SessionStream(Stream):
    """A ``Stream`` whose answer its session remembers."""

    def __init__(
        self,
        call: Call,
        generation: Generation,
        prompt_tokens: int,
        ended: Callable[[Answer], None],
    ) -> None:
        super().__init__(call, generation)
        self._prompt_tokens = prompt_tokens
        self._cached_tokens = 0
        self._token_ids: list[int] = []
        self._ended: Callable[[Answer], None] | None = ended

    @property
    def open(self) -> bool:
        """Whether its answer is not part of the conversation yet."""
        return self._ended is not None

    def __next__(self) -> str:
        """The next piece of text, never empty."""
        piece = ""
        try:
            while not (piece or self._closed or self._generation.finished):
                event = self._call.next_event()
                piece = self._generation.push(event)
                if piece:
                    self._pieces.append(piece)
                if event.token >= 0:
                    self._token_ids.append(event.token)
                self._cached_tokens = max(self._cached_tokens, event.cached_tokens)
            if self._generation.finished:
                self.close()
        except Exception:
            self._ended = None
            self.close()
            raise
        except BaseException:  # Ctrl-C: what was said was said
            self.close()
            raise
        if piece:
            return piece
        raise StopIteration

    def close(self) -> None:
        """Stop generating. What was said so far stays in the conversation; where that is nothing,
        the question goes, too."""
        super().close()
        ended, self._ended = self._ended, None
        if ended is None:
            return
        if self._generation.finished:
            result = self._generation.result()
            ended(Answer(result.text, result.token_ids, result.usage))
        else:
            usage = Usage(self._prompt_tokens, len(self._token_ids), self._cached_tokens)
            text, ids = "".join(self._pieces), tuple(self._token_ids)
            ended(Answer(text, ids, usage, whole=False))
