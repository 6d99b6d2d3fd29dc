"""Falcon 7B, 40B, 180B and 2: parallel blocks, with one norm or one for each, and q, k and v stored
in groups of the heads that share k and v."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_HEADS, activation, decoder_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf, layer_norm
from onward.load.architectures.names import fused, names
from onward.spec import DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    model=("transformer.", ""),
    layer="h.{i}.",
    embed="word_embeddings",
    norm="ln_f",
    attention_norm=("ln_attn", "input_layernorm"),
    mlp_norm=("ln_mlp", "post_attention_layernorm"),
    qkv=fused("self_attention.query_key_value", "q", "k", "v", groups="kv_heads"),
    o="self_attention.dense",
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
    ignored=(".self_attention.rotary_emb.inv_freq",),
)


def _complete(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "num_kv_heads": config.get("num_key_value_heads", config["num_attention_heads"]),
        "num_ln_in_parallel_attn": 2 if config["two_norms"] else 1,
        "two_norms": None,
    }


GGUF = gguf(
    TENSORS,
    eps=layer_norm("layer_norm_epsilon"),
    same={"tensor_data_layout": "jploski"},  # q, then k, then v
    fixed={"new_decoder_architecture": True},  # any number of heads of k and v
    from_tensors={"bias": QKV_BIAS, "two_norms": ("attn_norm_2.weight",)},
    complete=_complete,
    attention_norm=("attn_norm_2", "attn_norm"),
    mlp_norm="attn_norm",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``multi_query`` and ``num_kv_heads`` count in the old and in the new architecture alone."""
    config.spelled(
        hidden_size="n_embed",
        num_hidden_layers="n_layer",
        num_attention_heads="n_head",
        intermediate_size="ffn_hidden_size",
    )
    config.ignore("ff_factor")  # ffn_hidden_size has the product
    if config.flag("alibi", False):
        raise config.wrong(
            "alibi", "false: the biases of this family, rounded to bfloat16, are not supported"
        )
    heads = config.integer("num_attention_heads", 1, MAX_HEADS)
    multi_query = config.flag("multi_query", True)
    kv_heads = config.integer("num_kv_heads", 1, MAX_HEADS, heads)
    if not config.flag("new_decoder_architecture", False):
        kv_heads = 1 if multi_query else heads
    if heads % kv_heads:
        raise config.wrong("num_kv_heads", f"a divisor of {heads} heads")
    bias = config.flag("bias", False)
    return decoder_spec(
        config,
        "falcon",
        default_context=2048,
        default_eps=1e-5,
        eps_field="layer_norm_epsilon",
        default_inner=4,
        default_tied=True,
        num_kv_heads=kv_heads,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        mlp=MlpSpec(activation(config, "gelu", "activation"), gated=False),
        norms=NormSpec("layer", bias=True),
        residual=_residual(config),
    )


def _residual(config: ConfigReader) -> str:
    """Two norms exist in the new architecture alone, and sequential blocks in the old one."""
    new = config.flag("new_decoder_architecture", False)
    norms = config.integer("num_ln_in_parallel_attn", 1, 2, 2 if new else 1)
    if config.flag("parallel_attn", True):
        if norms == 2 and not new:
            raise config.wrong("num_ln_in_parallel_attn", "1 without new_decoder_architecture")
        return "parallel_norms" if norms == 2 else "parallel"
    if new:
        raise config.wrong("parallel_attn", "true with new_decoder_architecture")
    return "sequential"
