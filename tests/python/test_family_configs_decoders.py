"""Configs of decoders that belong to an encoder: only those saved as language models load."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import ConfigError
from onward.load.architectures import names_of, read_spec, tensor_plan
from onward.load.architectures.parts import stored_shapes
from onward.load.architectures.sinusoids import paired_sines_then_cosines_in_double
from onward.spec import DecoderSpec, EmbeddingSpec

# The encoder has other sizes.
DECODER = {
    **{"d_model": 24, "decoder_layers": 2, "decoder_attention_heads": 3, "decoder_ffn_dim": 32},
    **{"encoder_layers": 5, "encoder_attention_heads": 6, "encoder_ffn_dim": 48},
    **{"num_hidden_layers": 5, "vocab_size": 10, "is_encoder_decoder": False},
}
MOSHI = {
    **{"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 10},
    **{"ffn_dim": 64, "max_position_embeddings": 32},
}
NORMED_BEFORE = ("mbart", "blenderbot", "pegasus", "bigbird_pegasus", "whisper")
SUMMED = ("bart", "plbart", "mvp", "marian")
TYPES = (*NORMED_BEFORE, *SUMMED)


def spec_of(model_type: str, sizes: dict[str, Any], **fields: Any) -> DecoderSpec:
    return read_spec({"model_type": model_type, **sizes, **fields})


@pytest.mark.parametrize("model_type", TYPES)
def test_the_sizes_are_those_of_the_decoder(model_type: str) -> None:
    spec = spec_of(model_type, DECODER, normalize_before=True, encoder_layerdrop=0.1)
    found = (spec.hidden_size, spec.num_layers, spec.num_heads, spec.num_kv_heads)
    assert found == (24, 2, 3, 3)
    assert (spec.intermediate_size, spec.norm_eps) == (32, 1e-5)


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize("flag", [True, None])
def test_a_pair_is_refused(model_type: str, flag: bool | None) -> None:
    with pytest.raises(ConfigError, match="is_encoder_decoder is true or missing, expected false"):
        spec_of(model_type, DECODER, is_encoder_decoder=flag)


def test_norms_of_the_sums() -> None:
    for model_type in (*SUMMED, "trocr"):
        norms = spec_of(model_type, DECODER).norms
        assert (norms.sums, norms.before, norms.final) == (True, False, False)
        assert norms.embedding == (model_type != "marian")
    assert not spec_of("trocr", DECODER, layernorm_embedding=False).norms.embedding
    assert spec_of("trocr", {**DECODER, "is_encoder_decoder": None}).num_layers == 2
    assert spec_of("plbart", DECODER).embedding_scale == pytest.approx(24**0.5)
    assert spec_of("bart", DECODER).embedding_scale == 1
    assert spec_of("blenderbot-small", DECODER).embedding == EmbeddingSpec(wide_positions=True)
    for model_type, field, value in (
        ("mvp", "use_prompt", True),
        ("marian", "decoder_vocab_size", 11),
        ("trocr", "use_learned_position_embeddings", False),
    ):
        with pytest.raises(ConfigError, match=f"{field} is {value}, expected"):
            spec_of(model_type, DECODER, **{field: value})


def test_what_differs_between_the_decoders() -> None:
    assert spec_of("mbart", DECODER).norms.embedding
    assert not spec_of("blenderbot", DECODER).norms.embedding
    assert spec_of("whisper", DECODER, max_target_positions=7).max_context == 7
    assert not spec_of("bigbird_pegasus", DECODER).qkv_bias
    assert spec_of("bigbird_pegasus", DECODER).embedding_scale == pytest.approx(24**0.5)
    assert spec_of("mbart", DECODER).embedding_scale == 1


def test_attention_to_the_encoder_is_not_read() -> None:
    spec = spec_of("whisper", DECODER)
    plan = {planned.name: planned for planned in tensor_plan(spec, {"model.decoder.x"})}
    assert not [name for name in stored_shapes(plan.values()) if "encoder_attn" in name]
    assert [part.constant for part in plan["layers.0.qkv_bias"].parts] == [None, 0, None]
    for ignored in ("encoder_attn.k_proj.weight", "encoder_attn_layer_norm.bias"):
        assert names_of(spec).is_ignored(f"model.decoder.layers.0.{ignored}", 2)
    assert not names_of(spec).is_ignored("model.decoder.layers.0.self_attn.k_proj.weight", 2)


def test_positions_of_pegasus() -> None:
    """A file may have them; otherwise they are computed: for width 4, frequencies 1 and 1/100."""
    spec = spec_of("pegasus", DECODER)
    tensor = "model.decoder.embed_positions.weight"
    for stored, expected in (({tensor}, tensor), ({"model.decoder.x"}, "")):
        plan = {planned.name: planned.parts[0] for planned in tensor_plan(spec, stored)}
        assert plan["positions"].tensor == expected
    found = paired_sines_then_cosines_in_double((3, 4))[2]
    assert found.tolist() == pytest.approx([0.9092974, 0.0199987, -0.4161468, 0.9998], abs=1e-6)


def test_moshi() -> None:
    spec = spec_of("moshi", MOSHI)
    assert (spec.intermediate_size, spec.norm_eps, spec.max_context) == (32, 1e-8, 32)
    assert stored_shapes(tensor_plan(spec))["model.embed_tokens.weight"] == (11, 24)
    for fields, message in (
        ({"ffn_dim": 63}, "ffn_dim is 63, expected an even number"),
        ({"sliding_window": 31}, "sliding_window is 31, expected at least"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True, expected false"),
    ):
        with pytest.raises(ConfigError, match=message):
            spec_of("moshi", MOSHI, **fields)
