"""Values of ``model_type`` beside the names of the families' files: types that share a file,
multimodal types, and the types of GGUF architectures."""

from __future__ import annotations

# model_type -> the file of its family.
FAMILIES: dict[str, str] = {
    "apertus1p5_text": "apertus",
    "gpt-sw3": "gpt2",
    "qwen2_5_vl_text": "qwen2_vl_text",
}

# Multimodal types whose text model, under ``text_config``, is one of the families. With text alone
# it computes what the whole model computes. The value stands for a missing model_type of the text.
MULTIMODAL: dict[str, str] = {
    "apertus1p5": "apertus1p5_text",
    "aria": "aria_text",
    "cosmos3_omni": "qwen3_vl_text",
    "deepseek_vl": "llama",
    "deepseek_vl_hybrid": "llama",
    "emu3": "emu3_text_model",
    "fuyu": "persimmon",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "got_ocr2": "qwen2",
    "hyperclovax_vision_v2": "hyperclovax",
    "idefics2": "mistral",
    "idefics3": "llama",
    "internvl": "qwen2",
    "janus": "llama",
    "kimi_k25": "deepseek_v3",
    "lighton_ocr": "qwen3",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "llava_next_video": "llama",
    "llava_onevision": "qwen2",
    "mistral3": "mistral",
    "ovis2": "qwen2",
    "pp_chart2table": "qwen2",
    "qianfan_ocr": "qwen3",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_audio": "qwen2",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "smolvlm": "llama",
    "video_llama_3": "qwen2",
    "video_llava": "llama",
    "vipllava": "llama",
    "voxtral": "llama",
}

# general.architecture of a GGUF file -> the model_type that it has if a key of its metadata is
# present and neither 0 nor false; "": otherwise.
GGUF_ARCHITECTURES: dict[str, dict[str, str]] = {
    "llama": {
        "expert_count": "mixtral",
        "attention.sliding_window": "mistral",
        "": "llama",
    },
    "arcee": {"": "arcee"},
    "bloom": {"": "bloom"},
    "ernie4_5": {"": "ernie4_5"},
    "falcon": {"": "falcon"},
    "gemma": {"": "gemma"},
    "gemma2": {"": "gemma2"},
    "gemma3": {"": "gemma3_text"},
    "glm4": {"": "glm4"},
    "gpt-oss": {"": "gpt_oss"},
    "gpt2": {"": "gpt2"},
    "gptneox": {"": "gpt_neox"},
    "granite": {"": "granite"},
    "granitemoe": {"expert_shared_feed_forward_length": "granitemoeshared", "": "granitemoe"},
    "hunyuan-dense": {"": "hunyuan_v1_dense"},
    "mpt": {"": "mpt"},
    "nemotron": {"": "nemotron"},
    "olmo": {"": "olmo"},
    "olmo2": {"attention.sliding_window": "olmo3", "": "olmo2"},
    "olmoe": {"": "olmoe"},
    "qwen2": {"": "qwen2"},
    "qwen2moe": {"": "qwen2_moe"},
    "qwen3": {"": "qwen3"},
    "qwen3moe": {"": "qwen3_moe"},
    "seed_oss": {"": "seed_oss"},
    "smollm3": {"": "smollm3"},
    "stablelm": {"": "stablelm"},
    "starcoder": {"": "gpt_bigcode"},
    "starcoder2": {"": "starcoder2"},
}
