"""The defaults of a model: generation_config.json, and the end-of-sequence ids of all its files.

As in Hugging Face transformers, temperature and filters have an effect only if ``do_sample`` is
true. Two things differ from transformers: its built-in ``top_k`` of 50 applies only if the file
contains it, and ``max_length`` (prompt and output together) has no counterpart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onward.errors import ArgumentTypeError, ConfigError, InvalidArgument
from onward.options.resolution import ModelDefaults
from onward.options.table import BY_NAME
from onward.options.values import check, shown

_SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
)
_ALWAYS = (
    "max_new_tokens",
    "min_new_tokens",
    "num_return_sequences",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "length_penalty",
    "early_stopping",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "suppress_tokens",
)

# Fields that change the output and have no counterpart yet, with their neutral values.
_NOT_YET: dict[str, tuple[object, ...]] = {
    "top_h": (),
    "penalty_alpha": (0.0,),
    "guidance_scale": (1.0,),
    "min_length": (0,),
    "begin_suppress_tokens": ([],),
    "sequence_bias": (),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "exponential_decay_length_penalty": (),
}


def read_model_defaults(
    generation_config: Mapping[str, object],
    config: Mapping[str, object],
    tokenizer_eos: Sequence[int],
    vocab_size: int,
) -> ModelDefaults:
    """Check and combine the files. ConfigError names the file and the field."""
    where = "generation_config.json"
    do_sample = generation_config.get("do_sample")
    if do_sample is not None and not isinstance(do_sample, bool):
        raise ConfigError(f"{where}: do_sample is {shown(do_sample)}, expected true or false")
    written: dict[str, Any] = {}
    for name, spelling in (*((n, n) for n in _SAMPLING + _ALWAYS), ("stop", "stop_strings")):
        value = generation_config.get(spelling)
        if value is None:
            continue
        try:
            written[name] = check(BY_NAME[name], value, vocab_size)
        except (InvalidArgument, ArgumentTypeError) as error:
            reason = str(error).removeprefix(f"{name}: ")
            raise ConfigError(f"{where}: {spelling} {reason}") from None
    temperature = written.get("temperature", 1.0) or 1.0
    if do_sample:
        written.setdefault("temperature", 1.0)
    values = {name: v for name, v in written.items() if do_sample or name not in _SAMPLING}
    eos = {
        *_read_eos("config.json", config, vocab_size),
        *_read_eos(where, generation_config, vocab_size),
        *(token for token in tokenizer_eos if 0 <= token < vocab_size),
    }
    return ModelDefaults(vocab_size, tuple(sorted(eos)), values, temperature, do_sample is not None)


def without_counterpart(generation_config: Mapping[str, object]) -> list[str]:
    """``name=value`` of each field whose effect this version does not have."""
    return [
        f"{name}={shown(generation_config[name])}"
        for name, neutral in _NOT_YET.items()
        if generation_config.get(name) is not None and generation_config[name] not in neutral
    ]


def _read_eos(where: str, config: Mapping[str, object], vocab_size: int) -> list[int]:
    value = config.get("eos_token_id")
    listed: list[Any] = value if isinstance(value, list) else [value]
    ids = [] if value is None or value == -1 else listed
    for token in ids:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise ConfigError(
                f"{where}: eos_token_id is {shown(value)}, "
                f"expected an integer, or a list of them, 0 to {vocab_size - 1}"
            )
    return ids
