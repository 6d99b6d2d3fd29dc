"""nanochat: norms without weights, also of the embedding and of q and k after their rotation, which
turns the other way; a plain MLP with squared ReLU, and a soft-cap of the logits."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.names import names
from onward.spec import AttentionSpec, DecoderSpec, MlpSpec, NormSpec

TENSORS = names(rotation="backwards", norm_constant=1.0, up="mlp.fc1", down="mlp.fc2")


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``final_logit_softcapping`` null means none; an absent field means 15."""
    softcap = config.number("final_logit_softcapping", 1e-6, 1e6, default=0.0)
    if "final_logit_softcapping" not in config.values:
        softcap = 15.0
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "nanochat",
        default_context=2048,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        mlp=MlpSpec(activation(config, "relu2"), gated=False),
        norms=NormSpec(embedding=True),
        attention=AttentionSpec(qk_norm_after_rope=True),
        logit_softcap=softcap,
    )
