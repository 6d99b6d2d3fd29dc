"""Solar Open: Llama with experts as DeepSeek-V3 in every layer."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec, num_layers
from onward.load.architectures.grouped_experts import grouped_experts
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names(predicts_further=True)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` is of q, k and v. No layer has an MLP of ``intermediate_size``."""
    experts = grouped_experts(config, count=128, chosen=8, size=1280)
    config.ignore("intermediate_size", "first_k_dense_replace", "use_qk_norm")
    return decoder_spec(
        config,
        "solar_open",
        default_context=131072,
        default_head_dim=128,
        default_kv_heads=8,
        default_theta=1e6,
        default_eps=1e-5,
        intermediate_size=experts.intermediate_size,
        qkv_bias=config.flag("attention_bias", False),
        mlp=MlpSpec(activation(config, "silu")),
        experts=experts,
        layer_experts=(1,) * num_layers(config),
    )
