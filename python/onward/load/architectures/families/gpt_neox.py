"""GPT-NeoX and Pythia: q, k and v stored head by head, partial rotation, parallel residuals."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf, layer_norm
from onward.load.architectures.names import fused, names
from onward.spec import DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    model=("gpt_neox.", ""),
    embed="embed_in",
    norm="final_layer_norm",
    head=("embed_out", "lm_head"),
    qkv=fused("attention.query_key_value", "q", "k", "v", groups="heads"),
    o="attention.dense",
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
    ignored=(".attention.bias", ".attention.masked_bias"),
)
GGUF = gguf(
    TENSORS,
    eps=layer_norm("layer_norm_eps"),
    required={"use_parallel_residual": "use_parallel_residual"},
    from_tensors={"attention_bias": QKV_BIAS},
    partial=True,
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` covers q, k, v and the output projection; the MLP always has biases."""
    config.spelled(rope_theta="rotary_emb_base", partial_rotary_factor="rotary_pct")
    attention_bias = config.flag("attention_bias", True)
    parallel = config.flag("use_parallel_residual", True)
    return decoder_spec(
        config,
        "gpt_neox",
        default_context=2048,
        default_eps=1e-5,
        eps_field="layer_norm_eps",
        default_rotated=0.25,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=True,
        mlp=MlpSpec(activation(config, "gelu"), gated=False),
        norms=NormSpec("layer", bias=True),
        residual="parallel_norms" if parallel else "sequential",
    )
