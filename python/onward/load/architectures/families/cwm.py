"""Code World Model: Llama with a window in three of four layers, and llama3 scaling by default."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    activation,
    decoder_spec,
    layer_types,
    num_layers,
)
from onward.load.architectures.layer_kinds import FULL, SLIDING, windows_of
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names()
_ROPE: dict[str, object] = {
    **{"rope_type": "llama3", "rope_theta": 1e6, "factor": 16.0, "high_freq_factor": 4.0},
    **{"low_freq_factor": 1.0, "original_max_position_embeddings": 8192},
}


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The first of each four layers sees all keys."""
    kinds = layer_types(config)
    if kinds is None:
        kinds = [SLIDING if layer % 4 else FULL for layer in range(num_layers(config))]
    return decoder_spec(
        config,
        "cwm",
        default_context=131072,
        default_head_dim=128,
        default_kv_heads=8,
        default_theta=1e6,
        default_eps=1e-5,
        default_rope=_ROPE,
        mlp_bias=config.flag("mlp_bias", False),
        mlp=MlpSpec(activation(config, "silu")),
        windows=windows_of(config, kinds, 8192),
    )
