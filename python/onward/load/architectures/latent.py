"""Reads latent attention (MLA, DeepSeek-V2 2024) from a config."""

from __future__ import annotations

import math
from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.rope import rope_section
from onward.spec import AttentionSpec, LatentSpec

_MAX_RANK = 1 << 20
_MAX_LATENT = 512  # values of a cached latent
_MAX_DIM = 512


def latent_fields(
    config: ConfigReader,
    *,
    norm_eps: float = 0.0,
    value_dim: int | None = None,
    **attention: Any,
) -> dict[str, Any]:
    """The arguments of ``decoder_spec`` for latent attention.

    Args:
        norm_eps: of the norms of the latents; 0: as of the other norms.
        value_dim: v_head_dim, where it is absent; None: it is required.
        attention: more fields of the AttentionSpec. ``scale`` is a factor beside
            1 / sqrt(qk_nope_head_dim + qk_rope_head_dim).
    """
    latent = LatentSpec(
        kv_rank=config.integer("kv_lora_rank", 1, _MAX_LATENT),
        q_rank=config.integer("q_lora_rank", 1, _MAX_RANK, None) or 0,
        nope_dim=config.integer("qk_nope_head_dim", 1, _MAX_DIM),
        rope_dim=config.integer("qk_rope_head_dim", 2, _MAX_DIM),
        value_dim=config.integer(
            "v_head_dim", 1, _MAX_DIM, ... if value_dim is None else value_dim
        ),
        norm_eps=norm_eps,
    )
    if latent.kv_rank + latent.rope_dim > 576:
        raise config.error("kv_lora_rank", "and qk_rope_head_dim: their sum is more than 576")
    if latent.rope_dim % 2:
        raise config.error("qk_rope_head_dim", f"is {latent.rope_dim}, expected an even number")
    # Spellings of the sizes above.
    config.ignore("head_dim", "qk_head_dim", "num_key_value_heads")
    own_scale = attention.pop("scale", 1.0)
    scale = own_scale * _stretch(config) / math.sqrt(latent.nope_dim + latent.rope_dim)
    return {
        "latent": latent,
        "rotated_dim": latent.rope_dim,
        "head_dim": latent.kv_rank + latent.rope_dim,
        "value_dim": latent.kv_rank,
        "num_kv_heads": 1,
        "attention": AttentionSpec(scale=scale, **attention),
    }


def _stretch(config: ConfigReader) -> float:
    """The factor of scores in a stretched context: yarn's factor for all dimensions, squared."""
    section = rope_section(config)
    if section is None or section.values.get("rope_type", section.values.get("type")) in (
        None,
        "default",
    ):
        return 1.0
    weight = section.number("mscale_all_dim", 0, 1e6, default=0.0)
    factor = section.number("factor", 1, 1e6, default=1.0)
    if not weight or factor <= 1:
        return 1.0
    return (0.1 * weight * math.log(factor) + 1.0) ** 2
