"""OLMo 3: OLMo 2 with a window in three of four layers."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec, head_size
from onward.load.architectures.families.olmo2 import TENSORS as TENSORS
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.layer_kinds import (
    FULL,
    SLIDING,
    layer_kinds,
    ropes_by_kind,
    windows_of,
)
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import AttentionSpec, DecoderSpec, NormSpec

GGUF = gguf(TENSORS, from_tensors={"attention_bias": QKV_BIAS}, full_every=4)
_THETA = 500000.0


def read_spec(config: ConfigReader) -> DecoderSpec:
    """In old files ``rope_theta`` and ``rope_scaling`` are of full attention alone."""
    attention_bias = config.flag("attention_bias", False)
    kinds = layer_kinds(config, 4)
    head_dim = head_size(config)
    theta = config.number("rope_theta", 1, 1e30, default=_THETA)
    return decoder_spec(
        config,
        "olmo3",
        default_context=2048,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        windows=windows_of(config, kinds, 4096),
        attention=AttentionSpec(qk_norm_over="all"),
        norms=NormSpec(before=False, after=True),
        **ropes_by_kind(
            config,
            kinds,
            head_dims={FULL: head_dim, SLIDING: head_dim},
            max_positions=config.integer("max_position_embeddings", 1, MAX_POSITIONS, 2048),
            thetas={FULL: theta, SLIDING: _THETA},
        ),
    )
