"""FlexOlmo: OLMo 2 with experts in every layer."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, decoder_spec, num_layers
from onward.load.architectures.families.olmo2 import TENSORS as TENSORS
from onward.spec import AttentionSpec, DecoderSpec, ExpertsSpec, NormSpec


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``intermediate_size`` is that of an expert."""
    config.ignore("router_aux_loss_coef")  # of training
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "flex_olmo",
        default_context=4096,
        default_theta=5e5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        attention=AttentionSpec(qk_norm_over="all"),
        norms=NormSpec(before=False, after=True),
        experts=ExpertsSpec(
            count=config.integer("num_experts", 1, 4096, 7),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 5),
            intermediate_size=config.integer("intermediate_size", 1, MAX_WIDTH),
            normalise=config.flag("norm_topk_prob", False),
        ),
        layer_experts=(1,) * num_layers(config),
    )
