"""Values of ``model_type`` beside the names of the families' files: types that share a file, and
multimodal types."""

from __future__ import annotations

# model_type -> the file of its family.
FAMILIES: dict[str, str] = {
    "gpt-sw3": "gpt2",
    "qwen2_5_vl_text": "qwen2_vl_text",
}

# Multimodal types whose text model, under ``text_config``, is one of the families. With text alone
# it computes what the whole model computes. The value stands for a missing model_type of the text.
MULTIMODAL: dict[str, str] = {
    "aria": "aria_text",
    "emu3": "emu3_text_model",
    "fuyu": "persimmon",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "got_ocr2": "qwen2",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
