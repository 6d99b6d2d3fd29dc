"""Configs of the GPT family and its relatives: old spellings, and values that are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from onward.errors import ConfigError
from onward.load.architectures import read_spec, tensor_plan
from onward.load.architectures.parts import stored_shapes
from onward.load.architectures.sinusoids import paired_sines_then_cosines, sines_then_cosines
from onward.spec import DecoderSpec, EmbeddingSpec, HeadSpec

GPT2 = {"n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 10}
GPTJ = {**GPT2, "rotary_dim": 8}
SIZES = {
    **{"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3},
    **{"intermediate_size": 32, "vocab_size": 10},
}
XGLM = {"d_model": 24, "num_layers": 2, "attention_heads": 3, "ffn_dim": 32, "vocab_size": 10}
BLOOM = {"n_embed": 24, "n_layer": 2, "n_head": 3, "vocab_size": 10}
MPT = {"d_model": 24, "n_layers": 2, "n_heads": 3, "vocab_size": 10}
OPT = {**SIZES, "ffn_dim": 32, "intermediate_size": None}
NEO = {**SIZES, "attention_types": [[["global", "local"], 1]]}


def spec_of(model_type: str, sizes: dict[str, Any], **fields: Any) -> DecoderSpec:
    return read_spec({"model_type": model_type, **sizes, **fields})


@pytest.mark.parametrize(
    ("model_type", "sizes", "field", "value", "expected"),
    [
        ("gpt2", GPT2, "add_cross_attention", True, ""),
        ("gpt2", GPT2, "activation_function", "tanh", "one of"),
        ("gptj", GPTJ, "rotary_dim", 10, "an even number up to head_dim, 8"),
        ("gptj", GPTJ, "rotary_dim", 3, "an even number up to head_dim, 8"),
        ("gptj", GPTJ, "scale_attn_weights", False, "true"),
        ("gptj", GPTJ, "rotary", False, "true"),
        ("opt", OPT, "learned_embeddings", False, "true"),
        ("codegen", {**GPTJ, "rotary_dim": 2}, "n_head", 3, "a multiple of 4"),
        ("bloom", BLOOM, "apply_residual_connection_post_layernorm", True, "false"),
        ("mpt", MPT, "no_bias", False, "true"),
        ("mpt", MPT, "expansion_ratio", 2, "4"),
        ("mpt", MPT, "norm_type", "rmsnorm", "one of low_precision_layernorm, layernorm"),
        ("mpt", MPT, "attn_config", {"alibi": False}, "true"),
        ("mpt", MPT, "attn_config", {"alibi_bias_max": 16}, "8"),
        ("mpt", MPT, "attn_config", {"attn_type": "multiquery_attention"}, "one of multihead"),
        ("mpt", MPT, "attn_config", {"qk_ln": True}, ""),
        ("falcon", SIZES, "alibi", True, "false"),
        ("falcon", SIZES, "num_ln_in_parallel_attn", 2, "1 without new_decoder_architecture"),
        ("gpt_neo", NEO, "attention_types", [[["global"], 1]], "for 2 layers"),
        ("gpt_neo", NEO, "attention_types", [["global", 2]], "for 2 layers"),
        ("gpt_neo", NEO, "attention_types", [[["dense"], 2]], "for 2 layers"),
        ("gpt_neo", NEO, "attention_layers", ["local", "global"], "something else"),
        ("xglm", XGLM, "pad_token_id", 2, "0 or 1"),
        ("ctrl", {**GPT2, "dff": 32}, "layer_norm_epsilon", 1e-5, "1e-06"),
    ],
)
def test_values_that_are_refused(
    model_type: str, sizes: dict[str, Any], field: str, value: object, expected: str
) -> None:
    if model_type != "codegen":
        spec_of(model_type, sizes)
    inner = next(iter(value)) if isinstance(value, dict) else ""
    with pytest.raises(ConfigError, match=rf"config\.json: {field}.*{inner}.*{expected}"):
        spec_of(model_type, {**sizes, field: value})


@pytest.mark.parametrize(
    ("model_type", "sizes", "fields"),
    [
        ("gpt2", GPT2, {"n_ctx": 9, "summary_use_proj": True, "reorder_and_upcast_attn": True}),
        ("gpt_bigcode", GPT2, {"attention_softmax_in_fp32": True, "pad_key_length": True}),
        ("gpt_bigcode", GPT2, {"pre_allocate_kv_cache": True, "num_key_value_heads": 7}),
        ("gptj", GPTJ, {"rotary": True, "scale_attn_weights": True, "n_inner": None}),
        ("opt", OPT, {"learned_embeddings": True, "scale_embeddings": False, "prefix": "</s>"}),
        ("bloom", BLOOM, {"offset_alibi": 100, "attention_softmax_in_fp32": True}),
        ("bloom", BLOOM, {"masked_softmax_fusion": True, "skip_bias_add": True}),
        ("mpt", MPT, {"embedding_fraction": 1.0, "learned_pos_emb": True, "verbose": 0}),
        ("mpt", MPT, {"attn_config": {"attn_impl": "torch", "attn_pdrop": 0, "alibi": True}}),
        ("falcon", SIZES, {"ff_factor": 4, "apply_residual_connection_post_layernorm": False}),
        ("biogpt", SIZES, {"layer_norm_eps": 1e-12, "activation_dropout": 0.1}),
        ("ctrl", {**GPT2, "dff": 32}, {"n_ctx": 512, "pruned_heads": {}}),
    ],
)
def test_fields_of_published_configs(
    model_type: str, sizes: dict[str, Any], fields: dict[str, Any]
) -> None:
    assert spec_of(model_type, sizes, **fields) == spec_of(model_type, sizes)


def test_groups_of_falcon() -> None:
    """The old architecture has one head of keys, or one for each query head."""
    for fields, heads, residual in (
        ({}, 1, "parallel"),
        ({"multi_query": False}, 3, "parallel"),
        ({"parallel_attn": False, "num_kv_heads": 3}, 1, "sequential"),
        ({"new_decoder_architecture": True, "num_kv_heads": 3}, 3, "parallel_norms"),
        ({"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1}, 3, "parallel"),
    ):
        spec = spec_of("falcon", SIZES, **fields)
        assert (spec.num_kv_heads, spec.residual) == (heads, residual)
    with pytest.raises(ConfigError, match="parallel_attn is False, expected true"):
        spec_of("falcon", SIZES, new_decoder_architecture=True, parallel_attn=False)


def test_old_spellings() -> None:
    neox = spec_of("gpt_neox", SIZES, rotary_emb_base=100, rotary_pct=0.5)
    assert neox.rope.inv_freq == pytest.approx((1.0, 0.1, 0, 0))
    assert neox == spec_of("gpt_neox", SIZES, rope_theta=100, partial_rotary_factor=0.5)
    assert len(spec_of("gpt_neox", SIZES).rope.inv_freq) == 4
    assert spec_of("bloom", BLOOM, seq_length=64).max_context == 64
    falcon = {"n_embed": 24, "n_layer": 2, "n_head": 3, "vocab_size": 10}
    assert spec_of("falcon", falcon) == spec_of("falcon", {**SIZES, "intermediate_size": None})


def test_inner_sizes_that_no_field_has() -> None:
    for model_type, sizes in (("bloom", BLOOM), ("mpt", MPT)):
        assert spec_of(model_type, sizes).intermediate_size == 96
    japanese = {**SIZES, "intermediate_size": None, "intermediate_multiple_size": 2}
    assert spec_of("gpt_neox_japanese", japanese).intermediate_size == 48


@pytest.mark.parametrize(
    ("heads", "eighths"),
    [
        (4, [2, 4, 6, 8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
    ],
)
def test_slopes_of_alibi(heads: int, eighths: list[int]) -> None:
    """The paper's: for 4 heads 1/4, 1/16, 1/64 and 1/256."""
    spec = spec_of("bloom", {**BLOOM, "n_embed": 8 * heads, "n_head": heads})
    assert spec.attention.alibi_slopes == pytest.approx([2.0**-n for n in eighths])


def test_windows_of_gpt_neo() -> None:
    assert spec_of("gpt_neo", NEO, window_size=5).windows == (0, 5)
    both = {**NEO, "attention_layers": ["global", "local"]}
    assert spec_of("gpt_neo", both).windows == (0, 256)


def test_the_first_rows_of_positions_are_left_out() -> None:
    for model_type, sizes, prefix in (("opt", OPT, "model.decoder"), ("biogpt", SIZES, "biogpt")):
        plan = tensor_plan(spec_of(model_type, sizes, max_position_embeddings=7))
        assert stored_shapes(plan)[f"{prefix}.embed_positions.weight"] == (9, 24)
        part = next(planned.parts[0] for planned in plan if planned.name == "positions")
        assert part.rows == range(2, 9)


def test_opt_350m() -> None:
    spec = spec_of("opt", OPT, do_layer_norm_before=False, word_embed_proj_dim=12)
    assert (spec.norms.sums, spec.norms.before, spec.norms.final) == (True, False, False)
    assert (spec.embedding, spec.head) == (EmbeddingSpec(12, wide_positions=True), HeadSpec(12))
    shapes = stored_shapes(tensor_plan(spec))
    assert shapes["model.decoder.project_in.weight"] == (24, 12)
    assert shapes["model.decoder.project_out.weight"] == (12, 24)
    assert not spec_of("opt", OPT, _remove_final_layer_norm=True).norms.final


def test_scores_divided_by_the_number_of_the_layer() -> None:
    spec = spec_of("gpt2", GPT2, scale_attn_by_inverse_layer_idx=True)
    assert spec.attention.inverse_layer_scale
    assert not spec_of("gpt2", GPT2).attention.inverse_layer_scale


def test_norms_of_galactica_have_no_weights() -> None:
    plan = tensor_plan(spec_of("opt", OPT, layer_norm_elementwise_affine=False, enable_bias=False))
    assert not [name for name in stored_shapes(plan) if "norm" in name or "bias" in name]
    norm = next(planned.parts[0] for planned in plan if planned.name == "layers.1.mlp_norm")
    assert norm.constant == 1


def test_the_only_bias_of_gpt_neox_japanese() -> None:
    spec = spec_of("gpt_neox_japanese", {**SIZES, "intermediate_size": None})
    last = "gpt_neox_japanese.layers.1.attention.dense_bias"
    plan = {planned.name: planned.parts[0] for planned in tensor_plan(spec, {last})}
    assert plan["layers.0.o_bias"].constant == 0
    assert plan["layers.1.o_bias"].tensor == last


class TestSinusoids:
    """Positions that are computed: hand-made angles."""

    def test_sines_then_cosines(self) -> None:
        """XGLM, width 4: frequencies 1 and 1 / 10000."""
        found = sines_then_cosines(2)((2, 4))
        assert found.dtype == np.float32
        assert found == pytest.approx(np.array([row(2, 1e4), row(3, 1e4)]), abs=1e-6)

    def test_pairs(self) -> None:
        """CTRL, width 4: frequencies 1 and 1 / 100."""
        found = paired_sines_then_cosines((2, 4))
        assert found == pytest.approx(np.array([row(0, 100), row(1, 100)]), abs=1e-6)


def row(position: int, slowest: float) -> list[float]:
    """Of a matrix of width 4 whose frequencies are 1 and 1 / slowest."""
    angles = (position, position / slowest)
    return [*(math.sin(angle) for angle in angles), *(math.cos(angle) for angle in angles)]
