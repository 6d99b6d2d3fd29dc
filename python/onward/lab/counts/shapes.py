"""The sizes of published models, copied from the config.json of each model on the hub.

Keys that do not affect the shape are left out. A comment names the hub id of each model.
"""

from __future__ import annotations

from collections.abc import Mapping

Config = Mapping[str, object]


def _llama3_rope(factor: float) -> Config:
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


def _config(
    model_type: str,
    hidden_size: int,
    intermediate_size: int,
    num_layers: int,
    heads: tuple[int, int, int],
    vocab_size: int,
    context: int,
    *,
    theta: float,
    tied: bool,
    eps: float = 1e-5,
    **more: object,
) -> Config:
    """The config of a model. ``heads``: query heads, key and value heads, head_dim."""
    return {
        "model_type": model_type,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": heads[2],
        "vocab_size": vocab_size,
        "max_position_embeddings": context,
        "rope_theta": theta,
        "rms_norm_eps": eps,
        "tie_word_embeddings": tied,
        **more,
    }


SHAPES: dict[str, Config] = {
    # HuggingFaceTB/SmolLM2-135M, -360M, -1.7B
    "smollm2-135m": _config("llama", 576, 1536, 30, (9, 3, 64), 49152, 8192, theta=1e5, tied=True),
    "smollm2-360m": _config("llama", 960, 2560, 32, (15, 5, 64), 49152, 8192, theta=1e5, tied=True),
    "smollm2-1.7b": _config(
        "llama", 2048, 8192, 24, (32, 32, 64), 49152, 8192, theta=1.3e5, tied=True
    ),
    # meta-llama/Llama-3.2-1B, Llama-3.2-3B, Llama-3.1-8B
    "llama-3.2-1b": _config(
        *("llama", 2048, 8192, 16, (32, 8, 64), 128256, 131072),
        theta=5e5,
        tied=True,
        rope_scaling=_llama3_rope(32.0),
    ),
    "llama-3.2-3b": _config(
        *("llama", 3072, 8192, 28, (24, 8, 128), 128256, 131072),
        theta=5e5,
        tied=True,
        rope_scaling=_llama3_rope(32.0),
    ),
    "llama-3.1-8b": _config(
        *("llama", 4096, 14336, 32, (32, 8, 128), 128256, 131072),
        theta=5e5,
        tied=False,
        rope_scaling=_llama3_rope(8.0),
    ),
    # mistralai/Mistral-7B-v0.3
    "mistral-7b": _config(
        *("mistral", 4096, 14336, 32, (32, 8, 128), 32768, 32768),
        theta=1e6,
        tied=False,
        sliding_window=None,
    ),
    # Qwen/Qwen2.5-0.5B, Qwen2.5-7B
    "qwen2.5-0.5b": _config(
        "qwen2", 896, 4864, 24, (14, 2, 64), 151936, 32768, theta=1e6, tied=True, eps=1e-6
    ),
    "qwen2.5-7b": _config(
        "qwen2", 3584, 18944, 28, (28, 4, 128), 152064, 131072, theta=1e6, tied=False, eps=1e-6
    ),
    # Qwen/Qwen3-0.6B, Qwen3-1.7B, Qwen3-4B, Qwen3-8B
    "qwen3-0.6b": _config(
        "qwen3", 1024, 3072, 28, (16, 8, 128), 151936, 40960, theta=1e6, tied=True, eps=1e-6
    ),
    "qwen3-1.7b": _config(
        "qwen3", 2048, 6144, 28, (16, 8, 128), 151936, 40960, theta=1e6, tied=True, eps=1e-6
    ),
    "qwen3-4b": _config(
        "qwen3", 2560, 9728, 36, (32, 8, 128), 151936, 40960, theta=1e6, tied=True, eps=1e-6
    ),
    "qwen3-8b": _config(
        "qwen3", 4096, 12288, 36, (32, 8, 128), 151936, 40960, theta=1e6, tied=False, eps=1e-6
    ),
}
