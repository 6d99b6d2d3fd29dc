"""Command R7B and A: Command R with a window and rotation in three of four layers."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.cohere import TENSORS as TENSORS
from onward.load.architectures.families.cohere import cohere_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf, layer_norm
from onward.load.architectures.layer_kinds import FULL, layer_kinds, windows_of
from onward.spec import DecoderSpec

GGUF = gguf(
    TENSORS,
    eps=layer_norm("layer_norm_eps"),
    required={"logit_scale": "logit_scale", "attention.sliding_window": "sliding_window"},
    from_tensors={"attention_bias": QKV_BIAS},
    full_every=4,
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The other layers see all keys and do not rotate."""
    kinds = layer_kinds(config, 4)
    config.ignore("rotary_pct", "position_embedding_type", "order_of_interleaved_layers")
    if config.flag("use_qk_norm", False):
        raise config.wrong("use_qk_norm", "false in this family")
    return cohere_spec(
        config,
        "cohere2",
        default_theta=10000.0,
        windows=windows_of(config, kinds, 4096),
        layer_ropes=tuple(-1 if kind == FULL else 0 for kind in kinds),
    )
