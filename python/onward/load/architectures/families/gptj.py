"""GPT-J: neighbours rotate together in the first dimensions of a head; attention and the MLP read
one norm."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import GPT2_FIELDS, activation, decoder_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    model=("transformer.", ""),
    layer="h.{i}.",
    rotation="pairs",
    embed="wte",
    norm="ln_f",
    attention_norm="ln_1",
    q="attn.q_proj",
    k="attn.k_proj",
    v="attn.v_proj",
    o="attn.out_proj",
    up="mlp.fc_in",
    down="mlp.fc_out",
    ignored=(".attn.bias", ".attn.masked_bias"),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``rotary_dim`` dimensions of a head rotate."""
    config.spelled(**GPT2_FIELDS)
    for field in ("rotary", "scale_attn_weights"):
        if not config.flag(field, True):
            raise config.wrong(field, "true, as this family computes it")
    return decoder_spec(
        config,
        "gptj",
        default_context=2048,
        default_eps=1e-5,
        eps_field="layer_norm_epsilon",
        default_inner=4,
        default_rotary_dim=64,
        mlp_bias=True,
        mlp=MlpSpec(activation(config, "gelu_new"), gated=False),
        norms=NormSpec("layer", bias=True),
        residual="parallel",
        head_bias=True,
    )
