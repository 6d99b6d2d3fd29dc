"""HunYuan (dense): norms on each head of q and k after the rotation, whose base may be scaled."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec, head_size
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.load.architectures.rope import MAX_POSITIONS, read_rope, rope_section
from onward.spec import AttentionSpec, DecoderSpec

TENSORS = names(q_norm="self_attn.query_layernorm", k_norm="self_attn.key_layernorm")
# Beside alpha they change nothing.
_UNUSED = ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
GGUF = gguf(TENSORS, from_tensors={"attention_bias": QKV_BIAS})


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` covers q, k, v and the output projection."""
    return hunyuan_spec(config, "hunyuan_v1_dense")


def hunyuan_spec(config: ConfigReader, architecture: str, **fields: Any) -> DecoderSpec:
    """The spec of a HunYuan model; ``fields`` are more fields of it."""
    if not config.flag("use_qk_norm", True):
        raise config.wrong("use_qk_norm", "true in this family")
    if config.flag("use_cla", False):
        raise config.wrong("use_cla", "false: layers that share keys and values")
    config.ignore("attention_head_dim", "cla_share_factor", "norm_type", "use_rotary_pos_emb")
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        architecture,
        default_context=2048,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        attention=AttentionSpec(qk_norm_after_rope=True),
        **_scaled_rope(config),
        **fields,
    )


def _scaled_rope(config: ConfigReader) -> dict[str, Any]:
    """The fields of the spec where the rope section is ``dynamic`` with an ``alpha``: the base is
    multiplied by a power of alpha, whatever the length of the text."""
    section = rope_section(config)
    if section is None or not section.values.get("alpha"):
        return {}
    if "dynamic" not in (section.values.get("rope_type"), section.values.get("type")):
        return {}  # read_rope refuses an alpha of another kind
    head_dim = head_size(config)
    alpha = section.number("alpha", 1e-6, 1e6)
    outer = config.number("rope_theta", 1, 1e30, default=1e4)
    theta = section.number("rope_theta", 1, 1e30, default=outer)
    section.ignore("rope_type", "type", *_UNUSED)
    section.refuse_the_rest(strict=True)
    base = theta * alpha ** (head_dim / (head_dim - 2))
    context = config.integer("max_position_embeddings", 1, MAX_POSITIONS, 2048)
    rope = read_rope(ConfigReader({"rope_theta": base}, config.where), head_dim, context)
    return {"rope": rope.spec, "max_context": rope.max_context}
