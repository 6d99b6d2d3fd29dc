"""OLMo 2: norms of the outputs of the blocks in place of their inputs, and of all heads of q and k
together."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import AttentionSpec, DecoderSpec, NormSpec

TENSORS = names(
    attention_post_norm="post_attention_layernorm", mlp_post_norm="post_feedforward_layernorm"
)
GGUF = gguf(TENSORS, from_tensors={"attention_bias": QKV_BIAS})


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` covers q, k, v and the output projection."""
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "olmo2",
        default_context=2048,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        attention=AttentionSpec(qk_norm_over="all"),
        norms=NormSpec(before=False, after=True),
    )
