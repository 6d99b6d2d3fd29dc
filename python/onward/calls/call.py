"""The requests of one call: their client of the engine, and what becomes of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onward.calls.generation import Generation, Stream

if TYPE_CHECKING:
    from onward._core import EngineClient
    from onward.calls.result import Result


class Call:
    """Requests that were submitted together. Letting go of it gives them up."""

    def __init__(
        self,
        client: EngineClient,
        requests: Sequence[int],
        generations: Sequence[Generation],
        *,
        batch: bool,
    ) -> None:
        """``batch``: the caller gave a list of prompts, and gets a list of results."""
        self.client = client
        self.generations = dict(zip(requests, generations, strict=True))
        """By id of the request, in the order of the prompts."""
        self._batch = batch

    def answer(self) -> Result | list[Result]:
        """Wait for all requests; the result of the prompt, or of each prompt of a list."""
        results = self.results()
        return results if self._batch else results[0]

    def results(self) -> list[Result]:
        """Wait for all requests; their results in order."""
        client, unfinished = self.client, dict(self.generations)
        try:
            while unfinished:
                event = client.next_event()
                generation = unfinished.get(event.request)
                if generation is None:
                    continue  # computed before its end was found
                generation.push(event)
                if generation.finished:
                    del unfinished[event.request]
                    client.cancel(event.request)
                elif generation.ended_here(event):
                    client.cancel(event.request, event.sequence)
        finally:
            client.close()
        return [generation.result() for generation in self.generations.values()]

    def stream(self) -> Stream:
        """The text of its one request, piece by piece."""
        [generation] = self.generations.values()
        return Stream(self.client, generation)

    def close(self) -> None:
        """Give up the requests that have not ended. May be called from any thread, repeatedly."""
        self.client.close()
