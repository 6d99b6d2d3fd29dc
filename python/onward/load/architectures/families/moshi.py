"""The text model of Moshi: Llama with gate and up in one matrix, and an embedding of one more
token, which only its audio model reads."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, activation, decoder_spec
from onward.load.architectures.names import Stored, fused, names
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names(
    embed=Stored("embed_tokens", spare_rows=1),
    q="self_attn.q_proj.linear",
    k="self_attn.k_proj.linear",
    v="self_attn.v_proj.linear",
    o="self_attn.o_proj.linear",
    gate_up=fused("mlp.fc1", "gate", "up"),
    down="mlp.fc2",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``ffn_dim`` counts gate and up together. The window is as long as the longest text."""
    config.ignore("audio_encoder_config", "depth_decoder_config", "audio_vocab_size")
    config.ignore("num_codebooks")
    longest = config.integer("max_position_embeddings", 1, MAX_POSITIONS, 3000)
    if config.integer("sliding_window", 1, MAX_POSITIONS, 3000) < longest:
        raise config.wrong("sliding_window", f"at least max_position_embeddings, {longest}")
    inner = config.integer("ffn_dim", 2, MAX_WIDTH)
    if inner % 2:
        raise config.wrong("ffn_dim", "an even number")
    if config.flag("tie_word_embeddings", False):
        raise config.wrong("tie_word_embeddings", "false: the head has a row less")
    return decoder_spec(
        config.renamed(intermediate_size="ffn_dim"),
        "moshi",
        default_context=3000,
        default_eps=1e-8,
        intermediate_size=inner // 2,
        mlp=MlpSpec(activation(config, "silu")),
    )
