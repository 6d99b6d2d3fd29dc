"""The decoders of BART, PLBart and MVP as language models of their own: mBART with norms of the
sums in place of the inputs of the blocks."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.mbart import decoder_names, read_decoder
from onward.load.architectures.names import Stored
from onward.spec import DecoderSpec, NormSpec

SUMS = {"attention_post_norm": "self_attn_layer_norm", "mlp_post_norm": "final_layer_norm"}
TENSORS = decoder_names(positions=Stored("embed_positions", first_row=2), **SUMS)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """PLBart alone multiplies the embedding by default."""
    config.ignore("prompt_length", "prompt_mid_dim")
    if config.flag("use_prompt", False):
        raise config.wrong("use_prompt", "false: learned prompts are not supported")
    return read_decoder(
        config,
        "bart",
        default_context=1024,
        default_scaled=config.values.get("model_type") == "plbart",
        norms=norms_of_sums(embedding=True),
    )


def norms_of_sums(*, embedding: bool) -> NormSpec:
    """The norms of such a decoder, with or without one of the embedding."""
    return NormSpec("layer", bias=True, before=False, sums=True, final=False, embedding=embedding)
