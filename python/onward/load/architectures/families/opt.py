"""OPT and Galactica: learned positions from the third row of their matrix on, and layer norms."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, activation, decoder_spec
from onward.load.architectures.names import ONES, Names, Stored, names
from onward.load.architectures.rope import MAX_CONTEXT
from onward.spec import DecoderSpec, MlpSpec, NormSpec

_WEIGHTED = {
    "norm": "final_layer_norm",
    "attention_norm": "self_attn_layer_norm",
    "mlp_norm": "final_layer_norm",
}


def TENSORS(spec: DecoderSpec) -> Names:
    """Norms have a weight where they have a bias."""
    norms = _WEIGHTED if spec.norms.bias else dict.fromkeys(_WEIGHTED, ONES)
    return names(
        model=("model.decoder.", "decoder."),
        positions=Stored("embed_positions", first_row=2),
        o="self_attn.out_proj",
        up="fc1",
        down="fc2",
        **norms,
    )


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The fields of OPT 350m, which has norms after the sums, are refused."""
    config.spelled(hidden_act="activation_function", intermediate_size="ffn_dim")
    if not config.flag("do_layer_norm_before", True):
        raise config.wrong("do_layer_norm_before", "true: norms after the sums are not supported")
    if config.flag("_remove_final_layer_norm", False):
        raise config.wrong("_remove_final_layer_norm", "false: the head reads normed states")
    width = config.integer("hidden_size", 1, MAX_WIDTH)
    if config.integer("word_embed_proj_dim", 1, MAX_WIDTH, width) != width:
        raise config.wrong("word_embed_proj_dim", f"hidden_size, which is {width}")
    bias = config.flag("enable_bias", True)
    return decoder_spec(
        config,
        "opt",
        default_context=2048,
        norm_eps=1e-5,
        default_tied=True,
        rotates=False,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        mlp=MlpSpec(activation(config, "relu"), gated=False),
        norms=NormSpec("layer", bias=config.flag("layer_norm_elementwise_affine", True)),
        learned_positions=config.integer("max_position_embeddings", 1, MAX_CONTEXT, 2048),
    )
