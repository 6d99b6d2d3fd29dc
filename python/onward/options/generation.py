"""The generation options of the core, and the types of all options.

Written by scripts/generation_options.py from the tables in csrc/sampling and in table.py, which say
what each option means. Change those and run the script; a test compares them with this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from onward.options.callables import LogitsProcessor, PrefillProgress, StoppingCriterion
from onward.options.values import Option

CORE_OPTIONS: dict[str, tuple[Option, ...]] = {
    "beams": (
        Option(
            "num_return_sequences",
            "integer",
            1,
            "outputs for each prompt, which is read once; with beams, the best hypotheses",
            low=1,
            high=2147483647,
        ),
        Option(
            "num_beams",
            "integer",
            1,
            "beam search with this many hypotheses; 1 is off",
            low=1,
            high=2147483647,
        ),
        Option(
            "num_beam_groups",
            "integer",
            1,
            "groups of beams, searched one after another; divides num_beams",
            low=1,
            high=2147483647,
        ),
        Option(
            "diversity_penalty",
            "number",
            0.0,
            "subtracted from a token's log-probability for each beam of an earlier group that"
            " took it",
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
            "when a beam search ends: on (True) with num_beams hypotheses, off (False) when "
            "none is likely to be better, never when none can be better",
        ),
    ),
    "draw": (
        Option(
            "temperature",
            "number",
            0.0,
            "divides the logits: below 1 sharpens the distribution, above 1 flattens it; 0 is"
            " greedy and always takes the most likely token",
            low=0,
        ),
        Option(
            "dynatemp_range",
            "number",
            0.0,
            "dynamic temperature: from temperature - range where the model is sure to "
            "temperature + range where it is unsure; 0 is off",
            low=0,
            samples=True,
        ),
        Option(
            "dynatemp_exponent",
            "number",
            1.0,
            "exponent of dynatemp_range's share of the entropy",
            low=0,
        ),
        Option(
            "smoothing_factor",
            "number",
            0.0,
            "quadratic sampling: the larger, the steeper the likelihood falls with the "
            "squared distance from the largest logit; 0 is off",
            low=0,
            samples=True,
        ),
        Option(
            "smoothing_curve",
            "number",
            1.0,
            "curve of smoothing_factor: 1 is a parabola, more falls faster far from the "
            "largest logit",
            low=1,
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
            "keep the k most likely tokens, and ties; 0 is off",
            low=0,
            samples=True,
        ),
        Option(
            "top_p",
            "number",
            1.0,
            "keep the most likely tokens up to the one that brings their sum to p; 1 is off",
            low=0,
            high=1,
            samples=True,
        ),
        Option(
            "min_p",
            "number",
            0.0,
            "drop tokens less likely than this fraction of the most likely one; 0 is off",
            low=0,
            high=1,
            samples=True,
        ),
        Option(
            "typical_p",
            "number",
            1.0,
            "keep the tokens whose surprise is nearest to the entropy until their sum reaches"
            " p; 1 is off",
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
            "drop tokens less likely than eta, or than a lower bound where the entropy is "
            "high; 0 is off",
            low=0,
            high=1,
            samples=True,
        ),
        Option(
            "xtc_probability",
            "number",
            0.0,
            "probability that XTC drops all likely tokens but the least likely of them; 0 is off",
            low=0,
            high=1,
            samples=True,
        ),
        Option(
            "xtc_threshold",
            "number",
            0.1,
            "probability from which XTC calls a token likely",
            low=0,
            high=1,
        ),
        Option(
            "mirostat",
            "integer",
            0,
            "2: mirostat, a cut that steers the surprise to mirostat_tau and replaces all "
            "filters; 0 is off",
            low=0,
            high=2,
            choices=(0, 2),
            samples=True,
        ),
        Option("mirostat_tau", "number", 5.0, "target of mirostat, in bits per token", low=0),
        Option("mirostat_eta", "number", 0.1, "step size of mirostat's cut", low=0),
    ),
    "scores": (
        Option(
            "logit_bias",
            "biases",
            {},
            "token id -> number added to its logit before every other stage; -inf bans",
        ),
        Option(
            "repetition_penalty",
            "number",
            1.0,
            "divides positive and multiplies negative logits of tokens in prompt and output; "
            "1 is off",
            low=0,
            above_low=True,
        ),
        Option(
            "presence_penalty",
            "number",
            0.0,
            "subtracted from the logit of every token that is in the output; 0 is off",
        ),
        Option(
            "frequency_penalty",
            "number",
            0.0,
            "subtracted from the logit of a token for each time it is in the output; 0 is off",
        ),
        Option(
            "dry_multiplier",
            "number",
            0.0,
            "DRY: penalty of a token that would prolong a repetition; 0 is off",
            low=0,
        ),
        Option(
            "dry_base",
            "number",
            1.75,
            "factor by which each further token of a repetition raises DRY's penalty",
            low=1,
        ),
        Option("dry_allowed_length", "integer", 2, "shortest repetition that DRY penalises", low=1),
        Option("dry_sequence_breakers", "ids", (), "token ids at which DRY's repetitions end"),
        Option(
            "no_repeat_ngram_size",
            "integer",
            0,
            "forbid repeating any n-gram of this size; 0 is off",
            low=0,
        ),
        Option(
            "bad_words_ids",
            "id_lists",
            (),
            "lists of token ids, none of which may appear in the output",
        ),
        Option(
            "min_new_tokens",
            "integer",
            0,
            "number of tokens before which no stop token can be chosen; at most max_new_tokens",
            low=0,
        ),
        Option(
            "allowed_token_ids",
            "allowed_ids",
            None,
            "the only tokens that can be chosen",
            absent="all",
        ),
        Option("suppress_tokens", "ids", (), "tokens that cannot be chosen"),
    ),
    "others": (
        Option(
            "sampling_order",
            "name",
            "hf",
            'order of the stages: "hf", "vllm" or "llama.cpp" (temperature last)',
            choices=("hf", "vllm", "llama.cpp"),
        ),
    ),
}


class GenerationKwargs(TypedDict, total=False):
    """The keyword arguments of ``generate``, ``stream`` and ``chat``, each with its type."""

    max_new_tokens: int
    best_of: int | None
    num_return_sequences: int
    num_beams: int
    num_beam_groups: int
    diversity_penalty: float
    length_penalty: float
    early_stopping: bool | Literal["never"]
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    smoothing_factor: float
    smoothing_curve: float
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
    logit_bias: Mapping[int, float] | None
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_sequence_breakers: Sequence[int] | None
    no_repeat_ngram_size: int
    bad_words_ids: Sequence[Sequence[int]] | None
    min_new_tokens: int
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


@dataclass(frozen=True)
class OptionValues:
    """A checked value of every option."""

    max_new_tokens: int
    best_of: int | None
    num_return_sequences: int
    num_beams: int
    num_beam_groups: int
    diversity_penalty: float
    length_penalty: float
    early_stopping: bool | Literal["never"]
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    smoothing_factor: float
    smoothing_curve: float
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
    logit_bias: dict[int, float]
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_sequence_breakers: tuple[int, ...]
    no_repeat_ngram_size: int
    bad_words_ids: tuple[tuple[int, ...], ...]
    min_new_tokens: int
    allowed_token_ids: tuple[int, ...] | None
    suppress_tokens: tuple[int, ...]
    sampling_order: str
    seed: int | None
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    skip_special_tokens: bool
    json_schema: Mapping[str, Any] | str | bool | None
    regex: str | None
    choices: Sequence[str] | None
    grammar: str | None
    logits_processor: tuple[LogitsProcessor, ...]
    stopping_criteria: tuple[StoppingCriterion, ...]
    logprobs: int | None
    prompt_logprobs: int | None
    prompt_lookup_num_tokens: int
    max_matching_ngram_size: int
    num_assistant_tokens: int | None
    priority: int
    cache: bool
    prefill_progress: PrefillProgress | None
