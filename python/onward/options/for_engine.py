"""The options of a request as the core takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from onward import _core
from onward.errors import InvalidArgument
from onward.options.grammar import CONSTRAINT_OPTIONS
from onward.options.resolution import GenerationOptions
from onward.options.table import BY_NAME, OPTIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onward.options.callables import LogitsProcessor

# A count above every vocabulary and every context has the same effect as this one.
_LARGEST_COUNT = 2**31 - 1
_COUNTS = {option.name for option in OPTIONS if option.kind == "integer"}
# The options that the core has under the same names.
_SAMPLING = tuple(name for name in BY_NAME if hasattr(_core.SamplingOptions, name))
_BEAMS = tuple(name for name in BY_NAME if hasattr(_core.BeamOptions, name))


def request_options(
    options: GenerationOptions,
    *,
    vocab_size: int,
    context: int,
    stream: int = 0,
    grammar: Callable[[NDArray[np.int32], NDArray[np.float32]], None] | None = None,
) -> dict[str, Any]:
    """The keyword arguments of ``Engine.submit``, without the rules that end an output.

    ``stream`` is the random stream of the first sequence. The other sequences of the request use
    the next streams.
    """
    sampling = _sampling_options(options, vocab_size)
    sampling.stream = stream
    sampling.set_grammar(grammar)
    request: dict[str, Any] = {
        "max_new_tokens": min(options.max_new_tokens, context),
        "sampling": sampling,
        "prompt_logprobs": _count(options.prompt_logprobs, vocab_size),
        "priority": options.priority,
        "cache": options.cache,
        "progress": options.prefill_progress is not None,
    }
    if options.num_beams > 1:
        beams = _core.BeamOptions()
        for name in _BEAMS:
            setattr(beams, name, getattr(options, name))
        request["beams"] = beams
    else:
        request["num_sequences"] = options.best_of or options.num_return_sequences
    speculation = _core.SpeculationOptions()
    speculation.lookup_tokens = min(options.prompt_lookup_num_tokens, context)
    speculation.lookup_ngram = min(options.max_matching_ngram_size, context)
    speculation.draft_tokens = min(options.num_assistant_tokens or 0, context)
    request["speculation"] = speculation
    return request


def chain(options: GenerationOptions) -> list[str]:
    """The stages that turn logits into a token under these options, in order. A stage has the name
    of the option that turns it on. The last name is ``"greedy"`` or ``"draw"``."""
    sampling = _sampling_options(options, _LARGEST_COUNT)
    given = [name for name in CONSTRAINT_OPTIONS if getattr(options, name) is not None]
    if given:
        sampling.set_grammar(lambda token_ids, scores: None)
    return [given[0] if stage == "grammar" else stage for stage in sampling.chain()]


def _sampling_options(options: GenerationOptions, vocab_size: int) -> _core.SamplingOptions:
    sampling = _core.SamplingOptions()
    for name in _SAMPLING:
        value = getattr(options, name)
        if name == "seed" and value is None:
            continue
        if name == "logprobs":
            value = _count(value, vocab_size)
        elif name in _COUNTS:
            value = min(value, _LARGEST_COUNT)
        setattr(sampling, name, value)
    if options.best_of is not None and options.logprobs is None:
        sampling.logprobs = 0  # the best outputs are chosen by them
    if options.logits_processor:
        sampling.set_logits_processor(_one_after_another(options.logits_processor))
    return sampling


def _count(wanted: int | None, most: int) -> int:
    return -1 if wanted is None else min(wanted, most)


def _one_after_another(processors: tuple[LogitsProcessor, ...]) -> LogitsProcessor:
    def change(token_ids: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        for processor in processors:
            changed = processor(token_ids, scores)
            if changed is None:
                continue
            if np.shape(changed) != scores.shape:
                raise InvalidArgument(
                    f"logits_processor: returned an object of shape {np.shape(changed)}, "
                    f"expected None or scores of shape {scores.shape}"
                )
            scores[:] = changed

    return change
