"""EXAONE 3: Llama under other names."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.names import Root, names
from onward.spec import DecoderSpec

TENSORS = names(
    model=(Root("transformer.", layer="h.{i}."), "model.", ""),
    embed=("wte", "embed_tokens"),
    norm=("ln_f", "norm"),
    attention_norm=("ln_1", "input_layernorm"),
    mlp_norm=("ln_2", "post_attention_layernorm"),
    q=("attn.attention.q_proj", "self_attn.q_proj"),
    k=("attn.attention.k_proj", "self_attn.k_proj"),
    v=("attn.attention.v_proj", "self_attn.v_proj"),
    o=("attn.attention.out_proj", "self_attn.o_proj"),
    gate=("mlp.c_fc_0", "mlp.gate_proj"),
    up=("mlp.c_fc_1", "mlp.up_proj"),
    down=("mlp.c_proj", "mlp.down_proj"),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Biases by ``attention_bias`` and ``mlp_bias``."""
    config.spelled(
        num_hidden_layers="num_layers",
        rms_norm_eps="layer_norm_epsilon",
        hidden_act="activation_function",
    )
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "exaone",
        default_context=4096,
        default_kv_heads=8,
        default_theta=500000.0,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", False),
    )
