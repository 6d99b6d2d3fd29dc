"""From a call of ``LLM`` to requests in the engine.

Everything is checked before anything is submitted.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from onward._core import Engine, Request
from onward.calls.call import Call
from onward.calls.generation import Generation
from onward.calls.prompts import PromptReader, prompts_of
from onward.calls.requests import RequestWriter
from onward.errors import InvalidArgument
from onward.options.grammar import CONSTRAINT_OPTIONS
from onward.options.resolution import GenerationOptions, ModelDefaults, resolve, with_draft
from onward.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Submitter:
    """Submits the requests of one LLM."""

    engine: Engine
    reader: PromptReader
    requests: RequestWriter
    defaults: ModelDefaults
    text_tokenizer: Callable[[], Tokenizer]
    """The tokenizer; TokenizerError where there is none."""
    conversational: Callable[[], bool]
    """Whether the model was trained on conversations."""
    max_sequences: int
    has_draft: bool

    def check(self, given: Mapping[str, object]) -> None:
        """Raise what ``submit`` raises for these options, whatever the prompt."""
        options, _ = self._read(given, streamed=False)
        self.requests.constraint(options)

    def submit(self, prompt: Any, given: Mapping[str, object], *, streamed: bool = False) -> Call:
        """Check one prompt or a list of them, and submit all of their requests at once.

        Raises InvalidArgument for a list where the text is streamed, and the errors of prompts
        and options.
        """
        self.engine.check_open()
        prompts, batch = prompts_of(prompt)
        if streamed and batch:
            raise InvalidArgument("prompt: is a list of prompts, expected one prompt to stream")
        options, samples = self._read(given, streamed)
        wheres = [f"prompt[{i}]" for i in range(len(prompts))] if batch else ["prompt"]
        rows = []
        for where, each in zip(wheres, prompts, strict=True):
            encoder = self.text_tokenizer() if isinstance(each, str) else None
            rows.append(self.reader.read(where, each, encoder))
        constraint = self.requests.constraint(options)
        copies: Counter[bytes] = Counter()
        requests: list[Request] = []
        generations: list[Generation] = []
        for where, ids, each in zip(wheres, rows, prompts, strict=True):
            seed, stream = options.seed, copies[ids.tobytes()] * samples
            if seed is None:
                seed, stream = secrets.randbits(64), 0
            copies[ids.tobytes()] += 1
            effective = options.but(seed=seed)
            prompt_ids = tuple(ids.tolist())
            requests.append(
                self.requests.write(effective, ids, stream, constraint, streamed=streamed)
            )
            generations.append(
                Generation(
                    where,
                    prompt_ids,
                    effective,
                    partial(self.requests.new_sink, effective, prompt_ids),
                    conversational=isinstance(each, str) and self.conversational(),
                )
            )
        client = self.engine.new_client()  # closes itself when an interrupt comes before its call
        return Call(client, client.submit(requests), generations, batch=batch)

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
