"""The scaling of the rotation in a GGUF file, as ``rope_scaling`` of config.json."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from onward.load.architectures.config_reader import ConfigReader

FACTORS = "rope_freqs.weight"
"""The tensor with a divisor for each pair: how a GGUF file says llama3."""
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
"""The tensors with the divisors of LongRoPE."""
FACTOR_TENSORS = {FACTORS, _LONG, _SHORT}


def read_rope_scaling(
    keys: ConfigReader, tensors: Collection[str], vector: Callable[[str], list[float]]
) -> dict[str, Any] | None:
    """``keys`` reads the metadata of the architecture; ``vector`` reads a tensor."""
    if _LONG in tensors or _SHORT in tensors:
        if not {_LONG, _SHORT} <= set(tensors):
            raise keys.error("rope.scaling.type", f"needs both tensors {_LONG} and {_SHORT}")
        return _longrope(keys, vector)
    scale_linear = keys.number("rope.scale_linear", 0, 1e6, default=0.0)
    default = "linear" if scale_linear not in (0, 1) else "none"
    kind = keys.text("rope.scaling.type", ("none", "linear", "yarn"), default)
    factor = keys.number("rope.scaling.factor", 0, 1e6, default=scale_linear)
    keys.ignore("rope.scaling.original_context_length", "rope.scaling.finetuned")
    if kind != "none" and FACTORS in tensors:
        raise keys.error("rope.scaling.type", f"is {kind}, beside a tensor {FACTORS}")
    if kind == "yarn":
        return _yarn(keys, factor)
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor or 1.0}
    if FACTORS in tensors:
        return {"rope_type": "factors", "factors": vector(FACTORS)}
    return None


def _longrope(keys: ConfigReader, vector: Callable[[str], list[float]]) -> dict[str, Any]:
    keys.text("rope.scaling.type", ("longrope", "none"), "longrope")
    original = "rope.scaling.original_context_length"
    keys.ignore(original)
    if original not in keys:
        raise keys.error(original, f"is missing, beside a tensor {_LONG}")
    return {
        "rope_type": "longrope",
        "long_factor": vector(_LONG),
        "short_factor": vector(_SHORT),
        "original_max_position_embeddings": keys.values[original],
        "attention_factor": keys.number("rope.scaling.attn_factor", 1e-6, 1e6, default=1.0),
    }


def _yarn(keys: ConfigReader, factor: float) -> dict[str, Any]:
    yarn: dict[str, Any] = {"rope_type": "yarn", "factor": factor or None}
    yarn["original_max_position_embeddings"] = keys.values.get(
        "rope.scaling.original_context_length"
    )
    for key, field in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
        yarn[field] = keys.number(f"rope.scaling.{key}", 0, 1e6, default=None)
    return {field: value for field, value in yarn.items() if value is not None}
