"""Phi 1 and 2: attention and MLP side by side after one LayerNorm, biases everywhere, and rotation
of a part of each head."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.gguf.family import gguf, layer_norm
from onward.load.architectures.names import names
from onward.spec import AttentionSpec, DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    norm="final_layernorm",
    o="self_attn.dense",
    q_norm="self_attn.q_layernorm",
    k_norm="self_attn.k_layernorm",
    up="mlp.fc1",
    down="mlp.fc2",
)
GGUF = gguf(TENSORS, eps=layer_norm("layer_norm_eps"), partial=True)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The head has a bias, too."""
    return decoder_spec(
        config,
        "phi",
        default_context=2048,
        default_eps=1e-5,
        eps_field="layer_norm_eps",
        default_rotated=0.5,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_bias=True,
        qk_norm=config.flag("qk_layernorm", False),
        attention=AttentionSpec(qk_norm_kind="layer", qk_norm_bias=True),
        norms=NormSpec("layer", bias=True),
        residual="parallel",
        mlp=MlpSpec(activation(config, "gelu_new"), gated=False),
    )
