"""CodeGen: GPT-J with q, v and k in one matrix, in four groups."""

from __future__ import annotations

import dataclasses

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families import gptj
from onward.load.architectures.names import fused, names
from onward.spec import DecoderSpec

_GROUPS = 4
TENSORS = names(
    model=("transformer.", ""),
    layer="h.{i}.",
    rotation="pairs",
    embed="wte",
    norm="ln_f",
    attention_norm="ln_1",
    qkv=fused("attn.qkv_proj", "q", "v", "k", groups=_GROUPS),
    o="attn.out_proj",
    up="mlp.fc_in",
    down="mlp.fc_out",
    ignored=(".attn.causal_mask", ".attn.bias", ".attn.masked_bias"),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The groups were the devices of its training. Each has heads of its own."""
    spec = dataclasses.replace(gptj.read_spec(config), architecture="codegen")
    if spec.num_heads % _GROUPS:
        raise config.wrong("num_attention_heads", f"a multiple of {_GROUPS}")
    return spec
