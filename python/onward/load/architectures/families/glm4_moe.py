"""GLM 4.5, 4.6 and 4.7: partial rotation, norms on each head of q and k by a field, and experts as
DeepSeek-V3."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.grouped_experts import dense_first, grouped_experts
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names(predicts_further=True)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` is of q, k and v."""
    return decoder_spec(
        config,
        "glm4_moe",
        default_context=131072,
        default_kv_heads=8,
        default_eps=1e-5,
        default_rotated=0.5,
        qkv_bias=config.flag("attention_bias", False),
        qk_norm=config.flag("use_qk_norm", False),
        mlp=MlpSpec(activation(config, "silu")),
        experts=grouped_experts(config, count=128, chosen=8, size=1408),
        layer_experts=dense_first(config, 1),
    )
