"""Seed-OSS: Llama with heads of their own size and biases on q, k and v."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.gguf.family import MLP_BIAS, QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()
GGUF = gguf(
    TENSORS,
    from_tensors={
        "attention_bias": QKV_BIAS,
        "attention_out_bias": ("attn_output.bias",),
        "mlp_bias": MLP_BIAS,
    },
    mlp_norm="post_attention_norm",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The output projection has a bias by a field of its own, ``attention_out_bias``."""
    return decoder_spec(
        config,
        "seed_oss",
        default_context=524288,
        default_kv_heads=8,
        default_head_dim=128,
        qkv_bias=config.flag("attention_bias", True),
        output_bias=config.flag("attention_out_bias", False),
        mlp_bias=config.flag("mlp_bias", False),
    )
