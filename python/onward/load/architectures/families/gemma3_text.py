"""Gemma 3: Gemma 2 with norms of queries and keys, a base of rotation for the layers with a window
and one for the others, and no soft-caps."""

from __future__ import annotations

import math

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec, head_size
from onward.load.architectures.families.gemma2 import TENSORS as TENSORS
from onward.load.architectures.families.gemma2 import unsaid_scale
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.layer_kinds import (
    FULL,
    SLIDING,
    layer_kinds,
    ropes_by_kind,
    windows_of,
)
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import AttentionSpec, DecoderSpec, MlpSpec, NormSpec

_CAP = (1e-6, 1e6)
GGUF = gguf(
    TENSORS,
    optional={
        "final_logit_softcapping": "final_logit_softcapping",
        "rope.freq_base_swa": "rope_local_base_freq",
    },
    from_tensors={"attention_bias": QKV_BIAS},
    full_every=6,
    complete=lambda config: {"query_pre_attn_scalar": unsaid_scale(config, layers_of_27b=62)},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Scores are multiplied by 1 / sqrt(query_pre_attn_scalar)."""
    kinds = layer_kinds(config, 6)
    if config.flag("use_bidirectional_attention", False):
        raise config.error("use_bidirectional_attention", "is true, expected false: not a decoder")
    config.ignore("_sliding_window_pattern")  # layer_types says it
    config.ignore("hidden_act")  # of old files, which hidden_activation replaces
    attention_bias = config.flag("attention_bias", False)
    head_dim = head_size(config, 256)
    return decoder_spec(
        config,
        "gemma3_text",
        default_context=131072,
        default_head_dim=256,
        default_tied=True,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        windows=windows_of(config, kinds, 4096),
        norms=NormSpec(after=True),
        attention=AttentionSpec(
            scale=config.number("query_pre_attn_scalar", 1e-6, 1e6, default=256.0) ** -0.5,
            softcap=config.number("attn_logit_softcapping", *_CAP, default=None) or 0.0,
        ),
        logit_softcap=config.number("final_logit_softcapping", *_CAP, default=None) or 0.0,
        mlp=MlpSpec(activation(config, "gelu_pytorch_tanh", "hidden_activation")),
        embedding_scale=math.sqrt(config.integer("hidden_size", 1, 1 << 20)),
        **ropes_by_kind(
            config,
            kinds,
            head_dims={FULL: head_dim, SLIDING: head_dim},
            max_positions=config.integer("max_position_embeddings", 1, MAX_POSITIONS, 131072),
            thetas={FULL: 1e6, SLIDING: 1e4},
        ),
    )
