"""OLMoE: experts, and norms over all heads of queries and keys."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, decoder_spec, num_layers
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import AttentionSpec, DecoderSpec, ExpertsSpec

TENSORS = names()
GGUF = gguf(
    TENSORS,
    required={"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"},
    fixed={"norm_topk_prob": False},
    from_tensors={"attention_bias": QKV_BIAS},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Limits of queries after their norm, which no published model has, are refused."""
    config.ignore("router_aux_loss_coef")  # of training
    if config.number("clip_qkv", 0, 1e6, default=None) is not None:
        raise config.wrong("clip_qkv", "null in this family")
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "olmoe",
        default_context=4096,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        attention=AttentionSpec(qk_norm_over="all"),
        experts=ExpertsSpec(
            count=config.integer("num_experts", 1, 4096, 64),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 8),
            intermediate_size=config.integer("intermediate_size", 1, MAX_WIDTH),
            normalise=config.flag("norm_topk_prob", False),
        ),
        layer_experts=(1,) * num_layers(config),
    )
