"""dots.llm1: Qwen 3 with experts as DeepSeek-V3."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    activation,
    decoder_spec,
    layer_types,
    num_layers,
)
from onward.load.architectures.grouped_experts import dense_first, grouped_experts
from onward.load.architectures.names import names
from onward.load.architectures.rope import MAX_CONTEXT, MAX_POSITIONS
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names(predicts_further=True)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` covers q, k, v and the output projection."""
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "dots1",
        default_context=2048,
        default_kv_heads=None if "num_key_value_heads" in config.values else 32,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        mlp=MlpSpec(activation(config, "silu")),
        windows=_windows(config),
        experts=grouped_experts(config, size=1408, shared=None, normalise=False),
        layer_experts=dense_first(config, 0),
    )


def _windows(config: ConfigReader) -> tuple[int, ...]:
    """``sliding_window`` is of the layers that ``layer_types`` names, or else of the layers from
    ``max_window_layers`` on. ``use_sliding_window`` has no effect."""
    config.ignore("use_sliding_window")
    window = config.integer("sliding_window", 1, MAX_POSITIONS, None)
    if "sliding_window" not in config.values:
        window = 4096
    first = config.integer("max_window_layers", 0, MAX_POSITIONS, 62)
    kinds = layer_types(config)
    if kinds is None:
        slides = [window is not None and layer >= first for layer in range(num_layers(config))]
    else:
        slides = [kind == "sliding_attention" for kind in kinds]
    if any(slides) and window is None:
        raise config.wrong("sliding_window", "a number, as layer_types names sliding_attention")
    return tuple(min(window or 0, MAX_CONTEXT) if each else 0 for each in slides)
