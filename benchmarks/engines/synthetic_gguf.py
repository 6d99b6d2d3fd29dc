"""Writes a GGUF file of a published shape with random weights.

Weights are normal with a deviation of 0.02, in BF16; norms are 1. Rope scaling is left out, because
it does not change the speed and each engine stores it in its own way. The vocabulary is invented:
the letters of bytes, then numbered words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.contest import Absent
from onward.lab.counts.shapes import SHAPES

DEVIATION = 0.02
NAMES = [name for name, shape in SHAPES.items() if shape["model_type"] == "llama"]


def synthetic_gguf(name: str, work: Path) -> Path:
    """The file of that shape under ``work``; it is written if it does not exist yet."""
    path = work / "models" / f"{name}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"unfinished-{name}")
        _write(name, unfinished)
        unfinished.rename(path)
    return path


def _write(name: str, path: Path) -> None:
    try:
        from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
    except ImportError:
        raise Absent("to write a model: pip install gguf") from None
    shape: Any = SHAPES[name]
    writer = GGUFWriter(path, "llama", use_temp_file=True)
    writer.add_name(f"synthetic {name}")
    writer.add_block_count(shape["num_hidden_layers"])
    writer.add_context_length(shape["max_position_embeddings"])
    writer.add_embedding_length(shape["hidden_size"])
    writer.add_feed_forward_length(shape["intermediate_size"])
    writer.add_head_count(shape["num_attention_heads"])
    writer.add_head_count_kv(shape["num_key_value_heads"])
    writer.add_key_length(shape["head_dim"])
    writer.add_value_length(shape["head_dim"])
    writer.add_rope_dimension_count(shape["head_dim"])
    writer.add_rope_freq_base(shape["rope_theta"])
    writer.add_layer_norm_rms_eps(shape["rms_norm_eps"])
    writer.add_vocab_size(shape["vocab_size"])
    writer.add_file_type(LlamaFileType.MOSTLY_BF16)
    tokens = _tokens(shape["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(["a b"])  # llama.cpp requires merges
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    rng = np.random.default_rng(0)
    for tensor, rows, columns in _matrices(shape):
        values = _bf16(rng, rows, columns)
        writer.add_tensor(f"{tensor}.weight", values, raw_dtype=GGMLQuantizationType.BF16)
    for tensor in _norms(shape):
        writer.add_tensor(f"{tensor}.weight", np.ones(shape["hidden_size"], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _matrices(shape: Any) -> list[tuple[str, int, int]]:
    """Name, rows, columns."""
    hidden, gate = shape["hidden_size"], shape["intermediate_size"]
    queries = shape["num_attention_heads"] * shape["head_dim"]
    keys = shape["num_key_value_heads"] * shape["head_dim"]
    found = [("token_embd", shape["vocab_size"], hidden)]
    if not shape["tie_word_embeddings"]:
        found.append(("output", shape["vocab_size"], hidden))
    for layer in range(shape["num_hidden_layers"]):
        found += [
            (f"blk.{layer}.attn_q", queries, hidden),
            (f"blk.{layer}.attn_k", keys, hidden),
            (f"blk.{layer}.attn_v", keys, hidden),
            (f"blk.{layer}.attn_output", hidden, queries),
            (f"blk.{layer}.ffn_gate", gate, hidden),
            (f"blk.{layer}.ffn_up", gate, hidden),
            (f"blk.{layer}.ffn_down", hidden, gate),
        ]
    return found


def _norms(shape: Any) -> list[str]:
    layers = range(shape["num_hidden_layers"])
    return ["output_norm", *(f"blk.{n}.{norm}_norm" for n in layers for norm in ("attn", "ffn"))]


def _bf16(rng: np.random.Generator, rows: int, columns: int) -> NDArray[np.uint8]:
    """Random weights as bytes of bf16 numbers, (rows, 2 * columns). They are truncated, not
    rounded."""
    values = rng.standard_normal((rows, columns), dtype=np.float32)
    values *= np.float32(DEVIATION)
    return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)


def _tokens(count: int) -> list[str]:
    """The vocabulary: bytes in the spelling of GPT-2, then numbered words."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(byte) for byte in seen] + [chr(256 + n) for n in range(256 - len(seen))]
    return letters + [f"word{number}" for number in range(count - len(letters))]
