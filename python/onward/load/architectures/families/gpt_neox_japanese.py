"""GPT-NeoX-Japanese: GPT-NeoX without biases except for the last output projection, and with
sequential blocks."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, activation, decoder_spec
from onward.load.architectures.names import Stored, fused, names
from onward.spec import DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    model=("gpt_neox_japanese.", ""),
    embed="embed_in",
    norm="final_layer_norm",
    head="embed_out",
    qkv=fused("attention.query_key_value", "q", "k", "v", groups="heads"),
    o="attention.dense",
    o_bias=(Stored("attention.dense_bias", bias=""), Stored(constant=0.0)),
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
    ignored=(".attention.bias", ".attention.masked_bias"),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``intermediate_multiple_size`` times hidden_size is the inner size of the MLP."""
    config.spelled(rope_theta="rotary_emb_base", partial_rotary_factor="rotary_pct")
    inner = config.integer("intermediate_multiple_size", 1, 1024, 4)
    return decoder_spec(
        config,
        "gpt_neox_japanese",
        default_context=2048,
        default_eps=1e-5,
        eps_field="layer_norm_eps",
        default_rotated=1.0,
        default_tied=True,
        intermediate_size=inner * config.integer("hidden_size", 1, MAX_WIDTH),
        default_inner=inner,
        output_bias=True,
        mlp=MlpSpec(activation(config, "gelu"), gated=False),
        norms=NormSpec("layer", bias=True),
    )
