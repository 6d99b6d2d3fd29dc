"""The metadata of a GGUF file for each type, as llama.cpp's converter writes it."""

from __future__ import annotations

import math
from typing import Any

import gguf

ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "smollm3": "smollm3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "granite": "granite",
    "granitemoe": "granitemoe",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "olmoe": "olmoe",
    "starcoder2": "starcoder2",
    "gpt_bigcode": "starcoder",
    "gpt2": "gpt2",
    "gpt_neox": "gptneox",
    "bloom": "bloom",
    "mpt": "mpt",
    "falcon": "falcon",
    "stablelm": "stablelm",
    "nemotron": "nemotron",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "ernie4_5": "ernie4_5",
    "gpt_oss": "gpt-oss",
    "seed_oss": "seed_oss",
    "arcee": "arcee",
    "glm4": "glm4",
    "hunyuan_v1_dense": "hunyuan-dense",
    "granitemoeshared": "granitemoe",
    "phi": "phi2",
    "phi3": "phi3",
    "cohere": "command-r",
    "cohere2": "cohere2",
}
"""The type of transformers -> general.architecture."""

# Fields that a file cannot say: what the architecture decides, or the converter leaves out.
SLIDING = "sliding_attention"
_GEMMA = {"tie_word_embeddings": True, "query_pre_attn_scalar": 16}
_GRANITE = {
    "attention_multiplier": 0.0625,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
}
CHANGES: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "phi": {"num_key_value_heads": 4},  # the converter knows no other
    "phi3": {"sliding_window": None, "partial_rotary_factor": 0.5},  # llama.cpp has no window
    # llama.cpp reads norms of q and k in models of 64 layers alone.
    "cohere": {"tie_word_embeddings": True, "use_qk_norm": False},
    "cohere2": {"tie_word_embeddings": True},
    "mixtral": {"sliding_window": None},
    "starcoder2": {"sliding_window": None},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False},
    # llama.cpp opens no files with these biases.
    "seed_oss": {"attention_out_bias": False, "mlp_bias": False},
    "arcee": {"attention_bias": False, "mlp_bias": False},
    "ernie4_5": {"use_bias": False},
    "gemma": {"tie_word_embeddings": True},
    "gemma2": _GEMMA,
    "gemma3_text": {
        **_GEMMA,
        "num_hidden_layers": 7,
        "layer_types": [*[SLIDING] * 5, "full_attention", SLIDING],
    },
    "granite": _GRANITE,
    "granitemoe": _GRANITE,
    "granitemoeshared": {**_GRANITE, "shared_intermediate_size": 48},
    "gpt2": {"tie_word_embeddings": True, "n_inner": 256},
    "gpt_bigcode": {"tie_word_embeddings": True, "n_inner": 256},
    "bloom": {"tie_word_embeddings": True},
    "mpt": {"tie_word_embeddings": True},
    "olmoe": {"num_key_value_heads": 4},  # llama.cpp opens no other
    # A file has experts in all layers.
    "qwen2_moe": {"use_sliding_window": False, "norm_topk_prob": False, "mlp_only_layers": []},
    "qwen3_moe": {"use_sliding_window": False, "norm_topk_prob": True, "mlp_only_layers": []},
}
_MULTIPLIERS = {
    "attention_multiplier": "attention_scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}
_LAYER_NORM = ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps")
_WITHOUT_ROPE = ("gpt2", "gpt_bigcode", "bloom", "mpt")
# The converter leaves the base out, which is the program's default.
_WITHOUT_BASE = ("phi", "gemma", "gemma2", "gpt_neox", "falcon", "stablelm")
_PARTIAL = ("phi", "phi3", "gpt_neox", "stablelm", "nemotron", "glm4")

_WITH_EXPERTS = (
    *("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "granitemoeshared", "gpt_oss"),
)


def write_keys(writer: Any, model_type: str, config: Any, said: dict[str, Any]) -> None:
    """``config`` is the class of transformers with its defaults; ``said`` is config.json."""
    architecture = ARCHITECTURES[model_type]
    heads, hidden = config.num_attention_heads, config.hidden_size
    head_dim = said.get("head_dim") if not model_type.startswith("granite") else None
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(getattr(config, "max_position_embeddings", 256))
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", None) or 4 * hidden)
    writer.add_head_count(heads)
    _write_kv_heads(writer, model_type, config)
    if head_dim is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    _write_eps(writer, model_type, config)
    if model_type not in _WITHOUT_ROPE:
        _write_rope(writer, model_type, config, head_dim or hidden // heads)
    if architecture in ("llama", "smollm3", "granite", "granitemoe", "arcee"):
        writer.add_vocab_size(config.vocab_size)
        writer.add_rope_dimension_count(head_dim or hidden // heads)
    _write_experts(writer, model_type, config)
    for field, name in _MULTIPLIERS.items():
        if model_type.startswith("granite"):
            getattr(writer, f"add_{name}")(getattr(config, field))
    _write_attention(writer, model_type, config)


def _write_kv_heads(writer: Any, model_type: str, config: Any) -> None:
    if model_type in ("gpt_bigcode", "falcon"):
        writer.add_head_count_kv(getattr(config, "num_kv_heads", 1))
    elif model_type not in ("gpt2", "gpt_neox", "mpt"):
        writer.add_head_count_kv(getattr(config, "num_key_value_heads", config.num_attention_heads))


def _write_eps(writer: Any, model_type: str, config: Any) -> None:
    rms = getattr(config, "rms_norm_eps", None)
    if rms is not None:
        writer.add_layer_norm_rms_eps(rms)
    elif model_type in ("olmo", "mpt"):
        writer.add_layer_norm_eps(1e-5)
    else:
        found = (getattr(config, name, None) for name in _LAYER_NORM)
        writer.add_layer_norm_eps(next(value for value in found if value is not None))


def _write_rope(writer: Any, model_type: str, config: Any, head_dim: int) -> None:
    rope = config.rope_parameters
    whole = rope.get("full_attention", rope)
    base = whole["rope_theta"]
    if model_type == "hunyuan_v1_dense":
        base *= whole["alpha"] ** (head_dim / (head_dim - 2))
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        writer.add_rope_scaling_factor(1)
    if model_type not in _WITHOUT_BASE:
        writer.add_rope_freq_base(base)
    if model_type == "gemma3_text":
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    if model_type in _PARTIAL:
        writer.add_rope_dimension_count(int(whole["partial_rotary_factor"] * head_dim))
    if model_type == "phi3" and "long_factor" in whole:
        original = whole["original_max_position_embeddings"]
        scale = config.max_position_embeddings / original
        stretched = math.log(scale) / math.log(original) if scale > 1 else 0.0
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + stretched))
    if whole.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(whole["factor"])
        writer.add_rope_scaling_orig_ctx_len(whole["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_beta_fast(whole["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(whole["beta_slow"])


def _write_experts(writer: Any, model_type: str, config: Any) -> None:
    if model_type not in _WITH_EXPERTS:
        return
    own = "num_local_experts" if hasattr(config, "num_local_experts") else "num_experts"
    writer.add_expert_count(getattr(config, own))
    writer.add_expert_used_count(config.num_experts_per_tok)
    if model_type == "gpt_oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if model_type in ("qwen2_moe", "qwen3_moe"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if model_type == "granitemoeshared":
        writer.add_expert_shared_feed_forward_length(config.shared_intermediate_size)
    if model_type == "qwen2_moe":
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def _write_attention(writer: Any, model_type: str, config: Any) -> None:
    if model_type in ("gemma2", "gemma3_text", "olmo3", "gpt_oss", "cohere2"):
        writer.add_sliding_window(config.sliding_window)
    if model_type == "olmo3":
        writer.add_sliding_window_pattern([kind == SLIDING for kind in config.layer_types])
    if model_type == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if model_type == "olmo" and config.clip_qkv is not None:
        writer.add_clamp_kqv(config.clip_qkv)
    if model_type == "mpt":
        if config.attn_config.clip_qkv is not None:
            writer.add_clamp_kqv(config.attn_config.clip_qkv)
        writer.add_max_alibi_bias(config.attn_config.alibi_bias_max)
    if model_type in ("cohere", "cohere2"):
        writer.add_logit_scale(config.logit_scale)
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if model_type == "falcon":
        writer.add_tensor_data_layout("jploski")
    if model_type in ("gpt_neox", "stablelm"):
        writer.add_parallel_residual(config.use_parallel_residual)
