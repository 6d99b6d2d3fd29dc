"""From a call of LLM to requests in the engine, and from their events to results.

Checks everything before it hands in anything. Knows prompts, options and the driver; not where the
model came from.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from onward.calls.driver import Call, Driver
from onward.calls.generation import Generation
from onward.calls.prompts import PromptReader, prompts_of
from onward.calls.requests import RequestWriter
from onward.calls.result import Result
from onward.errors import InvalidArgument
from onward.options.grammar import CONSTRAINT_OPTIONS
from onward.options.resolution import GenerationOptions, ModelDefaults, resolve, with_draft
from onward.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Submitter:
    """Hands in the requests of one LLM."""

    driver: Driver
    reader: PromptReader
    requests: RequestWriter
    defaults: ModelDefaults
    text_tokenizer: Callable[[], Tokenizer]
    """The tokenizer; TokenizerError where there is none."""
    conversational: Callable[[], bool]
    """Whether the model was trained on conversations."""
    max_sequences: int
    has_draft: bool

    def begin(
        self, prompt: Any, options: Mapping[str, object]
    ) -> tuple[Call, list[Generation], bool]:
        """Hand in one prompt, or a list of them; the last of the three says which it was."""
        self.driver.check_open()
        prompts, batch = prompts_of(prompt)
        return *self.submit(prompts, batch, options), batch

    def finish(self, call: Call, generations: list[Generation]) -> list[Result]:
        """The results of all, in order."""
        unfinished = dict(zip(call.requests, generations, strict=True))
        try:
            while unfinished:
                event = call.next_event()
                generation = unfinished.get(event.request)
                if generation is None:
                    continue  # computed before the engine heard of the stop string
                generation.push(event)
                if generation.finished:
                    del unfinished[event.request]
                    call.cancel(event.request)
                elif generation.ended_here(event):
                    call.cancel(event.request, event.sequence)
        finally:
            call.close()
        return [generation.result() for generation in generations]

    def check(self, given: Mapping[str, object]) -> None:
        """Raise what ``submit`` raises for these options, whatever the prompt."""
        options, _ = self._read(given, streamed=False)
        self.requests.constraint(options)

    def _read(self, given: Mapping[str, object], streamed: bool) -> tuple[GenerationOptions, int]:
        """The options in effect, and how many outputs are computed for each prompt."""
        options = with_draft(resolve(given, self.defaults), self.has_draft)
        if options.stop or any(getattr(options, name) is not None for name in CONSTRAINT_OPTIONS):
            self.text_tokenizer()
        samples = options.best_of or options.num_return_sequences
        name = "num_return_sequences" if options.best_of is None else "best_of"
        if options.num_beams > 1:
            name, samples = "num_beams", options.num_beams
        elif streamed and samples > 1:
            raise InvalidArgument(f"{name}: is {samples}, expected 1 where the text is streamed")
        if samples > self.max_sequences:
            raise InvalidArgument(
                f"{name}: is {samples}, expected at most max_sequences, "
                f"which is {self.max_sequences}"
            )
        return options, samples

    def submit(
        self,
        prompts: Sequence[object],
        batch: bool,
        given: Mapping[str, object],
        *,
        streamed: bool = False,
    ) -> tuple[Call, list[Generation]]:
        """Check everything, then hand all requests to the engine."""
        options, samples = self._read(given, streamed)
        wheres = [f"prompt[{i}]" for i in range(len(prompts))] if batch else ["prompt"]
        rows = []
        for where, prompt in zip(wheres, prompts, strict=True):
            encoder = self.text_tokenizer() if isinstance(prompt, str) else None
            rows.append(self.reader.read(where, prompt, encoder))
        constraint = self.requests.constraint(options)
        copies: Counter[bytes] = Counter()
        requests, generations = [], []
        for where, ids, prompt in zip(wheres, rows, prompts, strict=True):
            seed, stream = options.seed, copies[ids.tobytes()] * samples
            if seed is None:
                seed, stream = secrets.randbits(64), 0
            copies[ids.tobytes()] += 1
            effective = options.but(seed=seed)
            prompt_ids = tuple(ids.tolist())
            written = self.requests.write(
                effective, prompt_ids, stream, constraint, streamed=streamed
            )
            requests.append((ids, written))
            generations.append(
                Generation(
                    where,
                    prompt_ids,
                    effective,
                    partial(self.requests.new_sink, effective, prompt_ids),
                    conversational=isinstance(prompt, str) and self.conversational(),
                )
            )
        return self.driver.submit(requests), generations
