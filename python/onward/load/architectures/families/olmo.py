"""OLMo: LayerNorm without weights, and limits of queries, keys and values."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import AttentionSpec, DecoderSpec, NormSpec

TENSORS = names(norm_constant=1.0)
GGUF = gguf(
    TENSORS,
    interleaved=True,
    eps={},
    optional={"attention.clamp_kqv": "clip_qkv"},
    same={"attention.layer_norm_epsilon": 1e-5},
    from_tensors={"attention_bias": QKV_BIAS},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The epsilon of the norms is not in the config."""
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "olmo",
        default_context=2048,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        norm_eps=1e-5,
        norms=NormSpec("layer"),
        attention=AttentionSpec(clip=config.number("clip_qkv", 1e-6, 1e6, default=None) or 0.0),
    )
