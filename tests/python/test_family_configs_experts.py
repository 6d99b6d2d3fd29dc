"""Configs of Qwen, OLMo, Granite, ERNIE, HunYuan and their relatives: old spellings, files of other
layouts, and values that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onward.errors import ConfigError
from onward.load.architectures import names_of, read_spec, tensor_plan
from onward.load.architectures.parts import Shape
from onward.spec import DecoderSpec

SIZES = {
    **{"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3, "head_dim": 8},
    **{"intermediate_size": 32, "vocab_size": 10, "num_key_value_heads": 1},
}
EXPERTS = {**SIZES, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
ERNIE = {**SIZES, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 16}
HUNYUAN = {**SIZES, "num_experts": 4, "moe_topk": 2}


def spec_of(model_type: str, sizes: dict[str, Any], **fields: Any) -> DecoderSpec:
    return read_spec({"model_type": model_type, **sizes, **fields})


@pytest.mark.parametrize(
    ("model_type", "sizes", "field", "value", "expected"),
    [
        ("olmoe", SIZES, "clip_qkv", 8.0, "null"),
        ("qwen3_moe", EXPERTS, "mlp_only_layers", [0, "1"], "an integer from 0"),
        ("qwen3_moe", EXPERTS, "mlp_only_layers", 1, "a list of integers"),
        ("ernie4_5_moe", ERNIE, "use_bias", True, "no bias for shared experts"),
        ("ernie4_5_moe", ERNIE, "moe_norm_min", 0.5, "a number from 0 to 1e-06"),
        ("ernie4_5_moe", ERNIE, "moe_gate", "sinkhorn", "one of topk"),
        ("hunyuan_v1_dense", SIZES, "use_qk_norm", False, "true"),
        ("hunyuan_v1_dense", SIZES, "use_cla", True, "false"),
        ("hunyuan_v1_moe", HUNYUAN, "moe_topk", [2, 1, 2, 2], "the same number in all layers"),
        ("hunyuan_v1_moe", HUNYUAN, "num_experts", [4, 4, 4, 2], "the same number in all layers"),
        ("hunyuan_v1_moe", HUNYUAN, "num_shared_expert", [2, 2, 2, 2], "an integer from 1 to 1"),
        ("hy_v3", EXPERTS, "mlp_bias", True, "no bias for shared experts"),
        ("hy_v3", EXPERTS, "mlp_layer_types", ["dense"], "a list of 4"),
        ("iquestcoder", SIZES, "clip_qkv", 8.0, "null"),
        ("iquestcoder", SIZES, "use_sliding_window", True, "false"),
        ("afmoe", EXPERTS, "n_group", 2, "an integer from 1 to 1"),
        ("afmoe", EXPERTS, "score_func", "softmax", "one of sigmoid"),
        ("aria_text", SIZES, "mlp_bias", True, "no bias for shared experts"),
        ("granite_swa", SIZES, "layer_rope_theta", [1e4], "a list of 4"),
        ("granite_swa", SIZES, "rope_parameters", {"rope_type": "other"}, "one of"),
        ("apertus1p5_text", SIZES, "output_vocab_size", 5, "vocab_size"),
        ("jais2", SIZES, "hidden_act", "tanh", "one of"),
    ],
)
def test_values_that_are_refused(
    model_type: str, sizes: dict[str, Any], field: str, value: object, expected: str
) -> None:
    spec_of(model_type, sizes)
    with pytest.raises(ConfigError, match=rf"config\.json: {field}.*{expected}"):
        spec_of(model_type, {**sizes, field: value})


def test_heads_of_keys_where_the_config_has_none() -> None:
    """Absent: the default of the family. Null: one for each query head."""
    sizes = {key: value for key, value in SIZES.items() if key != "num_key_value_heads"}
    sizes["num_attention_heads"] = 16
    for model_type, expected in (("ernie4_5", 2), ("seed_oss", 8), ("jais2", 16)):
        assert spec_of(model_type, sizes).num_kv_heads == expected
        assert spec_of(model_type, sizes, num_key_value_heads=None).num_kv_heads == 16


def test_layers_with_experts() -> None:
    step = spec_of("qwen3_moe", EXPERTS, decoder_sparse_step=2, mlp_only_layers=[3])
    assert step.layer_experts == (0, 1, 0, 0)
    assert spec_of("flint", EXPERTS).layer_experts == (0, 0, 1, 1)
    assert spec_of("flint", EXPERTS, mlp_only_layers=[]).layer_experts == (1, 1, 1, 1)
    ernie = spec_of("ernie4_5_moe", ERNIE, moe_layer_start_index=0, moe_layer_interval=2)
    assert ernie.layer_experts == (0, 1, 0, 1)
    assert spec_of("hy_v3", EXPERTS).layer_experts == (0, 1, 1, 1)
    kinds = ["sparse", "dense", "sparse", "dense"]
    assert spec_of("mellum", EXPERTS, mlp_layer_types=kinds).layer_experts == (1, 0, 1, 0)
    assert spec_of("afmoe", EXPERTS, num_dense_layers=2).layer_experts == (0, 0, 1, 1)


def test_windows_and_rotations_by_layer() -> None:
    """The defaults of the families, where the config has no list."""
    assert spec_of("qwen2_moe", EXPERTS, use_sliding_window=True).windows == (4096, 0, 4096, 0)
    assert spec_of("qwen3_moe", EXPERTS, use_sliding_window=True).windows == (4096,) * 4
    assert spec_of("granite_swa", SIZES).windows == (0, 128, 128, 128)
    flint = spec_of("flint", {**EXPERTS, "num_hidden_layers": 8})
    assert flint.windows == (0, 0, 513, 513, 513, 0, 513, 0)
    assert flint.layer_ropes == (-1, -1, 0, 0, 0, -1, 0, -1)
    afmoe = spec_of("afmoe", EXPERTS, global_attn_every_n_layers=2)
    assert afmoe.windows == (1024, 0, 1024, 0)
    assert afmoe.layer_ropes == (0, -1, 0, -1)
    assert spec_of("mellum", EXPERTS).windows == ()


def test_a_base_of_rotation_for_each_layer() -> None:
    spec = spec_of("granite_swa", SIZES, layer_rope_theta=[1e4, 0, 16, 1e4])
    assert spec.layer_ropes == (1, -1, 0, 1)
    assert spec.rope.inv_freq == pytest.approx((1, 0.5, 0.25, 0.125))
    assert spec.other_ropes[0].inv_freq == pytest.approx((1, 0.1, 0.01, 0.001))
    assert spec_of("granite_swa", SIZES, layer_rope_theta=[0] * 4).layer_ropes == (-1,) * 4


def test_rotation_of_old_olmo_3_files() -> None:
    """rope_theta and rope_scaling are of the layers without a window; the others have the base
    500000."""
    section = {"rope_type": "linear", "factor": 2.0}
    spec = spec_of("olmo3", SIZES, rope_theta=16.0, rope_scaling=section)
    assert spec.layer_ropes == (1, 1, 1, 0)
    assert spec.rope.inv_freq == pytest.approx((0.5, 0.25, 0.125, 0.0625))
    assert spec.other_ropes[0].inv_freq[2] == pytest.approx(500000**-0.5)


def test_alpha_of_hunyuan_scales_the_base() -> None:
    """As in the published files: the other fields of the section change nothing."""
    section = {
        **{"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0},
        **{"mscale_all_dim": 1.0, "type": "dynamic"},
    }
    spec = spec_of("hunyuan_v1_dense", SIZES, rope_theta=10.0, rope_scaling=section)
    assert spec.rope.inv_freq[1] == pytest.approx((10 * 1000 ** (8 / 6)) ** -0.25)
    assert spec.rope.dynamic_factor == 0
    with pytest.raises(ConfigError, match=r"rope_scaling\.other is 2"):
        spec_of("hunyuan_v1_dense", SIZES, rope_scaling={**section, "other": 2})
    dynamic = {"type": "dynamic", "factor": 2.0}
    assert spec_of("hunyuan_v1_dense", SIZES, rope_scaling=dynamic).rope.dynamic_factor == 2


def test_multipliers_of_the_logits() -> None:
    """Granite divides by logits_scaling, HyperCLOVA X multiplies by it."""
    assert spec_of("granite_swa", SIZES, logits_scaling=4.0).logit_scale == 0.25
    hyperclovax = spec_of("hyperclovax", SIZES, logits_scaling=4.0)
    assert (hyperclovax.logit_scale, hyperclovax.attention.scale) == (4.0, 0.0)


def test_lists_with_one_value_for_all_layers() -> None:
    lists = {
        **{"moe_topk": [2] * 4, "num_experts": [4] * 4, "num_shared_expert": [1] * 4},
        "moe_intermediate_size": [32] * 4,
    }
    assert spec_of("hunyuan_v1_moe", {**SIZES, **lists}) == spec_of("hunyuan_v1_moe", HUNYUAN)


def test_shared_experts() -> None:
    assert spec_of("ernie4_5_moe", ERNIE).experts.shared_size == 32
    assert spec_of("hy_v3", EXPERTS, num_shared_experts=2).experts.shared_size == 32
    # Without a number of shared experts, the reference library makes one as large as the MLP.
    assert spec_of("hy_v3", EXPERTS, num_shared_experts=0).experts.shared_size == 32
    assert spec_of("granitemoe_swa", SIZES).experts.shared_size == 0


def test_old_vision_configs_have_the_text_model_at_the_top() -> None:
    """As the files of Qwen 2 VL and 2.5 VL."""
    flat = {
        **{"vision_config": {"depth": 2, "hidden_size": 16}, "tie_word_embeddings": True},
        **{"image_token_id": 3, "vision_start_token_id": 4, "use_sliding_window": False},
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
    }
    sizes = {key: value for key, value in SIZES.items() if key != "head_dim"}
    for outer in ("qwen2_vl", "qwen2_5_vl"):
        spec = spec_of(outer, sizes, **flat)
        assert (spec.architecture, spec.qkv_bias, spec.tied_head) == ("qwen2_vl_text", True, True)
        text = {**sizes, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}}
        assert spec == spec_of(outer, {}, text_config=text, tie_word_embeddings=True)
    with pytest.raises(ConfigError, match="text_config is missing"):
        spec_of("qwen3_vl", {}, vision_config={})


def test_layout_of_the_experts_follows_the_file() -> None:
    """The published files of Qwen 3 VL MoE have the matrices of experts transposed, files of the
    reference library do not; both under one name."""
    spec = spec_of("qwen3_vl_moe_text", EXPERTS)
    prefix = "model.layers.0.mlp.experts."
    for turned in (True, False):
        shapes: dict[str, Shape] = {
            "model.embed_tokens.weight": (10, 24),
            f"{prefix}gate_up_proj": (4, 24, 32) if turned else (4, 32, 24),
            f"{prefix}down_proj": (4, 16, 24) if turned else (4, 24, 16),
        }
        plan = {
            planned.name: planned
            for planned in tensor_plan(spec, shapes, lambda name, of=shapes: ("F32", of[name]))
        }
        for name in ("experts_gate_up", "experts_down"):
            for part in plan[f"layers.0.{name}"].parts:
                assert (part.transposed, part.stored) == (turned, shapes[part.tensor])
        up = plan["layers.0.experts_gate_up"].parts[3]
        assert (up.slice, up.shape) == (1, (16, 24))
        assert np.array_equal(np.asarray(up.rows), np.arange(16, 32))


def test_tensors_that_predict_further_tokens_are_not_read() -> None:
    names = names_of(spec_of("hy_v3", EXPERTS))
    for name, ignored in (
        ("model.layers.4.self_attn.q_proj.weight", True),
        ("model.layers.3.other.weight", False),
        ("model.layers.10.other.weight", True),
        ("mtp.layers.0.mlp.up_proj.weight", True),
        ("model.mtp_block.0.mlp.up_proj.weight", True),
        ("model.other.weight", False),
    ):
        assert names.is_ignored(name, 4) == ignored, name
    llama = names_of(spec_of("llama", SIZES))
    assert not llama.is_ignored("model.layers.4.self_attn.q_proj.weight", 4)


@pytest.mark.parametrize(
    ("model_type", "sizes", "weight", "spellings"),
    [
        (
            "hy_v3",
            EXPERTS,
            "layers.1.router_correction",
            ("mlp.expert_bias", "mlp.e_score_correction_bias"),
        ),
        ("hy_v3", EXPERTS, "layers.1.router", ("mlp.router.gate.weight", "mlp.gate.weight")),
        (
            "granitemoe",
            SIZES,
            "layers.1.experts_down",
            ("block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj"),
        ),
        (
            "ernie4_5_moe",
            ERNIE,
            "layers.1.router_correction",
            (
                "mlp.moe_statics.e_score_correction_bias",
                "mlp.gate.moe_statics.e_score_correction_bias",
            ),
        ),
        ("flint", EXPERTS, "layers.1.sink_logits", ("self_attn.softmax_offset", "self_attn.sinks")),
        (
            "aria_text",
            SIZES,
            "layers.1.experts_down",
            ("mlp.experts.fc2.weight", "mlp.experts.down_proj"),
        ),
    ],
)
def test_spellings_of_tensors(
    model_type: str, sizes: dict[str, Any], weight: str, spellings: tuple[str, ...]
) -> None:
    spec = spec_of(model_type, sizes)
    for spelling in spellings:
        stored = {"model.embed_tokens.weight", f"model.layers.1.{spelling}"}
        plan = {planned.name: planned for planned in tensor_plan(spec, stored)}
        assert plan[weight].sources[0] == f"model.layers.1.{spelling}"


def test_emu3_has_its_head_below_the_text_model() -> None:
    """In published files; files of the reference library have it at the top."""
    spec = spec_of("emu3_text_model", SIZES)
    for root, head in (("text_model.model.", "text_model."), ("model.text_model.", "")):
        plan = tensor_plan(spec, {f"{root}embed_tokens.weight"})
        sources = {planned.name: planned.sources for planned in plan}
        assert sources["head"] == (f"{head}lm_head.weight",)
        assert sources["layers.0.o"] == (f"{root}layers.0.self_attn.o_proj.weight",)


_ERNIE_21B = {
    **{"hidden_size": 2560, "intermediate_size": 12288, "moe_intermediate_size": 1536},
    **{"num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 4},
    **{"head_dim": 128, "moe_num_experts": 64, "moe_num_shared_experts": 2, "moe_k": 6},
    **{"moe_layer_start_index": 1, "moe_layer_end_index": 27, "moe_layer_interval": 1},
    **{"vocab_size": 103424, "tie_word_embeddings": True, "moe_capacity": [64, 64, 64]},
    **{"moe_gate": "topk", "moe_use_aux_free": True, "num_nextn_predict_layers": 1},
    **{"rope_theta": 500000, "use_bias": False, "hidden_act": "silu"},
}
_GRANITE_1B = {
    **{"attention_bias": False, "attention_multiplier": 0.015625, "embedding_multiplier": 12.0},
    **{"hidden_size": 1024, "intermediate_size": 512, "logits_scaling": 6.0},
    **{"num_attention_heads": 16, "num_experts_per_tok": 8, "num_hidden_layers": 24},
    **{"num_key_value_heads": 8, "num_local_experts": 32, "residual_multiplier": 0.22},
    **{"rope_scaling": None, "rope_theta": 1500000.0, "router_aux_loss_coef": 0.001},
    **{"tie_word_embeddings": True, "vocab_size": 49152, "max_position_embeddings": 131072},
}
_HUNYUAN_A13B = {
    **{"attention_head_dim": 128, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 3072},
    **{"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8},
    **{"num_experts": 64, "moe_intermediate_size": [3072] * 32, "moe_topk": [8] * 32},
    **{"num_shared_expert": [1] * 32, "use_mixed_mlp_moe": True, "moe_layer_num_skipped": 0},
    **{"use_qk_norm": True, "use_cla": False, "cla_share_factor": 2, "vocab_size": 128167},
    **{"use_rotary_pos_emb": True, "norm_type": "rms", "tie_word_embeddings": True},
    "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0,
                     "mscale": 1.0, "mscale_all_dim": 1.0, "type": "dynamic"},
}  # fmt: skip
_HY_3 = {
    **{"num_hidden_layers": 80, "num_nextn_predict_layers": 1, "hidden_size": 4096},
    **{"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "qk_norm": True},
    **{"vocab_size": 120832, "intermediate_size": 13312, "first_k_dense_replace": 1},
    **{"num_experts": 192, "num_experts_per_tok": 8, "num_shared_experts": 1},
    **{"expert_hidden_dim": 1536, "moe_intermediate_size": 1536, "router_scaling_factor": 2.826},
    "rope_parameters": {"rope_type": "default", "rope_theta": 11158840.0},
}
_QWEN3_VL_30B = {
    **{"image_token_id": 151655, "tie_word_embeddings": False, "vision_config": {"depth": 27}},
    "text_config": {
        **{"attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128},
        **{"hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 262144},
        **{"mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": True},
        **{"num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8},
        **{"num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-06},
        **{"rope_theta": 5000000, "vocab_size": 151936, "model_type": "qwen3_vl_moe"},
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20],
                         "rope_type": "default"},
    },
}  # fmt: skip
_TRINITY_NANO = {
    **{"global_attn_every_n_layers": 4, "head_dim": 128, "hidden_size": 1024},
    **{"intermediate_size": 3072, "moe_intermediate_size": 256, "mup_enabled": True},
    **{"n_group": 1, "num_attention_heads": 8, "num_dense_layers": 2, "num_expert_groups": 1},
    **{"num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 56},
    **{"num_key_value_heads": 2, "num_limited_groups": 1, "num_shared_experts": 1},
    **{"rope_scaling": None, "rope_theta": 10000, "route_norm": True, "route_scale": 2.826},
    **{"score_func": "sigmoid", "sliding_window": 2048, "topk_group": 1, "use_grouped_mm": True},
    "vocab_size": 200192,
}


@pytest.mark.parametrize(
    ("model_type", "published", "experts"),
    [
        ("ernie4_5_moe", _ERNIE_21B, (64, 6, 1536, 3072, 27)),
        ("granitemoe", _GRANITE_1B, (32, 8, 512, 0, 24)),
        ("hunyuan_v1_moe", _HUNYUAN_A13B, (64, 8, 3072, 3072, 32)),
        ("hy_v3", _HY_3, (192, 8, 1536, 1536, 79)),
        ("qwen3_vl_moe", _QWEN3_VL_30B, (128, 8, 768, 0, 48)),
        ("afmoe", _TRINITY_NANO, (128, 8, 256, 256, 54)),
    ],
)
def test_configs_of_published_models(
    model_type: str, published: dict[str, Any], experts: tuple[int, ...]
) -> None:
    """With all their fields, also the ones that the reference library does not read."""
    spec = spec_of(model_type, published)
    found = spec.experts
    assert experts == (
        *(found.count, found.chosen, found.intermediate_size, found.shared_size),
        sum(spec.layer_experts),
    )
