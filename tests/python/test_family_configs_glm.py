"""Configs of GLM, MiniMax, dots, DBRX and others: old spellings, and values that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import ConfigError
from onward.load.architectures import names_of, read_spec, tensor_plan
from onward.spec import DecoderSpec

SIZES = {
    **{"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4},
    **{"intermediate_size": 48, "vocab_size": 10, "head_dim": 8, "num_key_value_heads": 2},
}
EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
DOTS = {**SIZES, **EXPERTS, "n_shared_experts": 1}
MINIMAX = {**SIZES, "num_local_experts": 8, "num_experts_per_tok": 2}
LATENT = {
    **{"kv_lora_rank": 16, "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4},
    **{**SIZES, "v_head_dim": 8, "num_key_value_heads": 4},
}
DBRX = {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 10}


def spec_of(model_type: str, sizes: dict[str, Any], **fields: Any) -> DecoderSpec:
    return read_spec({"model_type": model_type, **sizes, **fields})


@pytest.mark.parametrize(
    ("model_type", "sizes", "field", "value", "expected"),
    [
        ("glm4_moe", {**SIZES, **EXPERTS}, "moe_layer_freq", 2, "from 1 to 1"),
        ("glm4_moe", {**SIZES, **EXPERTS}, "scoring_func", "softmax", "one of sigmoid"),
        ("glm4_moe", {**SIZES, **EXPERTS}, "topk_method", "greedy", "one of noaux_tc"),
        ("glm4_moe", {**SIZES, **EXPERTS}, "n_group", 3, "at least 2 of the 8 experts"),
        ("glm4_moe", {**SIZES, **EXPERTS}, "n_group", 8, "at least 2 of the 8 experts"),
        ("glm4_moe", {**SIZES, **EXPERTS}, "topk_group", 2, "from 1 to 1"),
        ("dots1", DOTS, "n_shared_experts", None, "missing"),
        ("sarvam_moe", {**SIZES, **EXPERTS}, "use_bias", True, "false"),
        ("minimax_m2", MINIMAX, "use_routing_bias", False, "true"),
        ("minimax_m2", MINIMAX, "use_qk_norm", False, "true"),
        ("minimax_m2", MINIMAX, "qk_norm_type", "per_head", "one of per_layer"),
        ("minimax_m2", MINIMAX, "attn_type_list", [1, 0, 1], "from 1 to 1"),
        ("minimax_m2", MINIMAX, "shared_intermediate_size", 16, "does not know"),
        ("glm4_moe_lite", {**LATENT, **EXPERTS}, "rope_interleave", False, "true in this family"),
        ("glm4_moe_lite", {**LATENT, **EXPERTS}, "first_k_dense_replace", 2, "from 1 to 1"),
        ("sarvam_mla", {**LATENT, **EXPERTS}, "rope_interleave", False, "true in this family"),
        ("youtu", LATENT, "rope_interleave", False, "true in this family"),
        ("minicpm3", LATENT, "scale_depth", 0, "a number from"),
        ("internlm3", SIZES, "qkv_bias", True, "the value of bias, false"),
        ("nanochat", SIZES, "final_logit_softcapping", -1.0, "a number from"),
        ("dbrx", DBRX, "tie_word_embeddings", True, "false"),
        ("dbrx", DBRX, "ffn_config", {"moe_normalize_expert_weights": 2.0}, "1 or null"),
        ("dbrx", DBRX, "ffn_config", {"ffn_act_fn": {"name": "tanh"}}, "one of silu"),
        ("dbrx", DBRX, "ffn_config", {"ffn_act_fn": {"name": "silu", "beta": 2}}, "not know"),
        ("dbrx", DBRX, "attn_config", {"qk_ln": True}, "not know"),
    ],
)
def test_values_that_are_refused(
    model_type: str, sizes: dict[str, Any], field: str, value: object, expected: str
) -> None:
    spec_of(model_type, sizes)
    with pytest.raises(ConfigError, match=rf"config\.json: .*{expected}"):
        spec_of(model_type, {**sizes, field: value})


def test_fields_that_are_absent() -> None:
    """The families' own numbers of key heads, shares of rotation, bases and soft-caps."""
    short = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
    glm = spec_of("glm", short)
    assert (glm.num_kv_heads, glm.qkv_bias, glm.norm_eps) == (2, True, 1.5625e-7)
    assert [frequency != 0 for frequency in glm.rope.inv_freq] == [True, True, False, False]
    assert spec_of("glm4_moe", {**short, **EXPERTS, "num_attention_heads": 8}).num_kv_heads == 8
    assert spec_of("dots1", {**DOTS, "num_key_value_heads": None}).num_kv_heads == 4
    many = {**short, **EXPERTS, "n_shared_experts": 1, "num_attention_heads": 64}
    assert spec_of("dots1", many).num_kv_heads == 32
    assert spec_of("nanochat", SIZES).logit_softcap == 15
    assert spec_of("nanochat", SIZES, final_logit_softcapping=None).logit_softcap == 0
    assert all(spec_of("sarvam_moe", {**SIZES, **EXPERTS}).rope.inv_freq)
    assert spec_of("solar_open", {**SIZES, **EXPERTS, "intermediate_size": None}).layer_experts


def test_rotation_of_apertus_where_the_config_has_none() -> None:
    absent = spec_of("apertus", SIZES).rope
    section = {
        **{"rope_type": "llama3", "rope_theta": 1.2e7, "factor": 8.0},
        **{"original_max_position_embeddings": 8192},
        **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    }
    assert absent == spec_of("apertus", SIZES, rope_parameters=section).rope
    plain = spec_of("apertus", SIZES, rope_parameters={"rope_type": "default"})
    assert absent != plain.rope


def test_old_spellings() -> None:
    sarvam = spec_of(
        "sarvam_moe", SIZES, num_experts=8, num_shared_experts=2, use_qkv_bias=True,
        moe_intermediate_size=16,
    )  # fmt: skip
    assert (sarvam.experts.count, sarvam.experts.shared_size, sarvam.qkv_bias) == (8, 32, True)
    half = spec_of("minimax_m2", MINIMAX, rotary_dim=4)
    share = {"rope_theta": 5e6, "partial_rotary_factor": 0.5}
    assert half.rope == spec_of("minimax_m2", MINIMAX, rope_parameters=share).rope
    assert half.rope.inv_freq[2:] == (0, 0)
    internlm = spec_of("internlm3", SIZES, qkv_bias=True, bias=True)
    assert internlm.qkv_bias and internlm.output_bias and internlm.mlp_bias


def test_multipliers_of_minicpm3() -> None:
    """Those of MiniCPM3-4B where they are absent, none where they are null."""
    sizes = {**LATENT, "num_hidden_layers": 4, "v_head_dim": None}
    spec = spec_of("minicpm3", sizes)
    assert (spec.embedding_scale, spec.residual_scale, spec.logit_scale) == (12, 0.7, 8)
    assert spec.latent.value_dim == 8
    null = spec_of("minicpm3", sizes, scale_depth=None, dim_model_base=None)
    assert (null.residual_scale, null.logit_scale) == (1, 1)


def test_first_config_of_sarvam_105b() -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 64, "mscale_all_dim": 1.0}
    sizes = {**LATENT, **EXPERTS, "max_position_embeddings": 256}
    old = spec_of("sarvam_mla", sizes, rope_scaling={**yarn, "type": "deepseek_yarn"})
    new = spec_of("sarvam_mla", sizes, rope_parameters={**yarn, "rope_type": "yarn"})
    assert old == new and old.rope != spec_of("sarvam_mla", sizes).rope


def test_dense_layers_of_glm4_moe_lite() -> None:
    sizes = {**LATENT, **EXPERTS}
    assert spec_of("glm4_moe_lite", sizes).layer_experts == (0, 1, 1)
    kinds = ["sparse", "dense", "sparse"]
    assert spec_of("glm4_moe_lite", sizes, mlp_layer_types=kinds).layer_experts == (1, 0, 1)


def test_windows_of_dots() -> None:
    assert spec_of("dots1", DOTS).windows == ()
    assert spec_of("dots1", DOTS, max_window_layers=1).windows == (0, 4096, 4096)
    assert spec_of("dots1", DOTS, max_window_layers=1, sliding_window=None).windows == ()
    kinds = ["sliding_attention", "full_attention", "full_attention"]
    assert spec_of("dots1", DOTS, layer_types=kinds, sliding_window=7).windows == (7, 0, 0)
    with pytest.raises(ConfigError, match="layer_types names sliding_attention"):
        spec_of("dots1", DOTS, layer_types=kinds, sliding_window=None)


def test_rotation_base_of_dbrx() -> None:
    """The base of attn_config stands for that of an absent rope section."""
    old = {"clip_qkv": 8, "kv_n_heads": 2, "rope_theta": 500000}
    assert spec_of("dbrx", DBRX, attn_config=old).rope.theta == 500000
    section = {"rope_type": "default", "rope_theta": 1e4}
    assert spec_of("dbrx", DBRX, attn_config=old, rope_parameters=section).rope.theta == 1e4
    assert spec_of("dbrx", DBRX, attn_config=old).num_kv_heads == 2


def test_stacked_experts_of_dbrx() -> None:
    """Expert 1 has the rows 3 to 5 of the three matrices; w2 is transposed."""
    ffn = {"ffn_hidden_size": 3, "moe_num_experts": 2}
    plan = {p.name: p.parts for p in tensor_plan(spec_of("dbrx", DBRX, ffn_config=ffn))}
    gate, up = plan["layers.0.experts_gate_up"][2:]
    down = plan["layers.0.experts_down"][1]
    assert [part.tensor.rpartition(".")[2] for part in (gate, up, down)] == ["w1", "v1", "w2"]
    assert {part.stored for part in (gate, up, down)} == {(6, 32)}
    assert gate.rows == up.rows == down.columns == range(3, 6)
    assert down.transposed and down.shape == (32, 3)


def test_layers_that_predict_further_tokens() -> None:
    spec = spec_of("glm4_moe", {**SIZES, **EXPERTS, "num_nextn_predict_layers": 1})
    assert names_of(spec).is_ignored("model.layers.3.eh_proj.weight", spec.num_layers)
    assert not names_of(spec).is_ignored("model.layers.2.eh_proj.weight", spec.num_layers)


def test_dynamic_rotation_of_partly_rotated_heads_is_refused() -> None:
    section = {"rope_type": "dynamic", "factor": 2.0}
    spec_of("glm", SIZES, rope_parameters=section, partial_rotary_factor=1.0)
    with pytest.raises(ConfigError, match="is dynamic, which this version computes for heads"):
        spec_of("glm", SIZES, rope_parameters=section)
