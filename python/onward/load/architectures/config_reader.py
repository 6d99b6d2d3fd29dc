"""Typed access to the fields of a model config, and the rule for fields that were not read.

Every access names the type and range it needs, so a bad value is reported with its field before
it can become a size or a divisor. The families know what the fields mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, overload

from onward.errors import ConfigError
from onward.message_text import label, shown

if TYPE_CHECKING:
    from types import EllipsisType  # Python 3.10 has it; the name is for annotations alone

# Fields of the file format, of training, of generation or of other programs. None changes what
# the network computes from its weights, although some are named as if they did.
_HARMLESS_FIELDS = """
    architectures auto_map model_type dtype torch_dtype transformers_version transformers.js_config
    use_cache initializer_range pretraining_tp return_dict output_attentions output_hidden_states
    output_scores output_router_logits chunk_size_feed_forward torchscript is_decoder use_bfloat16
    attn_implementation use_flash_attn use_flash_attention use_flash_attention_2
    temperature no_repeat_ngram_size encoder_no_repeat_ngram_size renormalize_logits
    repetition_penalty gradient_checkpointing layerdrop is_llama_config
    tokenizer_class keys_to_ignore_at_inference
"""
_HARMLESS = frozenset(_HARMLESS_FIELDS.split())
_HARMLESS_ENDINGS = ("_token_id", "dropout", "_pdrop", "_dropout_prob", "_drop")
_HARMLESS_BEGINNINGS = ("_attn_implementation", "_flash_attn", "unsloth_", "initializer_")

# Words in a field's name that speak of arithmetic.
_ARITHMETIC_WORDS = """
    act activation alibi attention attn bias biases cap capping chunk clamp clip conv cross dim eps
    epsilon embedding embeddings encoder expert experts factor ffn gate gating head heads hidden kv
    latent layer layernorm layers logit logits lora mlp moe mrope mtp multiplier nextn norm norms
    parallel position positional qk quant quantization rank residual rmsnorm rope rotary router
    scale scales scaling sink sinks size skip softcap softcapping sparse sparsity ssm state theta
    window windows yarn
"""
_ARITHMETIC = frozenset(_ARITHMETIC_WORDS.split())
_FACTORS = frozenset(["factor", "multiplier", "scale", "scaling"])


class ConfigReader:
    """One object of a config, e.g. all of config.json or its ``rope_scaling``.

    ``where`` opens every message ("config.json"). Absent and null are the same: the default.
    """

    def __init__(self, values: Mapping[str, object], where: str, prefix: str = "") -> None:
        self.values = values
        self.where = where
        self._prefix = prefix
        self._asked: set[str] = set()
        self._spellings: dict[str, str] = {}
        self._renamed: dict[str, str] = {}

    def spelled(self, **spellings: str) -> ConfigReader:
        """This reader, for a family that spells fields in its own way: ``hidden_size="n_embd"``.

        From then on an access of the field on the left reads the one on the right. A config may
        have the field on the left instead, but not both with different values.
        """
        self._spellings.update(spellings)
        return self

    def with_values(self, **values: object) -> ConfigReader:
        """A reader of the same fields, some of which have other values."""
        other = ConfigReader({**self.values, **values}, self.where, self._prefix)
        other._asked, other._spellings = self._asked, self._spellings
        other._renamed = self._renamed
        return other

    def renamed(self, **names: str) -> ConfigReader:
        """As ``spelled``, for a family where the fields on the left say something else, such as the
        depth of an encoder: their values are not used."""
        self._renamed.update(names)
        return self

    def spelling(self, key: str) -> str:
        """The name that a field has in this config."""
        renamed = self._renamed.get(key)
        if renamed is not None:
            self._asked.update((renamed, key))
            return renamed
        own = self._spellings.get(key)
        if own is None:
            return key
        value, other = self.values.get(own), self.values.get(key)
        if value is not None and other is not None and value != other:
            raise self._error(own, f"is {shown(value)}, but {key} is {shown(other)}")
        self._asked.update((own, key))
        return own if value is not None or other is None else key

    def __contains__(self, key: str) -> bool:
        return self.values.get(self.spelling(key)) is not None

    def error(self, key: str, problem: str) -> ConfigError:
        """The exception to raise about a field: ``problem`` continues "config.json: field ..."."""
        return self._error(self.spelling(key), problem)

    def _error(self, key: str, problem: str) -> ConfigError:
        return ConfigError(f"{self.where}: {self._prefix}{label(key)} {problem}")

    def wrong(self, key: str, expected: str) -> ConfigError:
        """The exception for a field whose value is not what it has to be."""
        value = self.values.get(self.spelling(key))
        if value is None:
            return self.error(key, f"is missing, expected {expected}")
        return self.error(key, f"is {shown(value)}, expected {expected}")

    def _get(self, key: str) -> object:
        self._asked.add(key)
        return self.values.get(self.spelling(key))

    @overload
    def integer(self, key: str, low: int, high: int, default: int | EllipsisType = ...) -> int: ...
    @overload
    def integer(self, key: str, low: int, high: int, default: None) -> int | None: ...
    def integer(
        self, key: str, low: int, high: int, default: int | EllipsisType | None = ...
    ) -> int | None:
        """An integer from ``low`` to ``high``; without a default the field is required."""
        value = self._get(key)
        if value is None and default is not ...:
            return default
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(key, f"an integer from {low} to {high}")
        return value

    @overload
    def number(
        self, key: str, low: float, high: float, default: float | EllipsisType = ...
    ) -> float: ...
    @overload
    def number(self, key: str, low: float, high: float, default: None) -> float | None: ...
    def number(
        self, key: str, low: float, high: float, default: float | EllipsisType | None = ...
    ) -> float | None:
        """A finite number from ``low`` to ``high``, written as an integer or a float."""
        value = self._get(key)
        if value is None and default is not ...:
            return default
        # The comparison also refuses NaN, and integers too large to become a float.
        if type(value) not in (int, float) or not low <= value <= high:  # type: ignore[operator]
            raise self.wrong(key, f"a number from {low:g} to {high:g}")
        return float(value)  # type: ignore[arg-type]

    def flag(self, key: str, default: bool) -> bool:
        """True or false; numbers do not stand for them."""
        value = self._get(key)
        if value is None:
            return default
        if type(value) is not bool:
            raise self.wrong(key, "true or false")
        return value

    def text(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of ``choices``."""
        value = self._get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(key, f"one of {', '.join(choices)}")
        return value

    def texts(self, key: str, choices: Sequence[str], length: int) -> list[str] | None:
        """A list of ``length`` strings, each one of ``choices``; None when absent."""
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            found = f"a list of {len(value)}" if isinstance(value, list) else shown(value)
            raise self.error(key, f"is {found}, expected a list of {length} strings")
        for i, item in enumerate(value):
            if not isinstance(item, str) or item not in choices:
                raise self.error(
                    f"{key}[{i}]", f"is {shown(item)}, expected one of {', '.join(choices)}"
                )
        return list(value)

    def numbers(self, key: str, low: float, high: float, length: int) -> list[float]:
        """A list of ``length`` finite numbers from ``low`` to ``high``."""
        value = self._get(key)
        if value is None:
            raise self.wrong(key, f"a list of {length} numbers")
        if not isinstance(value, list) or len(value) != length:
            found = f"a list of {len(value)}" if isinstance(value, list) else shown(value)
            raise self.error(key, f"is {found}, expected a list of {length} numbers")
        for i, item in enumerate(value):
            if type(item) not in (int, float) or not low <= item <= high:
                raise self.error(
                    f"{key}[{i}]", f"is {shown(item)}, expected a number from {low:g} to {high:g}"
                )
        return [float(item) for item in value]

    def integers(self, key: str, low: int, high: int) -> list[int]:
        """A list of integers from ``low`` to ``high``; empty when absent."""
        value = self._get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(key, "a list of integers")
        for i, item in enumerate(value):
            if type(item) is not int or not low <= item <= high:
                raise self.error(
                    f"{key}[{i}]", f"is {shown(item)}, expected an integer from {low} to {high}"
                )
        return list(value)

    def section(self, key: str) -> ConfigReader | None:
        """A nested object; None when absent, null or empty."""
        value = self._get(key)
        if value is None or value == {}:
            return None
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        return ConfigReader(value, self.where, f"{self._prefix}{key}.")

    def ignore(self, *keys: str) -> None:
        """Mark fields as understood although their values are not used."""
        self._asked.update(keys)

    def refuse_the_rest(self, *, strict: bool = False) -> None:
        """Raise if a field that was not read may change what the network computes.

        A field is let through when it is known to be harmless, when its value turns it off (null,
        false, 0, empty; 1 for a factor), or when no word of its name speaks of arithmetic: a
        config written by a newer library or another program carries many notes (versions, dates,
        tool settings), and those should not keep a model from loading. What is left, such as
        ``logits_scaling: 8`` or ``num_local_experts: 16``, is an error that names the field.
        With ``strict`` (rope sections, whose fields are all arithmetic) every unasked field that
        is not turned off is refused.
        """
        for key in sorted(set(self.values) - self._asked, key=str):
            value = self.values[key]
            words = set(re.split(r"[^a-z0-9]+", key.lower()))
            if _turned_off(value, is_factor=bool(words & _FACTORS)):
                continue
            if not strict:
                if key in _HARMLESS or key.startswith(_HARMLESS_BEGINNINGS):
                    continue
                if key.endswith(_HARMLESS_ENDINGS) or not words & _ARITHMETIC:
                    continue
            raise self.error(
                key,
                f"is {shown(value)}, and this version does not know what that changes in the "
                "network; if it changes nothing, remove the field",
            )


def _turned_off(value: object, *, is_factor: bool) -> bool:
    if value is None or value is False or value in ("", [], {}):
        return True
    if type(value) in (int, float):
        return value == 1 if is_factor else value == 0
    return False
