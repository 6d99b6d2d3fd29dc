"""MPT: linear biases of the scores (ALiBi), layer norms without biases, limits of q, k and v."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, decoder_spec
from onward.load.architectures.families.bloom import alibi_slopes
from onward.load.architectures.gguf.family import gguf, layer_norm
from onward.load.architectures.names import fused, names
from onward.spec import AttentionSpec, DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    model=("transformer.", ""),
    layer="blocks.{i}.",
    embed="wte",
    norm="norm_f",
    attention_norm="norm_1",
    mlp_norm="norm_2",
    qkv=fused("attn.Wqkv", "q", "k", "v"),
    o="attn.out_proj",
    up="ffn.up_proj",
    down="ffn.down_proj",
)
_NORMS = ("low_precision_layernorm", "layernorm")
_POSITIVE = (1e-6, 1e6)
GGUF = gguf(
    TENSORS,
    eps=layer_norm("layer_norm_epsilon"),
    optional={"attention.clamp_kqv": "clip_qkv"},
    same={"attention.max_alibi_bias": 8.0},
    rotates=False,
    complete=lambda config: {"attn_config": {"clip_qkv": config.get("clip_qkv")}, "clip_qkv": None},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Fields of ``attn_config`` that the reference does not compute are refused."""
    config.spelled(
        hidden_size="d_model",
        num_hidden_layers="n_layers",
        num_attention_heads="n_heads",
        max_position_embeddings="max_seq_len",
    )
    config.text("norm_type", _NORMS, _NORMS[0])
    if not config.flag("no_bias", True):
        raise config.wrong("no_bias", "true: biases are not supported")
    if config.integer("expansion_ratio", 1, 1024, 4) != 4:
        raise config.wrong("expansion_ratio", "4")
    # Positions beside ALiBi are unused. The fraction scales gradients only.
    config.ignore("learned_pos_emb", "embedding_fraction")
    return decoder_spec(
        config,
        "mpt",
        default_context=2048,
        default_eps=1e-5,
        eps_field="layer_norm_epsilon",
        default_tied=True,
        rotates=False,
        intermediate_size=4 * config.integer("hidden_size", 1, MAX_WIDTH),
        default_inner=4,
        mlp=MlpSpec("gelu", gated=False),
        norms=NormSpec("layer"),
        attention=_attention(config),
    )


def _attention(config: ConfigReader) -> AttentionSpec:
    slopes = alibi_slopes(config)
    section = config.section("attn_config")
    if section is None:
        return AttentionSpec(alibi_slopes=slopes)
    section.text("attn_type", ("multihead_attention",), "multihead_attention")
    if not section.flag("alibi", True):
        raise section.wrong("alibi", "true")
    if section.number("alibi_bias_max", *_POSITIVE, default=8.0) != 8:
        raise section.wrong("alibi_bias_max", "8")
    section.ignore("attn_impl")
    clip = section.number("clip_qkv", *_POSITIVE, default=0.0)
    scale = section.number("softmax_scale", *_POSITIVE, default=0.0)
    section.refuse_the_rest()
    return AttentionSpec(alibi_slopes=slopes, clip=clip, scale=scale)
