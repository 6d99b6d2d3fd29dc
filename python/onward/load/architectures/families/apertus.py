"""Apertus 1 and 1.5: Llama with norms on each head of q and k, a plain MLP, and the activation
xIELU, whose parameters are in the file."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_VOCAB, activation, decoder_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names(attention_norm="attention_layernorm", mlp_norm="feedforward_layernorm")
_DEFAULT_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1.2e7,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` covers q, k, v and the output projection."""
    vocab_size = config.integer("vocab_size", 1, MAX_VOCAB)
    if config.integer("output_vocab_size", 1, MAX_VOCAB, vocab_size) != vocab_size:
        raise config.wrong("output_vocab_size", "vocab_size: as many tokens as the embedding has")
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "apertus",
        default_context=65536,
        default_theta=1.2e7,
        default_rope=_DEFAULT_ROPE,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        mlp=MlpSpec(activation(config, "xielu"), gated=False),
    )
