"""OPT and Galactica: learned positions from the third row of their matrix on, and layer norms. OPT
350M has an embedding of another width, and norms of the sums."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, activation, decoder_spec
from onward.load.architectures.names import ONES, Entry, Names, Stored, names
from onward.load.architectures.rope import MAX_CONTEXT
from onward.spec import DecoderSpec, EmbeddingSpec, HeadSpec, MlpSpec, NormSpec

_WEIGHTED: dict[str, Entry] = {
    "norm": "final_layer_norm",
    "attention_norm": "self_attn_layer_norm",
    "mlp_norm": "final_layer_norm",
    "attention_post_norm": "self_attn_layer_norm",
    "mlp_post_norm": "final_layer_norm",
}


def TENSORS(spec: DecoderSpec) -> Names:
    """Norms have a weight where they have a bias."""
    norms = _WEIGHTED if spec.norms.bias else dict.fromkeys(_WEIGHTED, ONES)
    return names(
        model=("model.decoder.", "decoder."),
        positions=Stored("embed_positions", first_row=2),
        embedding_projection="project_in",
        head_dense=("model.decoder.project_out", "decoder.project_out"),
        o="self_attn.out_proj",
        up="fc1",
        down="fc2",
        norm=norms["norm"],
        attention_norm=norms["attention_norm"],
        mlp_norm=norms["mlp_norm"],
        attention_post_norm=norms["attention_post_norm"],
        mlp_post_norm=norms["mlp_post_norm"],
    )


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``word_embed_proj_dim`` is the width of the embedding and of the head."""
    config.spelled(hidden_act="activation_function", intermediate_size="ffn_dim")
    if not config.flag("learned_embeddings", True):
        raise config.wrong("learned_embeddings", "true: positions are learned in this family")
    width = config.integer("hidden_size", 1, MAX_WIDTH)
    embedded = config.integer("word_embed_proj_dim", 1, MAX_WIDTH, width)
    narrow = embedded != width
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
        norms=_norms(config),
        learned_positions=config.integer("max_position_embeddings", 1, MAX_CONTEXT, 2048),
        embedding=EmbeddingSpec(embedded, wide_positions=True) if narrow else EmbeddingSpec(),
        head=HeadSpec(embedded) if narrow else HeadSpec(),
    )


def _norms(config: ConfigReader) -> NormSpec:
    before = config.flag("do_layer_norm_before", True)
    removed = config.flag("_remove_final_layer_norm", False)
    return NormSpec(
        "layer",
        bias=config.flag("layer_norm_elementwise_affine", True),
        before=before,
        sums=not before,
        final=before and not removed,
    )
