"""Qwen 2 VL and Qwen 2.5 VL: their text model is Qwen 2."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec, windows_by_layer
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The three positions of a token are equal in text, so their sections change nothing."""
    config.ignore("head_dim")  # always hidden_size / num_attention_heads
    config = _without_mrope(config)
    return decoder_spec(
        config,
        "qwen2_vl_text",
        default_context=32768,
        default_kv_heads=8,
        default_theta=1e6,
        default_eps=1e-5,
        qkv_bias=True,
        windows=windows_by_layer(config, default_window=4096),
    )


def _without_mrope(config: ConfigReader) -> ConfigReader:
    """Old files call the default rotation with sections mrope."""
    key = "rope_scaling" if "rope_scaling" in config else "rope_parameters"
    section = config.values.get(key)
    if not isinstance(section, dict):
        return config
    kind = section.get("rope_type") or section.get("type")
    if kind != "mrope":
        return config
    kept = {name: value for name, value in section.items() if name not in ("rope_type", "type")}
    return config.with_values(**{key: {**kept, "rope_type": "default"}})
