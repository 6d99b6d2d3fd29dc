"""DeepSeek-V3 and R1: latent attention, and experts that a sigmoid router with a correction
chooses within groups."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH
from onward.load.architectures.families.deepseek_v2 import deepseek_spec, shared_size
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, ExpertsSpec

TENSORS = names(rotation="pairs", predicts_further=True)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The layers after the last one predict further tokens; they are not read."""
    config.ignore(
        "num_mtp_layers", "num_nextn_predict_layers", "ep_size", "aux_loss_alpha", "seq_aux"
    )
    config.integer("moe_layer_freq", 1, 1, 1)
    config.text("topk_method", ("noaux_tc",), "noaux_tc")
    config.text("scoring_func", ("sigmoid",), "sigmoid")
    if not config.flag("rope_interleave", True):
        raise config.error("rope_interleave", "is false, expected true in this family")
    return deepseek_spec(
        config,
        "deepseek_v3",
        dense=config.integer("first_k_dense_replace", 0, 1 << 20, 3),
        context=4096,
        experts=ExpertsSpec(
            count=config.integer("n_routed_experts", 1, 4096, 256),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 8),
            intermediate_size=config.integer("moe_intermediate_size", 1, MAX_WIDTH, 2048),
            scores="sigmoid",
            correction=True,
            normalise=config.flag("norm_topk_prob", True),
            scale=config.number("routed_scaling_factor", 0, 1e6, default=2.5),
            groups=config.integer("n_group", 1, 4096, 8),
            chosen_groups=config.integer("topk_group", 1, 4096, 4),
            group_score="top2",
            shared_size=shared_size(config, 1, 2048),
        ),
    )
