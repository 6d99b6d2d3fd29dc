"""HunYuan 3 (HY): experts that a sigmoid router with a correction chooses, after dense layers."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, decoder_spec
from onward.load.architectures.layer_kinds import sparse_by_kind
from onward.load.architectures.names import Stored, names
from onward.spec import DecoderSpec, ExpertsSpec

TENSORS = names(
    predicts_further=True,
    router=("mlp.router.gate", "mlp.gate"),
    router_correction=(
        Stored("mlp.expert_bias", weight=""),
        Stored("mlp.e_score_correction_bias", weight=""),
    ),
    shared_gate=("mlp.shared_mlp.gate_proj", "mlp.shared_experts.gate_proj"),
    shared_up=("mlp.shared_mlp.up_proj", "mlp.shared_experts.up_proj"),
    shared_down=("mlp.shared_mlp.down_proj", "mlp.shared_experts.down_proj"),
)

_ALWAYS = ("qk_norm", "route_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias")


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The layers after the last one predict further tokens; they are not read."""
    config.ignore("router_aux_loss_coef", "num_nextn_predict_layers", "num_mtp_layers")
    config.ignore("enable_moe_fp32_combine", "enable_lm_head_fp32", "enable_attention_fp32_softmax")
    for always in (
        "qk_norm",
        "route_norm",
        "moe_router_use_sigmoid",
        "moe_router_enable_expert_bias",
    ):
        if not config.flag(always, True):
            raise config.wrong(always, "true in this family")
    config.spelled(moe_intermediate_size="expert_hidden_dim")
    dense = config.integer("first_k_dense_replace", 1, 1, 1)
    if config.flag("mlp_bias", False):
        raise config.error("mlp_bias", "is true: this version has no bias for shared experts")
    attention_bias = config.flag("attention_bias", False)
    size = config.integer("moe_intermediate_size", 1, MAX_WIDTH, 1536)
    shared = size * config.integer("num_shared_experts", 0, 4096, 1)
    return decoder_spec(
        config,
        "hy_v3",
        default_context=131072,
        default_kv_heads=8,
        default_head_dim=128,
        default_eps=1e-5,
        default_theta=11158840.0,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        experts=ExpertsSpec(
            count=config.integer("num_experts", 1, 4096, 192),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 8),
            intermediate_size=size,
            scores="sigmoid",
            correction=True,
            normalise=True,
            scale=config.number("router_scaling_factor", 0, 1e6, default=2.826),
            # Without a number of its own, the shared expert is as large as the MLP.
            shared_size=shared or config.integer("intermediate_size", 1, MAX_WIDTH),
        ),
        layer_experts=sparse_by_kind(config, dense),
    )
