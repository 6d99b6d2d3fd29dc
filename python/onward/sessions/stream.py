"""The answer of a session while it is generated.

The text becomes part of the conversation when the stream ends, also if it is closed early. An error
leaves the conversation unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onward.calls.generation import Stream
from onward.calls.result import Usage

if TYPE_CHECKING:
    from onward.calls.call import Call


@dataclass(frozen=True)
class Answer:
    """The answer of a model, with its usage."""

    text: str
    token_ids: tuple[int, ...]
    usage: Usage
    whole: bool = True
    """Whether the answer ended by itself."""


class SessionStream(Stream):
    """A ``Stream`` that adds its answer to its session."""

    def __init__(
        self,
        call: Call,
        prompt_tokens: int,
        ended: Callable[[Answer], None],
    ) -> None:
        [generation] = call.generations.values()
        super().__init__(call.client, generation)
        self._prompt_tokens = prompt_tokens
        self._cached_tokens = 0
        self._token_ids: list[int] = []
        self._ended: Callable[[Answer], None] | None = ended

    @property
    def open(self) -> bool:
        """Whether the answer is not part of the conversation yet."""
        return self._ended is not None

    def __next__(self) -> str:
        """The next piece of text; never empty."""
        piece = ""
        try:
            while not (piece or self._closed or self._generation.finished):
                event = self._client.next_event()
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
        except BaseException:  # also Ctrl-C: the text so far stays in the conversation
            self.close()
            raise
        if piece:
            return piece
        raise StopIteration

    def close(self) -> None:
        """Stop generating. The text so far stays in the conversation. If there is none, the
        question is removed as well."""
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
