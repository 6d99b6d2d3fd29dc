"""HunYuan with experts in every layer, one of which always runs, e.g. Hunyuan-A13B."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, num_layers
from onward.load.architectures.families.hunyuan_v1_dense import hunyuan_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, ExpertsSpec

TENSORS = names(
    q_norm="self_attn.query_layernorm",
    k_norm="self_attn.key_layernorm",
    router="mlp.gate.wg",
    shared_gate="mlp.shared_mlp.gate_proj",
    shared_up="mlp.shared_mlp.up_proj",
    shared_down="mlp.shared_mlp.down_proj",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Numbers of experts may be lists by layer, which must have one value everywhere."""
    config.spelled(num_experts_per_tok="moe_topk")
    config.ignore("use_mixed_mlp_moe", "moe_drop_tokens", "moe_random_routing_dropped_token")
    config.integer("moe_layer_num_skipped", 0, 0, 0)
    size = config.integer("intermediate_size", 1, MAX_WIDTH)
    _same_everywhere(config, "moe_intermediate_size", MAX_WIDTH, size, only=size)
    _same_everywhere(config, "num_shared_expert", 4096, 1, only=1)
    return hunyuan_spec(
        config,
        "hunyuan_v1_moe",
        experts=ExpertsSpec(
            count=_same_everywhere(config, "num_experts", 4096, 1),
            chosen=_same_everywhere(config, "num_experts_per_tok", 4096, 1),
            intermediate_size=size,
            normalise=True,
            shared_size=size,
        ),
        layer_experts=(1,) * num_layers(config),
    )


def _same_everywhere(
    config: ConfigReader, key: str, high: int, default: int, only: int | None = None
) -> int:
    """An integer, or a list with it for each layer; with ``only``, no other one."""
    low, high = (1, high) if only is None else (only, only)
    if not isinstance(config.values.get(config.spelling(key)), list):
        return config.integer(key, low, high, default)
    values = set(config.integers(key, low, high))
    if len(values) != 1:
        raise config.wrong(key, "the same number in all layers")
    return values.pop()
