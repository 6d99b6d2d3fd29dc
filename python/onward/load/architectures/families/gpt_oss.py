"""gpt-oss: experts with biases in every layer, sink logits, and every other layer has a window."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, decoder_spec, num_layers
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.layer_kinds import layer_kinds, windows_of
from onward.load.architectures.names import Stored, fused, names
from onward.spec import AttentionSpec, DecoderSpec, ExpertsSpec, MlpSpec

TENSORS = names(
    router="mlp.router",
    expert_gate=fused(
        "mlp.experts.gate_up_proj",
        "expert_gate",
        "expert_up",
        turns=True,
        transposed=True,
        weight="",
        bias="_bias",
    ),
    expert_down=Stored("mlp.experts.down_proj", weight="", bias="_bias", transposed=True),
)
GGUF = gguf(
    TENSORS,
    required={
        "attention.sliding_window": "sliding_window",
        "expert_count": "num_local_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "intermediate_size",
    },
    from_tensors={"attention_bias": QKV_BIAS},
    yarn={"truncate": False},
    full_every=2,
    mlp_norm="post_attention_norm",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The weights of the chosen experts are a softmax of their logits alone."""
    config.ignore("router_aux_loss_coef")
    config.ignore("experts_per_token", "initial_context_length")  # spellings of other fields
    if config.number("swiglu_alpha", 0, 1e6, default=1.702) != 1.702:
        raise config.wrong("swiglu_alpha", "1.702")
    config.text("hidden_act", ("silu", "swish"), "silu")
    attention_bias = config.flag("attention_bias", True)
    return decoder_spec(
        config,
        "gpt_oss",
        default_context=131072,
        default_head_dim=64,
        default_eps=1e-5,
        default_theta=150000.0,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        windows=windows_of(config, layer_kinds(config, 2), 128),
        attention=AttentionSpec(sink_logits=True),
        mlp=MlpSpec(
            "quick_gelu",
            limit=config.number("swiglu_limit", 1e-6, 1e6, default=7.0),
            up_shift=1.0,
        ),
        experts=ExpertsSpec(
            count=config.integer("num_local_experts", 1, 4096, 128),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 4),
            intermediate_size=config.integer("intermediate_size", 1, MAX_WIDTH),
            router_bias=True,
            normalise=True,
            bias=True,
        ),
        layer_experts=(1,) * num_layers(config),
    )
