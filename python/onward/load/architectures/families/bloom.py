"""BLOOM: linear biases of the scores (ALiBi), a norm of the embedding, and q, k and v stored head
by head."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_HEADS, MAX_WIDTH, decoder_spec
from onward.load.architectures.gguf.family import gguf, layer_norm
from onward.load.architectures.names import fused, names
from onward.spec import AttentionSpec, DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    model=("transformer.", ""),
    layer="h.{i}.",
    embed="word_embeddings",
    embed_norm="word_embeddings_layernorm",
    norm="ln_f",
    qkv=fused("self_attention.query_key_value", "q", "k", "v", groups="heads"),
    o="self_attention.dense",
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
)
GGUF = gguf(TENSORS, eps=layer_norm("layer_norm_epsilon"), rotates=False)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The config has no longest context. ``seq_length``, of training, stands for it."""
    config.spelled(
        hidden_size="n_embed",
        num_hidden_layers="n_layer",
        num_attention_heads="n_head",
        max_position_embeddings="seq_length",
    )
    if config.flag("apply_residual_connection_post_layernorm", False):
        raise config.wrong(
            "apply_residual_connection_post_layernorm", "false: normed residuals are not supported"
        )
    # How its training computed the same.
    config.ignore("slow_but_exact", "offset_alibi", "attention_softmax_in_fp32")
    config.ignore("bias_dropout_fusion", "skip_bias_add", "skip_bias_add_qkv")
    return decoder_spec(
        config,
        "bloom",
        default_context=2048,
        default_eps=1e-5,
        eps_field="layer_norm_epsilon",
        default_tied=True,
        rotates=False,
        intermediate_size=4 * config.integer("hidden_size", 1, MAX_WIDTH),
        default_inner=4,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        mlp=MlpSpec("gelu_tanh", gated=False),
        norms=NormSpec("layer", bias=True, embedding=True),
        attention=AttentionSpec(alibi_slopes=alibi_slopes(config)),
    )


def alibi_slopes(config: ConfigReader) -> tuple[float, ...]:
    """The slope of each head: 2 ** (-8 i / n) for i from 1 to n, the largest power of 2 up to the
    number of heads. Other heads have the slopes in the middle between these."""
    heads = config.integer("num_attention_heads", 1, MAX_HEADS)
    power = 1 << (heads.bit_length() - 1)
    steps = [*range(2, 2 * power + 1, 2), *range(1, 2 * (heads - power), 2)]
    return tuple(2.0 ** (-4 * step / power) for step in steps)
