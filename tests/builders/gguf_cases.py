"""A tiny model of each family whose GGUF files onward reads."""

from __future__ import annotations

from builders.gguf_families import (
    AFTER,
    BASE,
    GPT2,
    HEADS,
    KV_HEADS,
    LAYER,
    LLAMA,
    NEOX,
    RMS,
    GgufCase,
    by_groups,
    case,
    gpt_oss_experts,
    granite_experts,
    interleaved,
    plus_one,
    turned,
)

_RMS, _LAYER = ("rms_norm_eps", RMS), ("layer_norm_epsilon", LAYER)
_THETA = {"rope_theta": 500.0}
_BASE = {BASE: 500.0}
_MHA = {"num_key_value_heads": ..., "head_dim": ...}
_ONE_SIZE = {"attention.head_count_kv": ..., "attention.key_length": ...}
_EXPERTS = {"expert_count": 4, "expert_used_count": 2}
_MULTIPLIERS = {
    "attention_multiplier": 0.25,
    "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22,
    "logits_scaling": 8.0,
}
_SCALES = {"embedding_scale": 12.0, "residual_scale": 0.22}
_REQUIRED_SCALES = {"attention.scale": 0.25, "logit_scale": 8.0}
_MIXTRAL = {
    **{key: value for key, value in LLAMA.items() if key != ".mlp.gate."},
    ".block_sparse_moe.gate.": ".ffn_gate_inp.",
    ".block_sparse_moe.experts.": ".experts.",
}
_GRANITE_MOE = {
    **LLAMA,
    ".block_sparse_moe.router.layer": ".ffn_gate_inp",
    ".block_sparse_moe.output_linear": ".ffn_down_exps",
    ".shared_mlp.output_linear": ".ffn_down_shexp",
}
_ALIBI = {**_MHA, "max_position_embeddings": ..., "intermediate_size": ...}


def _mixtral_names() -> dict[str, str]:
    experts = {
        f".experts.{expert}.{theirs}.": f".{ours}_exps.{expert}."
        for expert in range(4)
        for theirs, ours in (("w1", "ffn_gate"), ("w2", "ffn_down"), ("w3", "ffn_up"))
    }
    return {**_MIXTRAL, **experts}


def _expert_names() -> dict[str, str]:
    experts = {
        f".mlp.experts.{expert}.{part}_proj.": f".ffn_{part}_exps.{expert}."
        for expert in range(4)
        for part in ("gate", "up", "down")
    }
    shared = {
        f".mlp.shared_expert.{part}_proj": f".ffn_{part}_shexp" for part in ("gate", "up", "down")
    }
    return {**experts, **shared, ".mlp.shared_expert_gate": ".ffn_gate_inp_shexp", **LLAMA}


CASES: dict[str, GgufCase] = {
    "llama": case(
        "llama", "llama", _RMS,
        {"attention_bias": True, "mlp_bias": True, **_THETA},
        optional={**_BASE, "rope.dimension_count": 8, "vocab_size": 16}, convert=interleaved,
    ),
    "mistral": case(
        "mistral", "llama", _RMS, {"sliding_window": 7, **_THETA},
        optional={**_BASE, "attention.sliding_window": 7}, convert=interleaved,
    ),
    "mixtral": case(
        "mixtral", "llama", _RMS,
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None, **_THETA},
        {**_EXPERTS}, _BASE, _mixtral_names(), interleaved,
    ),
    "qwen2": case("qwen2", "qwen2", _RMS, _THETA, optional=_BASE),
    "qwen3": case("qwen3", "qwen3", _RMS, {"attention_bias": True, **_THETA}, optional=_BASE),
    "smollm3": case(
        "smollm3", "smollm3", _RMS, {"num_hidden_layers": 4, **_THETA},
        {"block_count": 4}, _BASE, convert=interleaved,
    ),
    "gemma": case(
        "gemma", "gemma", _RMS, {"tie_word_embeddings": True}, convert=plus_one,
    ),
    "gemma2": case(
        "gemma2", "gemma2", _RMS,
        {"tie_word_embeddings": True, "query_pre_attn_scalar": 8, "sliding_window": 7,
         "attn_logit_softcapping": 20.0, "final_logit_softcapping": 10.0},
        optional={"attention.sliding_window": 7, "attn_logit_softcapping": 20.0,
                  "final_logit_softcapping": 10.0},
        names={**LLAMA, **AFTER}, convert=plus_one,
    ),
    "gemma3": case(
        "gemma3_text", "gemma3", _RMS,
        {"tie_word_embeddings": True, "query_pre_attn_scalar": 8, "sliding_window": 7,
         "num_hidden_layers": 7, "rope_theta": 500.0, "rope_local_base_freq": 100.0,
         "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        {"block_count": 7},
        {**_BASE, "rope.freq_base_swa": 100.0, "attention.sliding_window": 7,
         "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
        names={**LLAMA, **AFTER}, convert=plus_one,
    ),
    "granite": case(
        "granite", "granite", _RMS, {**_MULTIPLIERS, **_THETA}, _REQUIRED_SCALES,
        {**_BASE, **_SCALES}, convert=interleaved,
    ),
    "granitemoe": case(
        "granitemoe", "granitemoe", _RMS,
        {"num_local_experts": 4, "num_experts_per_tok": 2, **_MULTIPLIERS, **_THETA},
        {**_EXPERTS, **_REQUIRED_SCALES}, {**_BASE, **_SCALES},
        _GRANITE_MOE, granite_experts,
    ),
    "olmo": case(
        "olmo", "olmo", ("unused", "unused"), {"unused": ..., "clip_qkv": 4.0, **_THETA},
        {"unused": ...}, {**_BASE, "attention.clamp_kqv": 4.0, LAYER: 1e-5}, convert=interleaved,
    ),
    "olmo2": case(
        "olmo2", "olmo2", _RMS, _THETA, optional=_BASE, names={**LLAMA, **AFTER},
    ),
    "olmo3": case(
        "olmo3", "olmo2", _RMS,
        {"sliding_window": 7, "layer_types":
         ["full_attention", "sliding_attention", "full_attention"], **_THETA},
        optional={**_BASE, "attention.sliding_window": 7,
                  "attention.sliding_window_pattern": [False, True, False]},
        names={**LLAMA, **AFTER},
    ),
    "olmoe": case(
        "olmoe", "olmoe", _RMS, {"num_experts": 4, "num_experts_per_tok": 2, **_THETA},
        _EXPERTS, _BASE, _expert_names(),
    ),
    "qwen2_moe": case(
        "qwen2_moe", "qwen2moe", _RMS,
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
         "shared_expert_intermediate_size": 40, **_THETA},
        {**_EXPERTS, "expert_feed_forward_length": 24, "expert_shared_feed_forward_length": 40},
        _BASE, _expert_names(),
    ),
    "qwen3_moe": case(
        "qwen3_moe", "qwen3moe", _RMS,
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
         "norm_topk_prob": True, **_THETA},
        {**_EXPERTS, "expert_feed_forward_length": 24}, _BASE, _expert_names(),
    ),
    "gpt_oss": case(
        "gpt_oss", "gpt-oss", _RMS,
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 7,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
         "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": False,
                          "original_max_position_embeddings": 16}, **_THETA},
        {**_EXPERTS, "expert_feed_forward_length": 64, "attention.sliding_window": 7},
        {**_BASE, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
         "rope.scaling.original_context_length": 16},
        {**LLAMA, ".post_attention_layernorm": ".post_attention_norm",
         ".mlp.router": ".ffn_gate_inp", ".self_attn.sinks": ".attn_sinks.weight"},
        gpt_oss_experts,
    ),
    "ernie4_5": case("ernie4_5", "ernie4_5", _RMS, _THETA, optional=_BASE),
    "starcoder2": case(
        "starcoder2", "starcoder2", ("norm_epsilon", LAYER), {"sliding_window": None, **_THETA},
        optional=_BASE,
        names={**LLAMA, ".mlp.c_fc": ".ffn_up", ".mlp.c_proj": ".ffn_down"},
    ),
    "stablelm": case(
        "stablelm", "stablelm", ("layer_norm_eps", LAYER),
        {"qk_layernorm": True, "use_qkv_bias": True, "partial_rotary_factor": 0.5, **_THETA},
        optional={**_BASE, "rope.dimension_count": 4, "use_parallel_residual": True},
        names={
            **LLAMA,
            **{f".self_attn.{part}_layernorm.norms.{head}.": f".attn_{part}_norm.{head}."
               for part in "qk" for head in range(HEADS)},
        },
    ),
    "nemotron": case(
        "nemotron", "nemotron", ("norm_eps", LAYER), {"partial_rotary_factor": 0.5, **_THETA},
        optional={**_BASE, "rope.dimension_count": 4, "rope.scaling.type": "none"},
        convert=plus_one,
    ),
    "gpt2": case(
        "gpt2", "gpt2", _LAYER, _MHA, optional=_ONE_SIZE, names=GPT2, convert=turned,
    ),
    "gpt_bigcode": case(
        "gpt_bigcode", "starcoder", _LAYER, _MHA,
        optional={**_ONE_SIZE, "attention.head_count_kv": 1}, names=GPT2,
    ),
    "gpt_neox": case(
        "gpt_neox", "gptneox", ("layer_norm_eps", LAYER),
        {**_MHA, "rotary_pct": 0.5, "use_parallel_residual": False},
        {"use_parallel_residual": False}, {**_ONE_SIZE, "rope.dimension_count": 4}, NEOX,
        by_groups(HEADS),
    ),
    "bloom": case(
        "bloom", "bloom", _LAYER, {**_ALIBI, "seq_length": 64}, {"feed_forward_length": 128},
        _ONE_SIZE, GPT2, by_groups(HEADS),
    ),
    "mpt": case(
        "mpt", "mpt", _LAYER,
        {**_ALIBI, "max_seq_len": 64, "attn_config": {"clip_qkv": 4.0}},
        {"feed_forward_length": 128},
        {**_ONE_SIZE, "attention.clamp_kqv": 4.0, "attention.max_alibi_bias": 8.0}, GPT2,
    ),
    "falcon": case(
        "falcon", "falcon", _LAYER,
        {**_MHA, "new_decoder_architecture": True, "num_kv_heads": KV_HEADS},
        optional={"attention.key_length": ..., "tensor_data_layout": "jploski"}, names=GPT2,
        convert=by_groups(KV_HEADS),
    ),
    "seed_oss": case(
        "seed_oss", "seed_oss", _RMS, _THETA, optional=_BASE,
        names={**LLAMA, ".post_attention_layernorm": ".post_attention_norm"},
    ),
    "arcee": case("arcee", "arcee", _RMS, _THETA, optional=_BASE, convert=interleaved),
    "glm4": case(
        "glm4", "glm4", _RMS, {"partial_rotary_factor": 0.5, **_THETA},
        optional={**_BASE, "rope.dimension_count": 4},
        names={**LLAMA, ".post_self_attn_layernorm": ".post_attention_norm",
               ".post_mlp_layernorm": ".post_ffw_norm", ".mlp.gate_up_proj": ".ffn_up"},
    ),
    "hunyuan": case(
        "hunyuan_v1_dense", "hunyuan-dense", _RMS, _THETA,
        optional={**_BASE, "rope.scaling.type": "none", "rope.scaling.factor": 1.0},
        names={**LLAMA, ".self_attn.query_layernorm": ".attn_q_norm",
               ".self_attn.key_layernorm": ".attn_k_norm"},
    ),
    "granitemoeshared": case(
        "granitemoeshared", "granitemoe", _RMS,
        {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 40,
         **_MULTIPLIERS, **_THETA},
        {**_EXPERTS, **_REQUIRED_SCALES, "expert_shared_feed_forward_length": 40},
        {**_BASE, **_SCALES}, _GRANITE_MOE, granite_experts,
    ),
    "phi": case(
        "phi", "phi2", ("layer_norm_eps", LAYER), {"partial_rotary_factor": 0.5, **_THETA},
        optional={**_BASE, "rope.dimension_count": 4},
        names={**LLAMA, "model.final_layernorm": "output_norm", ".self_attn.dense": ".attn_output",
               ".mlp.fc1": ".ffn_up", ".mlp.fc2": ".ffn_down"},
    ),
    "phi3": case(
        "phi3", "phi3", _RMS,
        {"partial_rotary_factor": 0.5, "sliding_window": 7, "head_dim": ..., **_THETA},
        optional={**_BASE, "rope.dimension_count": 4, "attention.sliding_window": 7,
                  "rope.scaling.original_context_length": 64},
        names={**LLAMA, ".self_attn.qkv_proj": ".attn_qkv", ".mlp.gate_up_proj": ".ffn_up"},
    ),
    "cohere": case(
        "cohere", "command-r", ("layer_norm_eps", LAYER),
        {"tie_word_embeddings": True, "use_qk_norm": True, "logit_scale": 0.125, **_THETA},
        {"logit_scale": 0.125}, {**_BASE, "rope.scaling.type": "none"},
    ),
    "cohere2": case(
        "cohere2", "cohere2", ("layer_norm_eps", LAYER),
        {"tie_word_embeddings": True, "logit_scale": 0.125, "sliding_window": 7,
         "num_hidden_layers": 4, **_THETA},
        {"logit_scale": 0.125, "attention.sliding_window": 7, "block_count": 4},
        {**_BASE, "rope.scaling.type": "none"},
    ),
    "falcon_7b": case(
        "falcon", "falcon", _LAYER, _MHA,
        optional={"attention.key_length": ..., "attention.head_count_kv": 1}, 
        names={**GPT2, ".ln_attn": ".attn_norm"},
        convert=by_groups(1),
    ),
}  # fmt: skip
