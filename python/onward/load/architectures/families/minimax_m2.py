"""MiniMax M2: experts with sigmoid scores in every layer, norms of all heads of q and k together,
and partial rotation."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_HEAD_DIM,
    MAX_WIDTH,
    activation,
    decoder_spec,
    head_size,
    num_layers,
)
from onward.load.architectures.families.mixtral import DOWN, GATE, ROUTER, UP
from onward.load.architectures.names import Stored, names
from onward.spec import AttentionSpec, DecoderSpec, ExpertsSpec, MlpSpec

TENSORS = names(
    router=ROUTER,
    expert_gate=GATE,
    expert_up=UP,
    expert_down=DOWN,
    router_correction=(
        Stored("block_sparse_moe.e_score_correction_bias", weight=""),
        Stored("mlp.e_score_correction_bias", weight=""),
    ),
    predicts_further=True,
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``rotary_dim`` stands for ``partial_rotary_factor`` where that is absent."""
    _refuse_other_models(config)
    config.spelled(num_local_experts="num_experts")
    layers = num_layers(config)
    head_dim = head_size(config, 128)
    experts = ExpertsSpec(
        count=config.integer("num_local_experts", 1, 4096, 256),
        chosen=config.integer("num_experts_per_tok", 1, 4096, 8),
        intermediate_size=config.integer("intermediate_size", 1, MAX_WIDTH, 1536),
        scores="sigmoid",
        correction=True,
        normalise=True,
    )
    return decoder_spec(
        config,
        "minimax_m2",
        default_context=196608,
        default_head_dim=128,
        default_kv_heads=8,
        default_theta=5e6,
        default_rotated=config.integer("rotary_dim", 2, MAX_HEAD_DIM, head_dim) / head_dim,
        qk_norm=True,
        attention=AttentionSpec(qk_norm_over="all"),
        mlp=MlpSpec(activation(config, "silu")),
        experts=experts,
        layer_experts=(1,) * layers,
    )


def _refuse_other_models(config: ConfigReader) -> None:
    """Fields of the published configs that have one value in this family. Others are ignored: they
    are of training, of layers that predict further tokens, and of MiniMax 1."""
    config.text("qk_norm_type", ("per_layer",), "per_layer")
    config.text("scoring_func", ("sigmoid",), "sigmoid")
    for field in ("use_qk_norm", "use_routing_bias"):
        if not config.flag(field, True):
            raise config.wrong(field, "true")
    if "attn_type_list" in config:
        config.numbers("attn_type_list", 1, 1, num_layers(config))
    config.ignore("router_aux_loss_coef", "router_jitter_noise")
    config.ignore("use_mtp", "num_mtp_modules", "mtp_transformer_layers")
    config.ignore("mlp_intermediate_size", "shared_moe_mode", "layernorm_mlp_beta")
    config.ignore("layernorm_full_attention_beta", "layernorm_linear_attention_beta")
