"""The table of options: every option's name, meaning, legal values and default.

Call signatures, docstrings, the command line's flags and the validation all come from ``OPTIONS``;
``GenerationKwargs`` repeats only the names and types, for editors and type checkers, and a test
holds the two together. Knows nothing of how options go together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from onward.options.values import Option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    LogitsProcessor: TypeAlias = Callable[
        [NDArray[np.int32], NDArray[np.float32]], NDArray[np.float32] | None
    ]
    """Token ids so far (prompt, then output) and scores (vocab_size): changes the scores in place,
    or returns others."""
    StoppingCriterion: TypeAlias = Callable[[NDArray[np.int32]], bool]
    """Token ids so far: whether the output ends with the last of them."""
else:  # numpy takes its time, and the command line's --help is in a hurry
    LogitsProcessor = StoppingCriterion = Callable[..., Any]

PrefillProgress: TypeAlias = Callable[[int, int], object]
"""Tokens of the prompt that are computed or were kept, and all of them."""

OPTIONS: tuple[Option, ...] = (
    Option("max_new_tokens", "integer", 256, "tokens to generate at most; 0 gives no text", low=0),
    Option(
        "min_new_tokens",
        "integer",
        0,
        "tokens before which no stop token can be chosen; at most max_new_tokens",
        low=0,
    ),
    Option(
        "num_return_sequences",
        "integer",
        1,
        "outputs of one prompt, which is read once; with beams the best ones",
        low=1,
        high=2**31 - 1,
    ),
    Option(
        "best_of",
        "optional_integer",
        None,
        "draw this many outputs and return the likeliest, by mean log-probability",
        low=1,
        high=2**31 - 1,
        absent="num_return_sequences",
    ),
    Option(
        "num_beams",
        "integer",
        1,
        "beam search with this many hypotheses; 1 is off",
        low=1,
        high=2**31 - 1,
    ),
    Option(
        "num_beam_groups",
        "integer",
        1,
        "groups of beams that differ by diversity_penalty; divides num_beams",
        low=1,
        high=2**31 - 1,
    ),
    Option(
        "diversity_penalty",
        "number",
        0.0,
        "taken from a token's log-probability for each beam of an earlier group that took it",
        low=0,
    ),
    Option(
        "length_penalty",
        "number",
        1.0,
        "a hypothesis scores the sum of its log-probabilities / its length to this power",
    ),
    Option(
        "early_stopping",
        "early_stopping",
        False,
        "when a beam search ends: on (True) with num_beams hypotheses, off (False) when none is "
        "likely to be better, never when none can be",
    ),
    Option(
        "temperature",
        "number",
        0.0,
        "divides the logits: below 1 sharpens, above 1 flattens; 0 is greedy, always the likeliest",
        low=0,
    ),
    Option(
        "dynatemp_range",
        "number",
        0.0,
        "temperature from this much below (sure) to above (unsure), by the entropy; 0 is off",
        low=0,
        samples=True,
    ),
    Option(
        "dynatemp_exponent",
        "number",
        1.0,
        "power of the entropy's share in dynatemp_range",
        low=0,
    ),
    Option(
        "top_n_sigma",
        "number",
        0.0,
        "keep logits within n standard deviations of the largest; 0 is off",
        low=0,
        samples=True,
    ),
    Option(
        "top_k",
        "integer",
        0,
        "keep the k likeliest tokens, and ties; 0 or -1 is off",
        low=-1,
        samples=True,
    ),
    Option(
        "top_p",
        "number",
        1.0,
        "keep the likeliest tokens up to the one that brings their sum to p; 1 is off",
        low=0,
        high=1,
        samples=True,
    ),
    Option(
        "min_p",
        "number",
        0.0,
        "drop tokens less likely than this share of the likeliest one; 0 is off",
        low=0,
        high=1,
        samples=True,
    ),
    Option(
        "typical_p",
        "number",
        1.0,
        "keep tokens of nearly typical surprise until their sum reaches p; 1 is off",
        low=0,
        high=1,
        above_low=True,
        samples=True,
    ),
    Option(
        "epsilon_cutoff",
        "number",
        0.0,
        "drop tokens less likely than this; 0 is off",
        low=0,
        high=1,
        samples=True,
    ),
    Option(
        "eta_cutoff",
        "number",
        0.0,
        "drop tokens less likely than this, or than less where the entropy is high; 0 is off",
        low=0,
        high=1,
        samples=True,
    ),
    Option(
        "xtc_probability",
        "number",
        0.0,
        "how often XTC drops all but the least likely of the likely tokens; 0 is off",
        low=0,
        high=1,
        samples=True,
    ),
    Option(
        "xtc_threshold",
        "number",
        0.1,
        "what XTC calls likely",
        low=0,
        high=1,
    ),
    Option(
        "mirostat",
        "integer",
        0,
        "2: a cut that steers the surprise to mirostat_tau, in place of all filters; 0 is off",
        low=0,
        high=2,
        choices=(0, 2),
        samples=True,
    ),
    Option(
        "mirostat_tau",
        "number",
        5.0,
        "mirostat's aim, in bits a token",
        low=0,
    ),
    Option(
        "mirostat_eta",
        "number",
        0.1,
        "how fast mirostat's cut follows",
        low=0,
    ),
    Option(
        "repetition_penalty",
        "number",
        1.0,
        "divides positive and multiplies negative logits of tokens in prompt and output; 1 is off",
        low=0,
        above_low=True,
    ),
    Option(
        "presence_penalty",
        "number",
        0.0,
        "taken from the logit of every token of the output; 0 is off",
    ),
    Option(
        "frequency_penalty",
        "number",
        0.0,
        "taken from the logit of every token of the output, each time it came; 0 is off",
    ),
    Option(
        "dry_multiplier",
        "number",
        0.0,
        "DRY: penalty of a token that prolongs a repetition; 0 is off",
        low=0,
    ),
    Option(
        "dry_base",
        "number",
        1.75,
        "what DRY's penalty grows by for each token more of repetition",
        low=1,
    ),
    Option(
        "dry_allowed_length",
        "integer",
        2,
        "the shortest repetition that DRY penalises to prolong",
        low=1,
    ),
    Option(
        "dry_sequence_breakers",
        "ids",
        (),
        "tokens that no repetition of DRY's reaches over",
    ),
    Option(
        "no_repeat_ngram_size",
        "integer",
        0,
        "no sequence of this many tokens comes twice in prompt and output; 0 is off",
        low=0,
    ),
    Option(
        "logit_bias",
        "biases",
        {},
        "token id -> number added to its logit before all else; -inf bans",
    ),
    Option(
        "bad_words_ids",
        "id_lists",
        (),
        "lists of token ids that may not come in that order",
    ),
    Option(
        "allowed_token_ids",
        "allowed_ids",
        None,
        "the only tokens that can be chosen",
        absent="all",
    ),
    Option(
        "suppress_tokens",
        "ids",
        (),
        "tokens that cannot be chosen",
    ),
    Option(
        "sampling_order",
        "name",
        "hf",
        'whose order the stages have: "hf", "vllm" or "llama.cpp" (temperature last)',
        choices=("hf", "vllm", "llama.cpp"),
    ),
    Option(
        "seed",
        "seed",
        None,
        "0 to 2**64 - 1: same seed, prompt and options, same tokens, wherever the prompt stands in "
        "a batch; the k-th copy of a prompt in one call draws from stream k",
        low=0,
        high=2**64 - 1,
        absent="a new one each time",
    ),
    Option("stop", "texts", (), "text, or several, before which the output ends"),
    Option("stop_token_ids", "ids", (), "tokens that end the output, beside the model's own"),
    Option("ignore_eos", "flag", False, "do not end at the model's end-of-sequence tokens"),
    Option("skip_special_tokens", "flag", True, "leave special tokens out of the text"),
    Option(
        "json_schema",
        "constraint",
        None,
        "the output is JSON of this schema, given as JSON text (or a dict); true is any JSON",
    ),
    Option("regex", "constraint", None, "the output matches this regular expression as a whole"),
    Option("choices", "constraint", None, "the output is one of these texts"),
    Option("grammar", "constraint", None, "the output follows this grammar, in Lark's notation"),
    Option(
        "logits_processor",
        "callables",
        (),
        "functions (token_ids, scores) that change scores in place; a rule of your own",
    ),
    Option(
        "stopping_criteria",
        "callables",
        (),
        "functions (token_ids) that say whether the output ends here",
    ),
    Option(
        "logprobs",
        "optional_integer",
        None,
        "log-probabilities of each token, and of the N likeliest in its place",
        low=0,
    ),
    Option(
        "prompt_logprobs",
        "optional_integer",
        None,
        "log-probabilities of the prompt's tokens after the first, likewise",
        low=0,
    ),
    Option(
        "prompt_lookup_num_tokens",
        "integer",
        0,
        "guess this many tokens a step from where the last ones came before; the same output, "
        "sooner where it repeats the prompt; 0 is off",
        low=0,
    ),
    Option(
        "max_matching_ngram_size",
        "integer",
        2,
        "last tokens that prompt_lookup_num_tokens looks for at most",
        low=1,
    ),
    Option(
        "num_assistant_tokens",
        "optional_integer",
        None,
        "tokens that the draft model guesses a step; 0 is off",
        low=0,
        absent="4 where there is a draft model",
    ),
    Option(
        "priority",
        "integer",
        0,
        "a request of higher priority is served as if it had waited 16 steps longer a level",
        low=-1_000_000,
        high=1_000_000,
    ),
    Option("cache", "flag", True, "keep keys and values; off computes all of them for every token"),
    Option(
        "prefill_progress",
        "callable",
        None,
        "called with the prompt's tokens that are computed and with all, step by step",
    ),
)
BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}


class GenerationKwargs(TypedDict, total=False):
    """The keyword arguments of ``generate``, ``stream`` and ``chat``, each with its type."""

    max_new_tokens: int
    min_new_tokens: int
    num_return_sequences: int
    best_of: int | None
    num_beams: int
    num_beam_groups: int
    diversity_penalty: float
    length_penalty: float
    early_stopping: bool | Literal["never"]
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_n_sigma: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    epsilon_cutoff: float
    eta_cutoff: float
    xtc_probability: float
    xtc_threshold: float
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_sequence_breakers: Sequence[int] | None
    no_repeat_ngram_size: int
    logit_bias: Mapping[int, float] | None
    bad_words_ids: Sequence[Sequence[int]] | None
    allowed_token_ids: Sequence[int] | None
    suppress_tokens: Sequence[int] | None
    sampling_order: str
    seed: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool
    skip_special_tokens: bool
    json_schema: Mapping[str, Any] | str | bool | None
    regex: str | None
    choices: Sequence[str] | None
    grammar: str | None
    logits_processor: LogitsProcessor | Sequence[LogitsProcessor] | None
    stopping_criteria: StoppingCriterion | Sequence[StoppingCriterion] | None
    logprobs: int | None
    prompt_logprobs: int | None
    prompt_lookup_num_tokens: int
    max_matching_ngram_size: int
    num_assistant_tokens: int | None
    priority: int
    cache: bool
    prefill_progress: PrefillProgress | None
