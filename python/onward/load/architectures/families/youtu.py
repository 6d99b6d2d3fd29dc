"""Youtu-LLM: the attention of DeepSeek-V3 without experts."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.deepseek_v2 import deepseek_spec, require_pairs
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names(rotation="pairs", predicts_further=True)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` is of the products into the latents and of the output projection."""
    require_pairs(config)
    config.ignore("num_mtp_layers", "num_nextn_predict_layers", "embedding_initializer_range")
    return deepseek_spec(config, "youtu", context=131072, default_tied=True)
