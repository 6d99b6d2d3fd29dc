"""IQuest-Coder: Llama with other defaults."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Limits of q, k and v, and windows, are refused, as the reference library does."""
    if "clip_qkv" in config:
        raise config.wrong("clip_qkv", "null: this family has no such limit")
    if config.flag("use_sliding_window", False):
        raise config.wrong("use_sliding_window", "false: this family has no windows")
    config.ignore("sliding_window", "max_window_layers")
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "iquestcoder",
        default_context=131072,
        default_kv_heads=8,
        default_head_dim=128,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", False),
    )
