"""Tiny models on disk, as Hugging Face folders and as GGUF files, written byte by byte.

The writers check nothing, so that they can also write broken files.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onward.load import architectures
from onward.load.architectures.parts import stored_shapes
from onward.load.weights.checkpoint import STORAGE

Config = dict[str, Any]

# Widths of 32, so that every row can also be stored in GGUF's blocks.
TINY: Config = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 16,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


class Stored(NamedTuple):
    """A tensor as a file stores it."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def config_of(**changes: Any) -> Config:
    """The tiny config with changes; a key set to ... is left out."""
    config = {**TINY, **changes}
    return {key: value for key, value in config.items() if value is not ...}


def random_weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Float32 weights for every tensor that the config requires."""
    generator = np.random.default_rng(seed)
    plan = architectures.tensor_plan(architectures.read_spec(config))
    return {
        source: generator.standard_normal(shape).astype(np.float32)
        for source, shape in stored_shapes(plan).items()
    }


def stored(weights: np.ndarray, dtype: str = "F32") -> Stored:
    """A tensor as F32, F16 or BF16 (truncated, not rounded)."""
    if dtype == "BF16":
        data = (weights.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    else:
        data = weights.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()
    return Stored(dtype, weights.shape, data)


def random_blocks(dtype: str, shape: tuple[int, ...], generator: np.random.Generator) -> Stored:
    """A matrix of random bytes with f16 scales that give values of the size of a model's
    weights."""
    values, size = STORAGE[dtype]
    blocks = generator.integers(0, 256, (math.prod(shape) // values, size), dtype=np.uint8)
    if dtype == "MXFP4":
        blocks[:, 0] = generator.integers(120, 124, len(blocks))
    for offset, reach in BLOCKS[dtype].items():
        signs = generator.choice([-1, 1], len(blocks))
        scales = signs * generator.uniform(0.05, 0.2, len(blocks)) / reach
        blocks[:, offset : offset + 2] = scales.astype("<f2")[:, None].view(np.uint8)
    return Stored(dtype, shape, blocks.tobytes())


def safetensors_bytes(tensors: Mapping[str, Stored]) -> bytes:
    """A safetensors file of these tensors, in this order."""
    header: dict[str, Any] = {}
    at = 0
    for name, tensor in tensors.items():
        end = at + len(tensor.data)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    return with_header(json.dumps(header).encode(), b"".join(t.data for t in tensors.values()))


def with_header(header: bytes, data: bytes) -> bytes:
    """A safetensors file of an unchanged header and the bytes after it."""
    return struct.pack("<Q", len(header)) + header + data


def write_folder(
    folder: Path,
    config: Config | None = None,
    weights: Mapping[str, np.ndarray] | None = None,
    dtype: str = "F32",
) -> Path:
    """A model folder with one weight file."""
    config = TINY if config is None else config
    weights = random_weights(config) if weights is None else weights
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: stored(values, dtype) for name, values in weights.items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    return folder


# GGUF: value types by number, and the numbers of tensor types.
GGUF_TYPES = {
    **{"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10},
    **{"Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ2_XXS": 16, "IQ4_NL": 20, "IQ4_XS": 23},
    **{"IQ2_XS": 17, "IQ3_XXS": 18, "IQ1_S": 19, "IQ3_S": 21, "IQ2_S": 22},
    **{"BF16": 30, "TQ1_0": 34, "TQ2_0": 35, "MXFP4": 39, "NVFP4": 40},
}
# Block format: the offsets of its f16 scales in a block, and the largest integer of each.
BLOCKS = {
    **{"Q8_0": {0: 128}, "Q4_0": {0: 8}, "Q4_1": {0: 15, 2: 1}, "Q5_0": {0: 16}},
    **{"Q5_1": {0: 31, 2: 1}, "Q4_K": {0: 15 * 63, 2: 63}, "Q5_K": {0: 31 * 63, 2: 63}},
    **{"Q6_K": {208: 32 * 128}, "Q2_K": {80: 3 * 15, 82: 15}, "Q3_K": {108: 4 * 32}},
    **{"IQ4_NL": {0: 127}, "IQ4_XS": {0: 127 * 32}, "TQ1_0": {52: 1}, "TQ2_0": {64: 1}},
    **{"IQ2_XXS": {0: 4 * 43}, "IQ2_XS": {0: 4 * 43}, "IQ2_S": {0: 4 * 43}},
    **{"IQ3_XXS": {0: 8 * 62}, "IQ3_S": {0: 31 * 15}},
    "MXFP4": {},  # it has an exponent instead
}
TINY_GGUF: dict[str, object] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 2,
    "llama.attention.head_count_kv": 1,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 500.0,
    "tokenizer.ggml.tokens": ["a", "b"],
}


def gguf_text(text: str) -> bytes:
    """Length and bytes."""
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(value: object) -> bytes:
    """Type number and value: bool, int (u32), float (f32), str, or a list of one of them."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_text(value)
    assert isinstance(value, list)
    items = [gguf_value(item) for item in value]
    return (
        struct.pack("<I", 9)
        + items[0][:4]
        + struct.pack("<Q", len(items))
        + b"".join(item[4:] for item in items)
    )


def gguf_bytes(
    metadata: Mapping[str, object],
    tensors: Mapping[str, Stored],
    *,
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A GGUF file. A metadata value that is given as bytes is written unchanged."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += gguf_text(key) + (value if isinstance(value, bytes) else gguf_value(value))
    data = b""
    for name, tensor in tensors.items():
        data += b"\0" * (-len(data) % alignment)
        head += gguf_text(name) + struct.pack("<I", len(tensor.shape))
        head += b"".join(struct.pack("<Q", size) for size in reversed(tensor.shape))
        head += struct.pack("<IQ", GGUF_TYPES[tensor.dtype], len(data))
        data += tensor.data
    return head + b"\0" * (-len(head) % alignment) + data


def gguf_name(name: str) -> str:
    """The name that a converter gives a Hugging Face tensor."""
    top = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in top:
        return top[name]
    _, _, layer, module, kind = name.replace("self_attn.", "").replace("mlp.", "").split(".")
    modules = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "q_proj": "attn_q",
        "k_proj": "attn_k",
        "v_proj": "attn_v",
        "o_proj": "attn_output",
        "q_norm": "attn_q_norm",
        "k_norm": "attn_k_norm",
        "gate_proj": "ffn_gate",
        "up_proj": "ffn_up",
        "down_proj": "ffn_down",
    }
    return f"blk.{layer}.{modules[module]}.{kind}"


def tiny_gguf_tensors(config: Config | None = None) -> dict[str, Stored]:
    """The tiny model's weights under GGUF's names, F32, rows not reordered."""
    weights = random_weights(config or TINY)
    return {gguf_name(name): stored(values) for name, values in weights.items()}
