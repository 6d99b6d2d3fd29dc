"""GPT-Neo: GPT-2 with windows in every other layer, and scores without a scale."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_LAYERS,
    activation,
    decoder_spec,
    num_layers,
)
from onward.load.architectures.families.gpt2 import GPT2_NAMES
from onward.load.architectures.names import names
from onward.load.architectures.rope import MAX_CONTEXT
from onward.spec import AttentionSpec, DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    **GPT2_NAMES,
    q="attn.attention.q_proj",
    k="attn.attention.k_proj",
    v="attn.attention.v_proj",
    o="attn.attention.out_proj",
    up="mlp.c_fc",
    down="mlp.c_proj",
    ignored=(".attn.attention.bias", ".attn.attention.masked_bias"),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The output projection has a bias; q, k and v have none."""
    config.spelled(
        num_hidden_layers="num_layers",
        num_attention_heads="num_heads",
        hidden_act="activation_function",
    )
    window = config.integer("window_size", 1, MAX_CONTEXT, 256)
    return decoder_spec(
        config,
        "gpt_neo",
        default_context=2048,
        default_eps=1e-5,
        eps_field="layer_norm_epsilon",
        default_inner=4,
        default_tied=True,
        rotates=False,
        output_bias=True,
        mlp_bias=True,
        mlp=MlpSpec(activation(config, "gelu_new"), gated=False),
        norms=NormSpec("layer", bias=True),
        attention=AttentionSpec(scale=1.0),
        windows=tuple(window if kind == "local" else 0 for kind in _kinds(config)),
        learned_positions=config.integer("max_position_embeddings", 1, MAX_CONTEXT, 2048),
    )


def _kinds(config: ConfigReader) -> list[str]:
    """ "global" or "local" by layer. ``attention_types`` has lists of kinds, each with how often it
    is repeated; ``attention_layers`` is the same, written out."""
    layers = num_layers(config)
    kinds: list[str] = []
    value = config.values.get("attention_types")
    if value is None:
        value = [[["global", "local"], 12]]
    expected = f'a list like [[["global", "local"], {layers // 2}]] for {layers} layers'
    if not isinstance(value, list):
        raise config.wrong("attention_types", expected)
    for item in value:
        names_and_count = isinstance(item, list) and len(item) == 2 and isinstance(item[0], list)
        if not names_and_count or type(item[1]) is not int or not 0 <= item[1] <= MAX_LAYERS:
            raise config.wrong("attention_types", expected)
        kinds += item[0] * item[1]
    config.ignore("attention_types")
    if len(kinds) != layers or not set(kinds) <= {"global", "local"}:
        raise config.wrong("attention_types", expected)
    written = config.texts("attention_layers", ("global", "local"), layers)
    if written is not None and written != kinds:
        raise config.error("attention_layers", "says something else than attention_types")
    return kinds
