"""SmolLM3: Llama where some layers do not rotate q and k, by default one in four."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_LAYERS,
    decoder_spec,
    num_layers,
    windows_by_layer,
)
from onward.load.architectures.gguf.family import MLP_BIAS, QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()
GGUF = gguf(
    TENSORS, interleaved=True, from_tensors={"attention_bias": QKV_BIAS, "mlp_bias": MLP_BIAS}
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``no_rope_layers`` has 1 for a layer that rotates and 0 for one that does not."""
    rotates = _rotating_layers(config)
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "smollm3",
        default_context=32768,
        default_theta=2e6,
        default_tied=True,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", False),
        windows=windows_by_layer(
            config, default_window=None, slides=[not rotated for rotated in rotates]
        ),
        layer_ropes=tuple(0 if rotated else -1 for rotated in rotates),
    )


def _rotating_layers(config: ConfigReader) -> list[bool]:
    layers = num_layers(config)
    interval = config.integer("no_rope_layer_interval", 1, MAX_LAYERS, 4)
    if "no_rope_layers" not in config:
        config.ignore("no_rope_layers")
        return [(layer + 1) % interval != 0 for layer in range(layers)]
    values = config.numbers("no_rope_layers", 0, 1, layers)
    if not set(values) <= {0, 1}:
        raise config.wrong("no_rope_layers", "a list of 0 and 1")
    return [value == 1 for value in values]
