"""ERNIE 4.5 (dense): Llama with pairs of neighbours that rotate."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names(rotation="pairs")
GGUF = gguf(TENSORS, from_tensors={"use_bias": QKV_BIAS})


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``use_bias`` covers attention and MLP."""
    config.ignore("weight_share_add_bias")  # of the head, where there is a bias
    bias = config.flag("use_bias", False)
    return decoder_spec(
        config,
        "ernie4_5",
        default_context=131072,
        default_kv_heads=2,
        default_head_dim=128,
        default_theta=500000.0,
        default_tied=True,
        default_eps=1e-5,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
    )
