"""StarCoder 1 and SantaCoder: GPT-2 with one head of keys and values, and matrices stored as
(outputs, inputs)."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    GPT2_FIELDS,
    MAX_HEADS,
    activation,
    decoder_spec,
)
from onward.load.architectures.families.gpt2 import GPT2_NAMES, scaled_or_not
from onward.load.architectures.gguf.family import gguf, layer_norm
from onward.load.architectures.names import fused, names
from onward.load.architectures.rope import MAX_CONTEXT
from onward.spec import DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    **GPT2_NAMES,
    qkv=fused("attn.c_attn", "q", "k", "v", groups="kv_heads"),
    o="attn.c_proj",
    up="mlp.c_fc",
    down="mlp.c_proj",
    ignored=(".attn.bias", ".attn.masked_bias"),
)
GGUF = gguf(
    TENSORS,
    eps=layer_norm("layer_norm_epsilon"),
    same={"attention.head_count_kv": 1},
    rotates=False,
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``multi_query`` false means a head of keys and values for each query head, stored head by
    head."""
    config.spelled(**GPT2_FIELDS)
    config.ignore("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")
    config.ignore("pre_allocate_kv_cache")
    heads = config.integer("num_attention_heads", 1, MAX_HEADS)
    return decoder_spec(
        config,
        "gpt_bigcode",
        default_context=1024,
        default_eps=1e-5,
        eps_field="layer_norm_epsilon",
        default_inner=4,
        default_tied=True,
        rotates=False,
        num_kv_heads=1 if config.flag("multi_query", True) else heads,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        mlp=MlpSpec(activation(config, "gelu_pytorch_tanh"), gated=False),
        norms=NormSpec("layer", bias=True),
        attention=scaled_or_not(config),
        learned_positions=config.integer("max_position_embeddings", 1, MAX_CONTEXT, 1024),
    )
