"""Gemma 4: Gemma 3 with heads of another size in full layers, inputs of single layers, layers that
share keys and values, and experts beside an MLP."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_WIDTH,
    activation,
    decoder_spec,
    head_size,
    num_layers,
)
from onward.load.architectures.layer_kinds import (
    FULL,
    SLIDING,
    layer_kinds,
    ropes_by_kind,
    windows_of,
)
from onward.load.architectures.names import Stored, fused, names
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import (
    AttentionSpec,
    DecoderSpec,
    ExpertsSpec,
    LayerInputSpec,
    MlpSpec,
    NormSpec,
)

_FUSED = fused("experts.gate_up_proj", "expert_gate", "expert_up", weight="")
_ROPES = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}


TENSORS = names(
    attention_post_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
    v=("self_attn.v_proj", "self_attn.k_proj"),  # the keys before their norm, in some layers
    router="router.proj",
    expert_gate=_FUSED,
    expert_down=Stored("experts.down_proj", weight=""),
    rotation="as_stored",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The scores have no factor: the norms of queries and keys have it."""
    layers = num_layers(config)
    kinds = layer_kinds(config, 6)
    kinds[-1] = FULL  # as the reference does
    if config.text("use_bidirectional_attention", ("vision", "all"), "vision") == "all":
        raise config.error("use_bidirectional_attention", "is 'all', expected causal attention")
    hidden = config.integer("hidden_size", 1, MAX_WIDTH)
    head_dim = head_size(config, 256)
    full_dim, full_kv_heads = _full_heads(config, kinds)
    dims = {SLIDING: head_dim, FULL: full_dim}
    attention_bias = config.flag("attention_bias", False)
    size = config.integer("hidden_size_per_layer_input", 0, MAX_WIDTH, 256)
    vocabulary = config.integer("vocab_size", 1, 1 << 24)
    if size and config.integer("vocab_size_per_layer_input", 1, 1 << 24, vocabulary) != vocabulary:
        raise config.error("vocab_size_per_layer_input", f"is not vocab_size, {vocabulary}")
    shared = config.integer("num_kv_shared_layers", 0, layers - 1, 0)
    wide = config.flag("use_double_wide_mlp", False)
    inner = config.integer("intermediate_size", 1, MAX_WIDTH)
    experts = _experts(config, hidden)
    return decoder_spec(
        config,
        "gemma4_text",
        default_context=131072,
        default_head_dim=256,
        default_tied=True,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        windows=windows_of(config, kinds, 512),
        norms=NormSpec(after=True),
        attention=AttentionSpec(scale=1.0, v_norm=True),
        logit_softcap=config.number("final_logit_softcapping", 1e-6, 1e6, default=None) or 0.0,
        mlp=MlpSpec(activation(config, "gelu_pytorch_tanh", "hidden_activation")),
        embedding_scale=math.sqrt(hidden),
        layer_head_dims=tuple(dims[kind] for kind in kinds),
        layer_kv_heads=tuple(full_kv_heads if kind == FULL else 0 for kind in kinds),
        kv_sources=_kv_sources(config, kinds, shared),
        layer_intermediate_sizes=tuple(
            2 * inner if wide and layer >= layers - shared else 0 for layer in range(layers)
        ),
        layer_inputs=LayerInputSpec(
            size=size,
            embedding_scale=math.sqrt(size),
            projection_scale=1 / math.sqrt(hidden),
            scale=1 / math.sqrt(2),
        )
        if size
        else LayerInputSpec(),
        layer_scales=True,
        experts=experts,
        layer_experts=(int(experts.count > 0),) * layers,
        **ropes_by_kind(
            config,
            kinds,
            head_dims=dims,
            max_positions=config.integer("max_position_embeddings", 1, MAX_POSITIONS, 131072),
            thetas={FULL: 1e6, SLIDING: 1e4},
            default_sections=_ROPES,
        ),
    )


def _full_heads(config: ConfigReader, kinds: Sequence[str]) -> tuple[int, int]:
    """The head_dim and the number of kv heads (0: as the others) of full layers."""
    head_dim = config.integer("global_head_dim", 2, MAX_HEAD_DIM, 512)
    kv_heads = config.integer("num_global_key_value_heads", 1, MAX_HEADS, None)
    if not config.flag("attention_k_eq_v", False):
        kv_heads = None
    own = config.section("per_layer_config")
    for layer, kind in enumerate(kinds):
        entry = own.section(str(layer)) if own is not None else None
        if entry is None:
            continue
        if kind != FULL:
            raise config.error("per_layer_config", f"has layer {layer}, which has a window")
        head_dim = entry.integer("head_dim", 2, MAX_HEAD_DIM, head_dim)
        kv_heads = entry.integer("num_key_value_heads", 1, MAX_HEADS, kv_heads or 0) or None
        entry.refuse_the_rest(strict=True)
    return head_dim, kv_heads or 0


def _kv_sources(config: ConfigReader, kinds: Sequence[str], shared: int) -> tuple[int, ...]:
    """The last ``shared`` layers see the keys and values of the last layer of their kind before
    them."""
    first = len(kinds) - shared
    last = {kind: layer for layer, kind in enumerate(kinds[:first])}
    missing = set(kinds[first:]) - last.keys()
    if missing:
        raise config.error("num_kv_shared_layers", f"leaves no layer of {min(missing)}")
    return tuple(0 if layer < first else last[kind] + 1 for layer, kind in enumerate(kinds))


def _experts(config: ConfigReader, hidden: int) -> ExpertsSpec:
    if not config.flag("enable_moe_block", False):
        config.ignore("num_experts", "top_k_experts", "moe_intermediate_size")
        return ExpertsSpec()
    return ExpertsSpec(
        count=config.integer("num_experts", 1, 4096),
        chosen=config.integer("top_k_experts", 1, 4096),
        intermediate_size=config.integer("moe_intermediate_size", 1, MAX_WIDTH),
        normalise=True,
        scales=True,
        router_norm=True,
        router_scale=1 / math.sqrt(hidden),
        beside_mlp=True,
    )
