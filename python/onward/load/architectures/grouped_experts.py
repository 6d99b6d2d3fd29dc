"""Reads the experts of DeepSeek-V3 (2024) and the models after it: sigmoid scores, a correction
that counts in the choice alone, groups of experts, and experts that always run."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_LAYERS, MAX_WIDTH, num_layers
from onward.spec import ExpertsSpec

MAX_EXPERTS = 4096


def grouped_experts(
    config: ConfigReader,
    *,
    count: int | None = None,
    chosen: int | None = None,
    size: int,
    shared: int | None = 1,
    normalise: bool = True,
    scale: float = 1.0,
    groups: tuple[int, int] = (1, 1),
) -> ExpertsSpec:
    """The experts of a config.

    Args:
        count, chosen, size, shared, normalise, scale, groups: ``n_routed_experts``,
            ``num_experts_per_tok``, ``moe_intermediate_size``, ``n_shared_experts``,
            ``norm_topk_prob``, ``routed_scaling_factor``, and ``n_group`` with ``topk_group``,
            where they are absent; None: the field is required.
    """
    config.ignore("num_local_experts", "ep_size", "aux_loss_alpha", "seq_aux")
    config.ignore("router_aux_loss_coef", "num_mtp_layers", "num_nextn_predict_layers")
    config.integer("moe_layer_freq", 1, 1, 1)
    config.text("topk_method", ("noaux_tc",), "noaux_tc")
    config.text("scoring_func", ("sigmoid", "noaux_tc"), "sigmoid")
    experts = config.integer("n_routed_experts", 1, MAX_EXPERTS, ... if count is None else count)
    width = config.integer("moe_intermediate_size", 1, MAX_WIDTH, size)
    always = config.integer("n_shared_experts", 0, MAX_EXPERTS, ... if shared is None else shared)
    n_group = config.integer("n_group", 1, experts, groups[0])
    if experts % n_group or (n_group > 1 and experts // n_group < 2):
        raise config.wrong("n_group", f"groups of at least 2 of the {experts} experts")
    return ExpertsSpec(
        count=experts,
        chosen=config.integer("num_experts_per_tok", 1, experts, ... if chosen is None else chosen),
        intermediate_size=width,
        scores="sigmoid",
        correction=True,
        normalise=config.flag("norm_topk_prob", normalise),
        scale=config.number("routed_scaling_factor", 0, 1e6, default=scale),
        groups=n_group,
        chosen_groups=config.integer("topk_group", 1, n_group, groups[1]),
        group_score="top2",
        shared_size=always * width,
    )


def dense_first(config: ConfigReader, default: int) -> tuple[int, ...]:
    """1 for each layer with experts: all layers but the first ``first_k_dense_replace``."""
    dense = config.integer("first_k_dense_replace", 0, MAX_LAYERS, default)
    return tuple(int(layer >= dense) for layer in range(num_layers(config)))
