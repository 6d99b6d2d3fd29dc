"""The source model as a Hugging Face folder: config.json and model.safetensors, no tokenizer.

Matrices keep their bits: BF16 if the file stores them in BF16, otherwise float32. Only models of
the llama family.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.contest import Absent
from engines.source_model import SourceModel, half_rows

TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_folder(source: SourceModel) -> Path:
    """The folder; it is written if it does not exist yet."""
    return source.converted("hf", lambda folder: _write(source, folder))


def config(source: SourceModel) -> dict[str, Any]:
    """The content of config.json."""
    heads, kv_heads, head_dim = heads_of(source)
    stored = {tensor.name: tensor for tensor in source.reader.tensors}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": source.metadata("llama.embedding_length"),
        "intermediate_size": source.metadata("llama.feed_forward_length"),
        "num_hidden_layers": source.metadata("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": len(source.metadata("tokenizer.ggml.tokens")),
        "max_position_embeddings": source.metadata("llama.context_length"),
        "rope_theta": source.metadata("llama.rope.freq_base", 10000.0),
        "rms_norm_eps": source.metadata("llama.attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in stored,
        "bos_token_id": source.metadata("tokenizer.ggml.bos_token_id", 1),
        "eos_token_id": source.metadata("tokenizer.ggml.eos_token_id", 2),
        "torch_dtype": "bfloat16" if _is_bf16(source) else "float32",
    }


def heads_of(source: SourceModel) -> tuple[int, int, int]:
    """Query heads, key and value heads, size of one."""
    if source.metadata("general.architecture") != "llama":
        raise Absent("only models of the llama family are converted")
    heads = source.metadata("llama.attention.head_count")
    kv_heads = source.metadata("llama.attention.head_count_kv", heads)
    head_dim = source.metadata("llama.embedding_length") // heads
    return heads, kv_heads, source.metadata("llama.attention.key_length", head_dim)


def _write(source: SourceModel, folder: Path) -> None:
    """Write a safetensors file. The package is not used, because its interface has changed."""
    bf16 = _is_bf16(source)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in source.reader.tensors:
        begin, end = end, end + tensor.n_elements * (2 if bf16 else 4)
        header[_hf_name(tensor.name)] = {
            "dtype": "BF16" if bf16 else "F32",
            "shape": list(reversed(tensor.shape.tolist())),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name, values in source.tensors():
            out.write(_stored(_rotated_apart(source, name, values), bf16))
    (folder / "config.json").write_text(json.dumps(config(source), indent=2), encoding="utf-8")


def _rotated_apart(
    source: SourceModel, name: str, values: NDArray[np.float32]
) -> NDArray[np.float32]:
    heads, kv_heads, _ = heads_of(source)
    if ".attn_q." in name:
        return half_rows(values, heads)
    return half_rows(values, kv_heads) if ".attn_k." in name else values


def _stored(values: NDArray[np.float32], bf16: bool) -> bytes:
    values = np.ascontiguousarray(values, np.float32)
    if bf16:  # the low halves are zero
        return (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    return values.astype("<f4").tobytes()


def _is_bf16(source: SourceModel) -> bool:
    kinds = {tensor.tensor_type.name for tensor in source.reader.tensors if len(tensor.shape) > 1}
    return kinds == {"BF16"}


def _hf_name(name: str) -> str:
    parts = name.removesuffix(".weight").split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{BLOCK[parts[2]]}.weight"
    return f"{TOP[parts[0]]}.weight"
