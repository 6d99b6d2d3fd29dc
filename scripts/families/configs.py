"""The configs of tiny models: sizes that suit every type, and what single types need besides."""

from __future__ import annotations

from typing import Any

LAYERS, WINDOW, VOCABULARY = 4, 24, 160
ALTERNATING = ["sliding_attention", "full_attention"] * (LAYERS // 2)
_GROWING = {
    **{"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    **{"original_max_position_embeddings": 32, "max_position_embeddings": 256},
    "llama_4_scaling_beta": 0.1,
}
# Spellings of one size; a config class takes those that it knows.
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "n_embd": 64,
    "d_model": 64,
    "num_hidden_layers": LAYERS,
    "n_layer": LAYERS,
    "n_layers": LAYERS,
    "num_layers": LAYERS,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "ffn_dim": 96,
    "n_inner": 96,
    "max_position_embeddings": 256,
    "n_positions": 256,
    "max_seq_len": 256,
    "n_ctx": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "sliding_window": WINDOW,
    "attention_chunk_size": WINDOW,
    "num_experts": 8,
    "num_local_experts": 8,
    "n_routed_experts": 8,
    "moe_num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "moe_topk": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 48,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "moe_layer_start_index": 1,
    "kv_lora_rank": 32,
    "q_lora_rank": 48,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "tie_word_embeddings": False,
}
# What the text model of a multimodal one needs; all of SIZES would be kept as unknown fields.
TEXT_SIZES = {
    name: SIZES[name]
    for name in (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
        *("num_attention_heads", "max_position_embeddings"),
        *("pad_token_id", "bos_token_id", "eos_token_id"),
    )
}
_QWEN2_VL_TEXT = {
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
    **{"use_sliding_window": True, "max_window_layers": 2},
}
# The decoder of a pair; the encoder has other sizes, which must not be read.
DECODER = {
    "decoder_layers": LAYERS,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 96,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "num_hidden_layers": None,
    "num_attention_heads": None,
    "scale_embedding": True,
}
BERT = {"is_decoder": True}
ROBERTA_TYPES = (
    *("roberta", "camembert", "xlm-roberta", "data2vec-text", "roberta-prelayernorm"),
    "xlm-roberta-xl",
)
ROBERTA = {"is_decoder": True, "pad_token_id": 1, "hidden_act": "relu"}
# Biases of logits of tokens that the models must not choose: in texts of the RoBERTa kind, the
# padding token has a position of its own, which transformers finds by its number.
FIRST_POSITIONS = dict.fromkeys(ROBERTA_TYPES, 2)
"""Where forward() alone counts from this number; generate() would begin at 0."""
UNLIKELY = {name: ("lm_head.decoder.bias", 1, -5.0) for name in ROBERTA_TYPES}
# Instead of SIZES, or besides them. None takes a size away.
CHANGES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 2},
    "qwen3": {"use_sliding_window": True, "max_window_layers": 2},
    "gemma2": {"query_pre_attn_scalar": 24},
    "gptj": {"rotary_dim": 8},
    "codegen": {"rotary_dim": 8},
    "gpt_neox": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    },
    "bloom": {"num_attention_heads": 4},
    "fuyu": {"text_config": {**TEXT_SIZES, "model_type": "persimmon"}},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": WINDOW},
    "gpt_neox_japanese": {"rotary_pct": 0.5},
    "ctrl": {"dff": 96},
    **dict.fromkeys(("bert", "bert-generation", "ernie", "megatron-bert"), BERT),
    **dict.fromkeys(ROBERTA_TYPES, ROBERTA),
    "big_bird": {"is_decoder": True, "rescale_embeddings": True},
    "electra": {"is_decoder": True, "embedding_size": 48},
    "rembert": {"is_decoder": True, "input_embedding_size": 48, "output_embedding_size": 80},
    "roformer": {"is_decoder": True, "embedding_size": 48},
    **dict.fromkeys(("bart", "plbart", "mvp", "marian", "blenderbot-small"), DECODER),
    "trocr": {"decoder_ffn_dim": 96, "decoder_layers": 4, "decoder_attention_heads": 4},
    **dict.fromkeys(("mbart", "blenderbot", "pegasus", "bigbird_pegasus"), DECODER),
    "whisper": {**DECODER, "scale_embedding": False, "max_target_positions": 256},
    "moshi": {"ffn_dim": 192, "sliding_window": 256},
    "mpt": {"attn_config": {"clip_qkv": 0.5}},
    "nemotron": {"attention_bias": True, "mlp_bias": True},
    "stablelm": {"use_qkv_bias": True, "qk_layernorm": True},
    "gemma3_text": {"query_pre_attn_scalar": 24, "layer_types": ALTERNATING},
    "gemma4_text": {
        "layer_types": ALTERNATING,
        "global_head_dim": 32,
        "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": VOCABULARY,
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
        "final_logit_softcapping": 30.0,
    },
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 2},
    "glm4_moe_lite": {"num_key_value_heads": 4, "attention_bias": True, "norm_topk_prob": False},
    "sarvam_mla": {"num_key_value_heads": 4, "q_lora_rank": None, "n_shared_experts": 2},
    "youtu": {
        "num_key_value_heads": 4,
        "rope_parameters": {
            **{"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 1.0},
            **{"mscale_all_dim": 0.7, "original_max_position_embeddings": 64},
        },
    },
    "minicpm3": {"num_key_value_heads": 4, "dim_model_base": 32, "attention_bias": True},
    "glm4_moe": {"use_qk_norm": True, "attention_bias": True, "n_shared_experts": 2},
    "dots1": {"n_shared_experts": 2, "max_window_layers": 2, "norm_topk_prob": True},
    "solar_open": {"attention_bias": True, "routed_scaling_factor": 1.5},
    "sarvam_moe": {"attention_bias": True},
    "minimax_m2": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.5, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 8, "moe_top_k": 2},
    },
    "arcee": {"attention_bias": True, "mlp_bias": True},
    "helium": {"attention_bias": True, "mlp_bias": True},
    "internlm3": {"attention_bias": True, "mlp_bias": True},
    "apertus": {
        "attention_bias": True,
        "rope_parameters": {
            **{"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0},
            **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
            "original_max_position_embeddings": 64,
        },
    },
    "nanochat": {"attention_bias": True, "final_logit_softcapping": 0.5},
    "cwm": {"layer_types": ALTERNATING},
    "exaone_moe": {"layer_types": ALTERNATING, "num_shared_experts": 2},
    "phi": {"partial_rotary_factor": 0.5},
    "qwen2_moe": {"use_sliding_window": True, "mlp_only_layers": [1]},
    "qwen3_moe": {"use_sliding_window": True, "mlp_only_layers": [1]},
    "olmo": {"clip_qkv": 1.0},
    "granitemoeshared": {"shared_intermediate_size": 48},
    "granite_swa": {"layer_rope_theta": [10000.0, 0.0, 500.0, 10000.0]},
    "granitemoe_swa": {
        "shared_intermediate_size": 48,
        "layer_rope_theta": [10000.0, 0.0, 500.0, 10000.0],
    },
    "ernie4_5": {"use_bias": True},
    "seed_oss": {"attention_out_bias": True, "mlp_bias": True},
    "hunyuan_v1_dense": {
        "rope_parameters": {"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0}
    },
    "hyperclovax": {"residual_multiplier": 0.5, "logits_scaling": 0.25},
    "mellum": {
        "layer_types": ALTERNATING,
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    },
    "flint": {"layer_types": ALTERNATING},
    "afmoe": {"layer_types": ALTERNATING, "mup_enabled": True, "route_scale": 2.0},
    "qwen2_vl": _QWEN2_VL_TEXT,
    "qwen2_5_vl": _QWEN2_VL_TEXT,
    "mistral4": {"num_key_value_heads": 4, "rope_parameters": _GROWING},
    "ministral3": {"rope_parameters": _GROWING},
    "ministral": {"layer_types": ALTERNATING},
    "cohere": {"use_qk_norm": True, "logit_scale": 0.5},
    "cohere2": {"logit_scale": 0.5},
    "cohere2_moe": {
        **{"logit_scale": 0.5, "num_shared_experts": 1, "prefix_dense_intermediate_size": 80},
        "shared_expert_combination_strategy": "sum",
    },
    "phi3": {
        "rope_parameters": {
            **{"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
            **{"original_max_position_embeddings": 128, "short_factor": [1.0, 1.1, 1.3, 2.0]},
            "long_factor": [2.0, 2.1, 2.3, 4.0],
        }
    },
    "llama4_text": {"intermediate_size_mlp": 80, "interleave_moe_layer_step": 2, "floor_scale": 16},
    "mimo_v2_flash": {"layer_types": ALTERNATING, "head_dim": 24},
    "deepseek_v2": {"num_key_value_heads": 4, "topk_method": "group_limited_greedy"},
    "deepseek_v3": {"num_key_value_heads": 4, "attention_bias": True},
}

# Multimodal types: their arguments beside the text model, with as little of images as possible.
_QWEN_VISION = {
    "vision_config": {
        **{"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32},
        **{"out_hidden_size": 64, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
    },
    **{"image_token_id": 3, "video_token_id": 4, "vision_start_token_id": 5},
    "vision_end_token_id": 6,
}
_SIGLIP_VISION = {
    "vision_config": {
        **{"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1},
        **{"num_attention_heads": 2, "image_size": 28, "patch_size": 14},
    },
    **{"image_token_index": 3, "boi_token_index": 4, "eoi_token_index": 5},
    "mm_tokens_per_image": 4,
}
_QWEN2_VISION = {
    **_QWEN_VISION,
    "vision_config": {
        **{"depth": 1, "hidden_size": 64, "embed_dim": 32, "num_heads": 2, "mlp_ratio": 1},
        **{"intermediate_size": 32, "out_hidden_size": 64},
    },
}
_IDEFICS_VISION = {
    "vision_config": {
        **{"model_type": "idefics3_vision", "hidden_size": 32, "intermediate_size": 32},
        **{"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
    },
    "image_token_index": 3,
}
_VQ_VISION = {
    "vq_config": {
        **{"codebook_size": 8, "embed_dim": 8, "latent_channels": 8, "base_channels": 32},
        **{"channel_multiplier": [1, 1], "num_res_blocks": 1, "hidden_size": 32},
        **{"attn_resolutions": [], "num_attention_heads": 1},
    },
    "vocabulary_map": {"<image>": 3},
}
_SAM_VISION = {
    "vision_config": {
        **{"hidden_size": 32, "output_channels": 16, "num_hidden_layers": 1, "mlp_dim": 32},
        **{"num_attention_heads": 2, "image_size": 64, "patch_size": 16},
        "global_attn_indexes": [0],
    },
    "image_token_index": 3,
}
_PIXTRAL_VISION = {
    "vision_config": {
        **{"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 32, "head_dim": 16},
        **{"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
    },
    **{"image_token_index": 3, "spatial_merge_size": 1},
}
# Text types without a class of their own: the multimodal type that has such a text model.
TEXT_OF = {
    "emu3_text_model": "emu3",
    "mistral4": "mistral3",
    "qwen2_vl_text": "qwen2_vl",
    "qwen2_5_vl_text": "qwen2_5_vl",
    "qwen3_vl_text": "qwen3_vl",
    "qwen3_vl_moe_text": "qwen3_vl_moe",
}
VISION_CONFIGS: dict[str, dict[str, Any]] = {
    "mistral3": _PIXTRAL_VISION,
    "aria": _IDEFICS_VISION,
    "emu3": _VQ_VISION,
    "got_ocr2": {**_SAM_VISION, "tie_word_embeddings": False},
    "idefics3": {**_SIGLIP_VISION, "image_token_id": 3, "tie_word_embeddings": False},
    "qwen2_vl": _QWEN2_VISION,
    "qwen2_5_vl": _QWEN2_VISION,
    "gemma3": _SIGLIP_VISION,
    "qwen3_vl": _QWEN_VISION,
    "qwen3_vl_moe": _QWEN_VISION,
}


def changes_of(model_type: str) -> dict[str, Any]:
    """The keyword arguments of the config class, before those that it does not know are dropped."""
    values = {**SIZES, **CHANGES.get(model_type, {})}
    return {name: value for name, value in values.items() if value is not None}
