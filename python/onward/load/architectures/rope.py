"""Reads how a model rotates queries and keys: rope kind, base, and the scaled frequencies.

Two spellings exist: ``rope_scaling`` (with ``type`` or ``rope_type``) beside a top-level
``rope_theta``, and ``rope_parameters``, which holds all of it. The frequencies are computed in
float32 step by step as the reference library does, so that they carry the same rounding.

How far a model's positions reach (``max_context``) follows from the kind:

* default, llama3: ``max_position_embeddings``, which already counts the stretched range.
* linear, dynamic: ``factor * max_position_embeddings``; configs of these kinds keep the length of
  pre-training in that field.
* proportional: ``max_position_embeddings``.
* yarn: ``factor * original_max_position_embeddings``, or ``max_position_embeddings`` if larger.
* longrope: ``original_max_position_embeddings``.
* factors (of a GGUF file): ``max_position_embeddings``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onward.load.architectures.config_reader import ConfigReader
from onward.message_text import shown
from onward.spec import RopeSpec

Frequencies = NDArray[np.float32]  # (head_dim // 2)

MAX_POSITIONS = 1 << 62  # of a config's field; nothing is ever allocated by it
MAX_CONTEXT = (1 << 31) - 1  # positions are 32-bit integers
_FACTOR = (1.0, 1e6)
_OF_ANY_KIND = {
    *("rope_theta", "partial_rotary_factor", "rope_type", "type", "mrope_section"),
    "mrope_interleaved",
}
_THETA = (1.0, 1e30)


@dataclass(frozen=True)
class Rope:
    """What a rope section says: the rotation, and how many positions it is made for."""

    spec: RopeSpec
    max_context: int


def read_rope(
    config: ConfigReader,
    head_dim: int,
    max_position_embeddings: int,
    default_theta: float = 1e4,
    default_rotated: float | None = None,
    rotary_dim: int | None = None,
    default_section: Mapping[str, object] | None = None,
) -> Rope:
    """Read the rope of a config in either spelling; an unknown kind is an error.

    ``default_rotated`` is the rotated share of a head, where the config has no
    partial_rotary_factor; None: heads of the family rotate whole. ``rotary_dim`` is the number of
    rotated dimensions, of the families that have it in a field of its own. ``default_section`` is
    the rope section of a config that has none.
    """
    section = rope_section(config)
    if section is None and default_section is not None:
        section = ConfigReader(default_section, config.where, "rope_parameters.")
    theta = _theta(config, section, default_theta)
    rotated = rotary_dim
    if rotated is not None:
        for where in (config, section):
            if where is not None:
                where.ignore("partial_rotary_factor")  # says the same
    else:
        rotated = _rotated(config, section, head_dim, default_rotated)
    rope = _read_rope(config, section, theta, rotated, max_position_embeddings)
    if rope.spec.dynamic_factor and rotated != head_dim:
        raise config.error(
            "rope_scaling", "is dynamic, which this version computes for heads that rotate whole"
        )
    still_pairs = (0.0,) * ((head_dim - rotated) // 2)
    spec = dataclasses.replace(rope.spec, inv_freq=rope.spec.inv_freq + still_pairs)
    return Rope(spec, rope.max_context)


def still(head_dim: int) -> RopeSpec:
    """No rotation."""
    return RopeSpec(inv_freq=(0.0,) * (head_dim // 2))


def _read_rope(
    config: ConfigReader,
    section: ConfigReader | None,
    theta: float,
    head_dim: int,
    max_position_embeddings: int,
) -> Rope:
    """The rope of ``head_dim`` rotated dimensions."""
    if section is None:
        config.ignore("original_max_position_embeddings")
        base = default_frequencies(theta, head_dim)
        return Rope(_spec(base, theta), min(max_position_embeddings, MAX_CONTEXT))
    kind = _kind(section)
    section.ignore("mrope_section", "mrope_interleaved")  # of images: equal positions in text
    section.ignore("llama_4_scaling_beta", "max_position_embeddings")  # the family reads the first
    original = _original_context(config, section, kind, max_position_embeddings)
    rope = _KINDS[kind](_Inputs(section, theta, head_dim, max_position_embeddings, original))
    section.refuse_the_rest(strict=True)
    return Rope(rope.spec, min(rope.max_context, MAX_CONTEXT))


def default_frequencies(theta: float, head_dim: int) -> Frequencies:
    """theta ** (-2i / head_dim), the exponent and the power each rounded to float32."""
    exponents = np.arange(0, head_dim, 2).astype(np.float32) / np.float32(head_dim)
    # In double and then rounded: the last bit of a float32 power differs between math libraries.
    powers = np.power(np.float64(theta), exponents.astype(np.float64)).astype(np.float32)
    frequencies: Frequencies = np.float32(1) / powers
    return frequencies


def llama3_frequencies(
    base: Frequencies, factor: float, low: float, high: float, original: int
) -> Frequencies:
    """Slow frequencies are divided by ``factor``, fast ones kept, those between interpolated."""
    # The reference divides a number by a tensor as reciprocal times number; so do these two.
    wavelengths = (np.float32(1) / base) * np.float32(2 * math.pi)
    turns = (np.float32(1) / wavelengths) * np.float32(original)  # within the original context
    slow = wavelengths > np.float32(original / low)
    fast = wavelengths < np.float32(original / high)
    scaled = np.where(slow, base / np.float32(factor), base)
    share = (turns - np.float32(low)) / np.float32(high - low)
    mixed = (1 - share) * scaled / np.float32(factor) + share * scaled
    return np.where(slow | fast, scaled, mixed).astype(np.float32)


def yarn_frequencies(
    base: Frequencies,
    theta: float,
    factor: float,
    original: int,
    fast_turns: float,
    slow_turns: float,
    truncate: bool,
) -> Frequencies:
    """YaRN (Peng et al. 2023): a ramp over the pairs from unscaled to divided by ``factor``.

    The ramp begins at the pair that turns ``fast_turns`` times within the original context and
    ends at the one that turns ``slow_turns`` times.
    """
    head_dim = 2 * len(base)

    def pair_turning(turns: float) -> float:
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = pair_turning(fast_turns), pair_turning(slow_turns)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    if first == last:
        last += 0.001
    ramp = (np.arange(len(base), dtype=np.float32) - np.float32(first)) / np.float32(last - first)
    kept = 1 - np.clip(ramp, 0, 1).astype(np.float32)
    divided = np.float32(1) / (np.float32(factor) * (np.float32(1) / base))
    mixed: Frequencies = divided * (1 - kept) + base * kept
    return mixed


def yarn_attention_factor(factor: float, mscale: float | None, mscale_all: float | None) -> float:
    """What cos and sin are multiplied by when the config gives no ``attention_factor``."""

    def strength(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if mscale and mscale_all:
        return strength(mscale) / strength(mscale_all)
    return strength(1.0)


@dataclass(frozen=True)
class _Inputs:
    section: ConfigReader
    theta: float
    head_dim: int
    max_position_embeddings: int
    original: int  # length of pre-training, for the kinds that need it


def _default(inputs: _Inputs) -> Rope:
    base = default_frequencies(inputs.theta, inputs.head_dim)
    return Rope(_spec(base, inputs.theta), inputs.max_position_embeddings)


def _linear(inputs: _Inputs) -> Rope:
    factor = inputs.section.number("factor", *_FACTOR)
    base = default_frequencies(inputs.theta, inputs.head_dim)
    reach = int(factor * inputs.max_position_embeddings)
    return Rope(_spec(base / np.float32(factor), inputs.theta), reach)


def _dynamic(inputs: _Inputs) -> Rope:
    factor = inputs.section.number("factor", *_FACTOR)
    if inputs.head_dim < 4:
        raise inputs.section.error("rope_type", "is dynamic, which needs a head_dim of at least 4")
    base = default_frequencies(inputs.theta, inputs.head_dim)
    original = min(inputs.max_position_embeddings, MAX_CONTEXT)
    return Rope(
        RopeSpec(
            inv_freq=_floats(base),
            theta=inputs.theta,
            dynamic_factor=factor,
            dynamic_original_context=original,
        ),
        int(factor * original),
    )


def _llama3(inputs: _Inputs) -> Rope:
    section = inputs.section
    factor = section.number("factor", *_FACTOR)
    low = section.number("low_freq_factor", 1e-6, 1e6)
    high = section.number("high_freq_factor", 1e-6, 1e6)
    if high <= low:
        raise section.error(
            "high_freq_factor", f"is {high:g}, expected more than low_freq_factor ({low:g})"
        )
    base = default_frequencies(inputs.theta, inputs.head_dim)
    scaled = llama3_frequencies(base, factor, low, high, inputs.original)
    return Rope(_spec(scaled, inputs.theta), inputs.max_position_embeddings)


def _yarn(inputs: _Inputs) -> Rope:
    section = inputs.section
    if inputs.theta <= 1:
        raise section.error("rope_theta", f"is {inputs.theta:g}, expected more than 1 for yarn")
    ratio = inputs.max_position_embeddings / inputs.original
    factor = section.number("factor", *_FACTOR, default=None)
    if factor is None:
        factor = ratio
        if not _FACTOR[0] <= factor <= _FACTOR[1]:
            raise section.wrong("factor", "a number, or max_position_embeddings to derive it from")
    # 0 stands for the default here, as in the reference.
    fast = section.number("beta_fast", 0, 1e6, default=0.0) or 32.0
    slow = section.number("beta_slow", 0, 1e6, default=0.0) or 1.0
    truncate = section.flag("truncate", True)
    mscale = section.number("mscale", 0, 1e6, default=None)
    mscale_all = section.number("mscale_all_dim", 0, 1e6, default=None)
    attention = section.number("attention_factor", 1e-6, 1e6, default=None)
    if attention is None:
        attention = yarn_attention_factor(factor, mscale, mscale_all)
    section.ignore("finetuned")  # says how the weights were made, not what they compute
    base = default_frequencies(inputs.theta, inputs.head_dim)
    scaled = yarn_frequencies(base, inputs.theta, factor, inputs.original, fast, slow, truncate)
    reach = max(inputs.max_position_embeddings, int(factor * inputs.original))
    return Rope(_spec(scaled, inputs.theta, attention), reach)


def _longrope(inputs: _Inputs) -> Rope:
    """LongRoPE (Ding et al. 2024): a divisor for each pair. The divisors of long texts would change
    the positions of all tokens of a text that grows beyond the original context, so the context
    ends there."""
    section, pairs = inputs.section, inputs.head_dim // 2
    section.numbers("long_factor", 1e-6, 1e6, pairs)
    divisors = np.array(section.numbers("short_factor", 1e-6, 1e6, pairs), np.float32)
    factor = section.number("factor", *_FACTOR, default=None)
    if factor is None:
        factor = inputs.max_position_embeddings / inputs.original
    attention = section.number("attention_factor", 1e-6, 1e6, default=None)
    if attention is None:
        attention = section.number("short_mscale", 1e-6, 1e6, default=None)
    if attention is None:
        stretched = math.log(factor) / math.log(inputs.original) if factor > 1 else 0.0
        attention = math.sqrt(1 + stretched)
    section.ignore("long_mscale")
    base = default_frequencies(inputs.theta, inputs.head_dim)
    # The reference divides by the product of the divisor and the power.
    scaled = np.float32(1) / (divisors * (np.float32(1) / base))
    return Rope(
        _spec(scaled, inputs.theta, attention), min(inputs.max_position_embeddings, inputs.original)
    )


def _proportional(inputs: _Inputs) -> Rope:
    """The frequencies of a whole head, of which the first share rotates (Gemma 4)."""
    share = inputs.section.number("partial_rotary_factor", 0, 1, default=1.0)
    factor = inputs.section.number("factor", *_FACTOR, default=1.0)
    base = default_frequencies(inputs.theta, inputs.head_dim) / np.float32(factor)
    base[int(share * inputs.head_dim // 2) :] = 0
    return Rope(_spec(base, inputs.theta), inputs.max_position_embeddings)


def _factors(inputs: _Inputs) -> Rope:
    """A divisor per pair, as the tensor rope_freqs.weight of a GGUF file holds them."""
    base = default_frequencies(inputs.theta, inputs.head_dim)
    factors = inputs.section.numbers("factors", 1e-6, 1e6, len(base))
    divisors: Frequencies = np.array(factors, dtype=np.float32)
    scaled: Frequencies = base / divisors
    return Rope(_spec(scaled, inputs.theta), inputs.max_position_embeddings)


_KINDS: dict[str, Callable[[_Inputs], Rope]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "proportional": _proportional,
    "longrope": _longrope,
    "su": _longrope,
    "factors": _factors,
}


def rope_section(config: ConfigReader) -> ConfigReader | None:
    old, new = config.section("rope_scaling"), config.section("rope_parameters")
    if old is not None and new is not None and old.values != new.values:
        raise config.error("rope_scaling", "and rope_parameters say different things")
    return new if new is not None else old


def _theta(config: ConfigReader, section: ConfigReader | None, default: float) -> float:
    outer = config.number("rope_theta", *_THETA, default=None)
    inner = section.number("rope_theta", *_THETA, default=None) if section is not None else None
    if outer is not None and inner is not None and outer != inner:
        raise config.error("rope_theta", f"is {outer:g}, but the rope section says {inner:g}")
    theta = inner if inner is not None else outer
    return default if theta is None else theta


def _kind(section: ConfigReader) -> str:
    choices = [kind for kind in _KINDS if kind != "factors" or "factors" in section]
    key = "rope_type" if "rope_type" in section else "type"
    section.ignore("rope_type", "type")
    if key in section:
        kind = section.text(key, choices)
        if section.values.get("type", kind) not in (kind, None):
            other = shown(section.values["type"])
            raise section.error("type", f"is {other}, but rope_type says {kind!r}")
        return kind
    if set(section.values) <= _OF_ANY_KIND:
        return "default"
    raise section.wrong("rope_type", f"one of {', '.join(choices)}")


def _rotated(
    config: ConfigReader, section: ConfigReader | None, head_dim: int, default: float | None
) -> int:
    """How many dimensions of a head rotate."""
    if section is not None and section.values.get("rope_type") == "proportional":
        return head_dim  # _proportional reads the share
    key = "partial_rotary_factor"
    outer = config.number(key, 0, 1, default=None)
    inner = section.number(key, 0, 1, default=None) if section is not None else None
    if outer is not None and inner is not None and outer != inner:
        raise config.error(key, f"is {outer:g}, but the rope section says {inner:g}")
    where = config if inner is None or section is None else section
    share = inner if inner is not None else outer
    if default is None:
        if share not in (None, 1):
            raise where.error(key, f"is {share:g}, expected 1: heads of this family rotate whole")
        return head_dim
    rotated = int(head_dim * (default if share is None else share))
    if rotated < 2 or rotated % 2:
        raise where.error(
            key, f"makes {rotated} of {head_dim} dimensions rotate, expected an even number"
        )
    return rotated


def _original_context(
    config: ConfigReader, section: ConfigReader, kind: str, max_position_embeddings: int
) -> int:
    """The length of pre-training: in the section, or at the top of the config."""
    key = "original_max_position_embeddings"
    config.ignore(key)
    section.ignore(key)
    if kind not in ("llama3", "yarn", "longrope", "su"):
        return max_position_embeddings
    outer = config.integer(key, 1, MAX_CONTEXT, None)
    inner = section.integer(key, 1, MAX_CONTEXT, None)
    if outer is not None and inner is not None and outer != inner:
        raise config.error(key, f"is {outer}, but the rope section says {inner}")
    original = inner if inner is not None else outer
    return min(max_position_embeddings, MAX_CONTEXT) if original is None else original


def _floats(frequencies: Frequencies) -> tuple[float, ...]:
    return tuple(float(frequency) for frequency in frequencies)


def _spec(frequencies: Frequencies, theta: float, attention_factor: float = 1.0) -> RopeSpec:
    return RopeSpec(inv_freq=_floats(frequencies), attention_factor=attention_factor, theta=theta)
