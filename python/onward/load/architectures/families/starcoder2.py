"""StarCoder 2: LayerNorm with biases, a plain MLP with GELU, and a window."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec, window_everywhere
from onward.load.architectures.gguf.family import QKV_BIAS, gguf, layer_norm
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec, NormSpec

TENSORS = names(up="mlp.c_fc", down="mlp.c_proj")
GGUF = gguf(TENSORS, eps=layer_norm("norm_epsilon"), from_tensors={"use_bias": QKV_BIAS})


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``use_bias`` covers every matrix of a layer."""
    bias = config.flag("use_bias", True)
    return decoder_spec(
        config,
        "starcoder2",
        default_context=4096,
        default_eps=1e-5,
        eps_field="norm_epsilon",
        default_tied=True,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        mlp=MlpSpec(activation=activation(config, "gelu_pytorch_tanh"), gated=False),
        norms=NormSpec("layer", bias=True),
        windows=window_everywhere(config),
    )
