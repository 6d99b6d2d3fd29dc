"""A llama folder with random weights; a test chooses the size for the time or memory that it
needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from closed_form import base_config, base_tensors, write_folder


def write_seeded(
    folder: Path,
    *,
    hidden_size: int = 64,
    intermediate_size: int = 128,
    num_layers: int = 2,
    vocab_size: int = 256,
    dtype: str = "F32",
    seed: int = 0,
    **changes: Any,
) -> Path:
    """Heads of 16, two query heads for each kv head, no eos."""
    config = base_config(
        **{
            "hidden_size": hidden_size,
            "intermediate_size": intermediate_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": hidden_size // 16,
            "num_key_value_heads": hidden_size // 32,
            "vocab_size": vocab_size,
            "max_position_embeddings": 1 << 17,
            "rms_norm_eps": 1e-5,
            "eos_token_id": None,
            **changes,
        }
    )
    tensors = random_tensors(config, np.random.default_rng(seed))
    return write_folder(folder, config, tensors, dtypes=dict.fromkeys(tensors, dtype))


def random_tensors(
    config: Mapping[str, Any], generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """Norms near 1, and matrices that keep the scale of their inputs."""
    tensors: dict[str, np.ndarray] = {}
    for name, like in base_tensors(config).items():
        layers = range(config["num_hidden_layers"]) if ".layers.0." in name else [0]
        for layer in layers:
            noise = generator.standard_normal(like.shape, dtype=np.float32)
            value = 1 + 0.2 * noise if like.ndim == 1 else noise / np.sqrt(like.shape[1])
            tensors[name.replace(".layers.0.", f".layers.{layer}.")] = value.astype(np.float32)
    return tensors
