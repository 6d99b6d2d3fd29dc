"""The decoder of mBART as a language model of its own, and what the decoders of such pairs of an
encoder and a decoder have in common."""

from __future__ import annotations

import math
from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, activation, decoder_spec
from onward.load.architectures.names import Entry, Names, Stored, names
from onward.load.architectures.rope import MAX_CONTEXT
from onward.spec import DecoderSpec, MlpSpec, NormSpec

# Attention to an encoder, which a text without one does not run.
_CROSS_ATTENTION = tuple(
    f".encoder_attn{module}.{part}"
    for module in ("_layer_norm", ".q_proj", ".k_proj", ".v_proj", ".out_proj")
    for part in ("weight", "bias")
)
# Of the encoder, and of older versions, which wrote what the model computes anyway.
_UNUSED_FIELDS = (
    *("encoder_layers", "encoder_ffn_dim", "encoder_attention_heads", "encoder_layerdrop"),
    *("normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits"),
    *("static_position_embeddings", "extra_pos_embeddings"),
)


def decoder_names(**roles: Entry | tuple[Entry, ...]) -> Names:
    """The names of such a decoder."""
    common: dict[str, Any] = {
        "norm": "layer_norm",
        "embed_norm": "layernorm_embedding",
        "attention_norm": "self_attn_layer_norm",
        "mlp_norm": "final_layer_norm",
        "o": "self_attn.out_proj",
        "up": "fc1",
        "down": "fc2",
    }
    ignored = (*_CROSS_ATTENTION, "final_logits_bias")
    return names(model=("model.decoder.", "decoder."), ignored=ignored, **(common | roles))


TENSORS = decoder_names(positions=Stored("embed_positions", first_row=2))


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The embedding has a norm, and so has the input of each block."""
    norms = NormSpec("layer", bias=True, embedding=True)
    return read_decoder(config, "mbart", default_context=1024, norms=norms)


def read_decoder(
    config: ConfigReader,
    architecture: str,
    *,
    default_context: int,
    context_field: str = "max_position_embeddings",
    default_activation: str = "gelu",
    default_scaled: bool = False,
    default_pair: bool = True,
    **fields: Any,
) -> DecoderSpec:
    """The spec of the decoder. Its config has fields of the encoder as well.

    Raises:
        ConfigError: the config is of a pair, which needs the output of its encoder.
    """
    config.renamed(
        hidden_size="d_model",
        num_hidden_layers="decoder_layers",
        num_attention_heads="decoder_attention_heads",
        num_key_value_heads="decoder_attention_heads",
        intermediate_size="decoder_ffn_dim",
        hidden_act="activation_function",
        max_position_embeddings=context_field,
    )
    if config.flag("is_encoder_decoder", default_pair):
        raise config.error(
            "is_encoder_decoder",
            "is true or missing, expected false: only a decoder that was saved as a language model "
            "of its own runs without an encoder",
        )
    config.ignore(*_UNUSED_FIELDS)
    width = config.integer("hidden_size", 1, MAX_WIDTH)
    scaled = config.flag("scale_embedding", default_scaled)
    defaults: dict[str, Any] = {
        "norm_eps": 1e-5,
        "default_tied": True,
        "rotates": False,
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "norms": NormSpec("layer", bias=True),
        "embedding_scale": math.sqrt(width) if scaled else 1.0,
    }
    return decoder_spec(
        config,
        architecture,
        default_context=default_context,
        mlp=MlpSpec(activation(config, default_activation), gated=False),
        learned_positions=config.integer(
            "max_position_embeddings", 1, MAX_CONTEXT, default_context
        ),
        **(defaults | fields),
    )
