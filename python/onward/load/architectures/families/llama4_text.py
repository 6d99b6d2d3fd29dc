"""Llama 4: experts whose input is weighted, chunks of positions in layers that rotate, and queries
that grow with their position in the others."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, decoder_spec, num_layers
from onward.load.architectures.names import ONES, Stored, fused, names
from onward.load.architectures.rope import MAX_CONTEXT, MAX_POSITIONS
from onward.spec import AttentionSpec, DecoderSpec, ExpertsSpec

TENSORS = names(
    rotation="pairs",
    q_norm=ONES,
    k_norm=ONES,
    gate="feed_forward.gate_proj",
    up="feed_forward.up_proj",
    down="feed_forward.down_proj",
    router="feed_forward.router",
    expert_gate=fused(
        "feed_forward.experts.gate_up_proj", "expert_gate", "expert_up", transposed=True, weight=""
    ),
    expert_down=Stored("feed_forward.experts.down_proj", weight="", transposed=True),
    shared_gate="feed_forward.shared_expert.gate_proj",
    shared_up="feed_forward.shared_expert.up_proj",
    shared_down="feed_forward.shared_expert.down_proj",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The weight of an expert is the sigmoid of its logit."""
    config.ignore("router_aux_loss_coef", "router_jitter_noise", "for_llm_compressor")
    layers = num_layers(config)
    rotates = _rotating_layers(config, layers)
    chunk = config.integer("attention_chunk_size", 1, MAX_POSITIONS, None)
    if "attention_chunk_size" not in config.values:
        chunk = 8192
    choices = ("chunked_attention", "full_attention")
    kinds = config.texts("layer_types", choices, layers) or [
        choices[0] if rotated and chunk else choices[1] for rotated in rotates
    ]
    size = config.integer("intermediate_size", 1, MAX_WIDTH, 8192)
    step = config.integer("interleave_moe_layer_step", 1, MAX_POSITIONS, 1)
    sparse = config.integers("moe_layers", 0, 1 << 20) or list(range(step - 1, layers, step))
    if config.flag("attn_temperature_tuning", True):
        beta = config.number("attn_scale", 0, 1e6, default=0.1)
    else:
        config.ignore("attn_scale")
        beta = 0.0
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "llama4_text",
        default_context=131072,
        default_head_dim=128,
        default_theta=500000.0,
        default_eps=1e-5,
        intermediate_size=config.integer("intermediate_size_mlp", 1, MAX_WIDTH, 16384),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=config.flag("use_qk_norm", True),
        chunks=tuple(min(chunk or 0, MAX_CONTEXT) if kind == choices[0] else 0 for kind in kinds),
        layer_ropes=tuple(0 if rotated else -1 for rotated in rotates),
        attention=AttentionSpec(
            qk_norm_after_rope=True,
            qk_norm_rotated=True,
            temperature_beta=beta,
            temperature_length=float(config.integer("floor_scale", 1, MAX_POSITIONS, 8192)),
            temperature_shift=1,
            temperature_unrotated=True,
        ),
        experts=ExpertsSpec(
            count=config.integer("num_local_experts", 1, 4096, 16),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 1),
            intermediate_size=size,
            scores="sigmoid",
            weighted_input=True,
            shared_size=size,
        ),
        layer_experts=tuple(int(layer in sparse) for layer in range(layers)),
    )


def _rotating_layers(config: ConfigReader, layers: int) -> list[int]:
    every = config.integer("no_rope_layer_interval", 1, MAX_POSITIONS, 4)
    rotates = config.integers("no_rope_layers", 0, 1)
    if not rotates:
        return [int((layer + 1) % every != 0) for layer in range(layers)]
    if len(rotates) != layers:
        raise config.error("no_rope_layers", f"has {len(rotates)} values, expected {layers}")
    return rotates
