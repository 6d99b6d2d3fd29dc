"""The table of generation options: every option's name, meaning, legal values and default.

Signatures, docstrings, the flags of the command line, the checks and the list of options in the
document "generation" all come from ``OPTIONS``. The options of beams and of the sampling chain are
rows of the core's tables (csrc/sampling: beam_options.cpp, filters.cpp, processors.cpp). All other
options are rows here. After a change of either, ``python scripts/generation_options.py`` writes the
derived files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onward.options.generation import CORE_OPTIONS
from onward.options.values import Option


def all_options(core: Mapping[str, Sequence[Option]]) -> tuple[Option, ...]:
    """The rows of this file and of the core, in the order of signatures and documents."""
    return (
        Option(
            "max_new_tokens",
            "integer",
            256,
            "largest number of tokens to generate; 0 gives an empty text",
            low=0,
            details='The `finish_reason` of an empty text is `"length"`',
        ),
        Option(
            "best_of",
            "optional_integer",
            None,
            "draw this many outputs and return the most likely ones, by mean log-probability",
            low=1,
            high=2**31 - 1,
            absent="num_return_sequences",
            details="`num_return_sequences` of them are returned",
        ),
        *core["beams"],
        # In Python -1 turns top_k off too, as in vLLM.
        *(replace(o, low=-1) if o.name == "top_k" else o for o in core["draw"]),
        *core["scores"],
        *core["others"],
        Option(
            "seed",
            "seed",
            None,
            "0 to 2**64 - 1: equal seed, prompt and options give equal tokens, at any position in "
            "any batch",
            low=0,
            high=2**64 - 1,
            absent="a new one each time",
            details="The k-th copy of a prompt in one call draws from stream k",
        ),
        Option(
            "stop",
            "texts",
            (),
            "a text or several texts; the output ends before the first of them",
        ),
        Option(
            "stop_token_ids",
            "ids",
            (),
            "tokens that end the output, in addition to the model's own",
        ),
        Option("ignore_eos", "flag", False, "do not end at the model's end-of-sequence tokens"),
        Option(
            "skip_special_tokens",
            "flag",
            True,
            "leave special tokens out of the text",
            details="`token_ids` always contains them, and the stop token",
        ),
        Option(
            "json_schema",
            "constraint",
            None,
            "the output is JSON of this schema, given as JSON text (or a dict); true is any JSON",
            type="Mapping[str, Any] | str | bool | None",
            details="See [Constrained output](#constrained-output)",
        ),
        Option(
            "regex",
            "constraint",
            None,
            "the output as a whole matches this regular expression",
            type="str | None",
        ),
        Option(
            "choices",
            "constraint",
            None,
            "the output is one of these texts",
            type="Sequence[str] | None",
        ),
        Option(
            "grammar",
            "constraint",
            None,
            "the output follows this grammar, in Lark's notation",
            type="str | None",
        ),
        Option(
            "logits_processor",
            "callables",
            (),
            "functions (token_ids, scores) of your own that change scores in place",
            type="LogitsProcessor",
            details="See [Your own rules](#your-own-rules)",
        ),
        Option(
            "stopping_criteria",
            "callables",
            (),
            "functions (token_ids) that return whether the output ends here",
            type="StoppingCriterion",
            details="See [Your own rules](#your-own-rules)",
        ),
        Option(
            "logprobs",
            "optional_integer",
            None,
            "log-probability of each token, and of the N most likely alternatives",
            low=0,
            details="See [Log-probabilities](#log-probabilities)",
        ),
        Option(
            "prompt_logprobs",
            "optional_integer",
            None,
            "the same for the prompt's tokens after the first",
            low=0,
        ),
        Option(
            "prompt_lookup_num_tokens",
            "integer",
            0,
            "guess this many tokens a step from an earlier occurrence of the last tokens: faster "
            "where the output repeats the prompt, with the same output; 0 is off",
            low=0,
        ),
        Option(
            "max_matching_ngram_size",
            "integer",
            2,
            "number of last tokens that prompt_lookup_num_tokens compares at most",
            low=1,
        ),
        Option(
            "num_assistant_tokens",
            "optional_integer",
            None,
            "number of tokens that the draft model guesses a step; 0 is off",
            low=0,
            absent="4 with a draft model",
        ),
        Option(
            "priority",
            "integer",
            0,
            "requests of higher priority go first: each level counts as 16 steps of waiting",
            low=-1_000_000,
            high=1_000_000,
        ),
        Option(
            "cache",
            "flag",
            True,
            "keep keys and values; off computes the whole sequence again for every token",
            details="Off is an experiment: the bits are the same",
        ),
        Option(
            "prefill_progress",
            "callable",
            None,
            "function (done, all), called with the numbers of computed and of all prompt tokens",
            type="PrefillProgress | None",
            details="Python only",
        ),
    )


OPTIONS = all_options(CORE_OPTIONS)
BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}
