"""Options as the core takes them.

Bounds that change nothing keep numbers of any size within the core's integers. Knows the options
and the core; not prompts, nor what a rule does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from onward import _core
from onward.errors import InvalidArgument
from onward.options.grammar import CONSTRAINT_OPTIONS
from onward.options.resolution import GenerationOptions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onward.options.table import LogitsProcessor

_LARGE = 2**31 - 1
# What the core and the options call by the same name.
_SAMPLING = tuple(
    name for name in GenerationOptions.__dataclass_fields__ if hasattr(_core.SamplingOptions, name)
)
_BEAMS = tuple(
    name for name in GenerationOptions.__dataclass_fields__ if hasattr(_core.BeamOptions, name)
)
_BOUNDED = {
    "top_k": "vocab_size",
    "logprobs": "vocab_size",
    "no_repeat_ngram_size": "context",
    "dry_allowed_length": "context",
    "min_new_tokens": "context",
}


def request_options(
    options: GenerationOptions,
    *,
    vocab_size: int,
    context: int,
    stream: int = 0,
    grammar: Callable[[NDArray[np.int32], NDArray[np.float32]], None] | None = None,
) -> dict[str, Any]:
    """The keyword arguments of ``Engine.submit``, but for the rules that end an output.

    ``stream`` is of the first sequence; the others of the request draw from the next ones.
    """
    limits = {"vocab_size": vocab_size, "context": context}
    sampling = _sampling_options(options, limits)
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
    """What turns logits into a token under these options, in order: each active stage by the option
    that turns it on, then ``"greedy"``, or ``"draw"``. The sampler itself says it."""
    sampling = _sampling_options(options, {"vocab_size": _LARGE, "context": _LARGE})
    given = [name for name in CONSTRAINT_OPTIONS if getattr(options, name) is not None]
    if given:
        sampling.set_grammar(lambda token_ids, scores: None)
    return [given[0] if stage == "grammar" else stage for stage in sampling.chain()]


def _sampling_options(options: GenerationOptions, limits: dict[str, int]) -> _core.SamplingOptions:
    sampling = _core.SamplingOptions()
    for name in _SAMPLING:
        value = getattr(options, name)
        if name == "seed" and value is None:
            continue
        if name == "logprobs":
            value = _count(value, limits["vocab_size"])
        elif name in _BOUNDED:
            value = min(value, limits[_BOUNDED[name]])
        setattr(sampling, name, value)
    if options.best_of is not None and options.logprobs is None:
        sampling.logprobs = 0  # by which the best are told
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
