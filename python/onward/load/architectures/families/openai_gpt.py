"""The first GPT: GPT-2 with norms of the sums in place of the inputs of the blocks."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import GPT2_FIELDS, MAX_WIDTH, decoder_spec
from onward.load.architectures.names import fused, names, transposed
from onward.load.architectures.rope import MAX_CONTEXT
from onward.spec import DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    model=("transformer.", ""),
    layer="h.{i}.",
    embed="tokens_embed",
    positions="positions_embed",
    attention_post_norm="ln_1",
    mlp_post_norm="ln_2",
    qkv=fused("attn.c_attn", "q", "k", "v", transposed=True),
    o=transposed("attn.c_proj"),
    up=transposed("mlp.c_fc"),
    down=transposed("mlp.c_proj"),
    ignored=(".attn.bias", "position_ids"),
)
_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``afn`` is the activation. Its "gelu" is the approximation with tanh."""
    config.spelled(**{**GPT2_FIELDS, "hidden_act": "afn"})
    act = _ACTIVATIONS[config.text("hidden_act", tuple(_ACTIVATIONS), "gelu")]
    return decoder_spec(
        config,
        "openai_gpt",
        default_context=512,
        default_eps=1e-5,
        eps_field="layer_norm_epsilon",
        default_inner=4,
        intermediate_size=4 * config.integer("hidden_size", 1, MAX_WIDTH),
        default_tied=True,
        rotates=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        mlp=MlpSpec(act, gated=False),
        norms=NormSpec("layer", bias=True, before=False, sums=True, final=False),
        learned_positions=config.integer("max_position_embeddings", 1, MAX_CONTEXT, 512),
    )
