"""Nemotron 3, 4 and Minitron: layer norms that multiply by 1 + weight, squared ReLU, and partial
rotation."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.gguf.family import MLP_BIAS, QKV_BIAS, gguf, layer_norm
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec, NormSpec

TENSORS = names(norm_plus=1.0)
GGUF = gguf(
    TENSORS,
    eps=layer_norm("norm_eps"),
    from_tensors={"attention_bias": QKV_BIAS, "mlp_bias": MLP_BIAS},
    partial=True,
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` covers q, k, v and the output projection."""
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config.spelled(partial_rotary_factor="rope_percent"),
        "nemotron",
        default_context=4096,
        default_eps=1e-5,
        eps_field="norm_eps",
        default_rotated=0.5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", False),
        mlp=MlpSpec(activation(config, "relu2"), gated=False),
        norms=NormSpec("layer", bias=True),
    )
