"""Writes the engine's requests: one prompt with the options of its call, rules included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onward._core import Request
from onward.options.for_engine import request_options
from onward.options.grammar import CONSTRAINT_OPTIONS, Grammar
from onward.text.constraints import Constraint
from onward.text.stop_rule import StopRule
from onward.text.streaming import TextStream

if TYPE_CHECKING:
    from onward.options.callables import StoppingCriterion
    from onward.options.resolution import GenerationOptions
    from onward.text.tokenizer.tokenizer import Tokenizer


class RequestWriter:
    """Writes the requests of one model."""

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int, context: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._context = context

    def constraint(self, options: GenerationOptions) -> Constraint | None:
        """The form that every output must have, compiled once for a call; None for no form. A form
        needs the tokenizer."""
        grammar = Grammar.of(**{name: getattr(options, name) for name in CONSTRAINT_OPTIONS})
        if grammar is None:
            return None
        assert self._tokenizer is not None
        return Constraint(grammar, self._tokenizer, self._vocab_size)

    def new_sink(self, options: GenerationOptions, prompt_ids: Sequence[int]) -> TextStream | None:
        """Where the tokens of one output become text; None without a tokenizer."""
        if self._tokenizer is None:
            return None
        return TextStream(
            self._tokenizer, prompt_ids, list(options.stop), options.skip_special_tokens
        )

    def write(
        self,
        options: GenerationOptions,
        ids: NDArray[np.int32],
        stream: int,
        constraint: Constraint | None,
        *,
        streamed: bool,
    ) -> Request:
        """The request of one prompt. ``stream``: the first stream of random numbers it draws
        from."""
        prompt_ids = ids.tolist()
        end_rules: list[StoppingCriterion] = list(options.stopping_criteria)
        rule = None
        if constraint is not None:
            rule = constraint.rule(
                prompt_ids,
                options.stop_token_ids,
                skip_special_tokens=options.skip_special_tokens,
                outputs=max(options.num_beams, options.best_of or options.num_return_sequences),
                distinct=options.num_beams > 1 and options.num_beam_groups == 1,
            )
            if options.num_beams > 1:  # hypotheses that spell one text are one in the result
                options = options.but(num_return_sequences=options.num_beams)
            end_rules.append(rule.ends)
        if options.stop and options.num_beams > 1:
            # The engine must see their ends: hypotheses that have ended compete with the others.
            sink = self.new_sink(options, prompt_ids)
            assert sink is not None
            end_rules.append(StopRule(sink, len(prompt_ids)).ends)
        request = request_options(
            options,
            vocab_size=self._vocab_size,
            context=self._context,
            stream=stream,
            grammar=None if rule is None else rule.process,
        )
        # Single tokens are needed only for a stream, and to find a stop string.
        gather = not streamed and (not options.stop or options.num_beams > 1)
        return Request(ids, **request, end_rules=end_rules, gather=gather)
