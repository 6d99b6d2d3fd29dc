"""GGUF files of families, made from the tensors of a folder by a plain map.

The map is written down here once more, from llama.cpp's converter: no name, key or order of rows
comes from onward's tables. gguf_cases.py has the families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from builders.checkpoints import Config, gguf_bytes, random_weights, stored

Array = np.ndarray
Convert = Callable[[str, Array], Iterator[tuple[str, Array]]]

HEADS, KV_HEADS, SIZE = 4, 2, 8
_CONFIG: Config = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": SIZE,
    "vocab_size": 16,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
_KEYS = {
    "block_count": 3,
    "context_length": 64,
    "embedding_length": 32,
    "feed_forward_length": 64,
    "attention.head_count": HEADS,
    "attention.head_count_kv": KV_HEADS,
}
RMS = "attention.layer_norm_rms_epsilon"
LAYER = "attention.layer_norm_epsilon"
BASE = "rope.freq_base"
LLAMA = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
    ".input_layernorm": ".attn_norm",
    ".self_attn.q_proj": ".attn_q",
    ".self_attn.k_proj": ".attn_k",
    ".self_attn.v_proj": ".attn_v",
    ".self_attn.o_proj": ".attn_output",
    ".self_attn.q_norm": ".attn_q_norm",
    ".self_attn.k_norm": ".attn_k_norm",
    ".post_attention_layernorm": ".ffn_norm",
    ".mlp.gate_proj": ".ffn_gate",
    ".mlp.up_proj": ".ffn_up",
    ".mlp.down_proj": ".ffn_down",
    ".mlp.gate.": ".ffn_gate_inp.",
}
AFTER = {
    ".post_attention_layernorm": ".post_attention_norm",
    ".pre_feedforward_layernorm": ".ffn_norm",
    ".post_feedforward_layernorm": ".post_ffw_norm",
}
GPT2 = {
    "transformer.wte": "token_embd",
    "transformer.word_embeddings_layernorm": "token_embd_norm",
    "transformer.word_embeddings": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "transformer.norm_f": "output_norm",
    "transformer.h.": "blk.",
    "transformer.blocks.": "blk.",
    "lm_head": "output",
    ".ln_1": ".attn_norm",
    ".norm_1": ".attn_norm",
    ".input_layernorm": ".attn_norm",
    ".ln_attn": ".attn_norm_2",
    ".ln_mlp": ".attn_norm",
    ".ln_2": ".ffn_norm",
    ".norm_2": ".ffn_norm",
    ".post_attention_layernorm": ".ffn_norm",
    ".attn.c_attn": ".attn_qkv",
    ".attn.Wqkv": ".attn_qkv",
    ".self_attention.query_key_value": ".attn_qkv",
    ".attn.c_proj": ".attn_output",
    ".attn.out_proj": ".attn_output",
    ".self_attention.dense": ".attn_output",
    ".mlp.c_fc": ".ffn_up",
    ".mlp.c_proj": ".ffn_down",
    ".ffn.up_proj": ".ffn_up",
    ".ffn.down_proj": ".ffn_down",
    ".mlp.dense_h_to_4h": ".ffn_up",
    ".mlp.dense_4h_to_h": ".ffn_down",
}
NEOX = {
    "gpt_neox.embed_in": "token_embd",
    "gpt_neox.final_layer_norm": "output_norm",
    "embed_out": "output",
    "gpt_neox.layers.": "blk.",
    ".input_layernorm": ".attn_norm",
    ".post_attention_layernorm": ".ffn_norm",
    ".attention.query_key_value": ".attn_qkv",
    ".attention.dense": ".attn_output",
    ".mlp.dense_h_to_4h": ".ffn_up",
    ".mlp.dense_4h_to_h": ".ffn_down",
}


def same(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """Nothing but the name changes."""
    yield name, values


def interleaved(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """Rows 0, half, 1, half + 1 ... of each head of q and k."""
    for part, heads in ((".q_proj.", HEADS), (".k_proj.", KV_HEADS)):
        if part in name:
            order = [
                head * SIZE + half * (SIZE // 2) + row
                for head in range(heads)
                for row in range(SIZE // 2)
                for half in (0, 1)
            ]
            values = values[order]
    yield name, values


def plus_one(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """Norms have the 1 that the network adds."""
    yield name, values + np.float32(1) if name.endswith("norm.weight") else values


def turned(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """Matrices of (inputs, outputs), but for the embeddings."""
    yield name, values.T if values.ndim == 2 and ".h." in name else values


def by_groups(groups: int) -> Convert:
    """q, k and v of each group become all of q, all of k, all of v."""

    def convert(name: str, values: Array) -> Iterator[tuple[str, Array]]:
        if "query_key_value" in name:
            width = HEADS // groups + 2
            heads = [values[at : at + SIZE] for at in range(0, len(values), SIZE)]
            q = [head for at, head in enumerate(heads) if at % width < width - 2]
            k = [head for at, head in enumerate(heads) if at % width == width - 2]
            v = [head for at, head in enumerate(heads) if at % width == width - 1]
            values = np.concatenate([*q, *k, *v])
        yield name, values

    return convert


def granite_experts(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """Gates and inputs of all experts, one after the other."""
    if name.endswith(".input_linear.weight"):
        shared = ".shared_mlp." in name
        block = name.partition(".shared_mlp" if shared else ".block_sparse_moe")[0]
        half = values.shape[-2] // 2
        for part, rows in (("gate", slice(0, half)), ("up", slice(half, None))):
            yield f"{block}.ffn_{part}_{'shexp' if shared else 'exps'}.weight", values[..., rows, :]
    else:
        yield from interleaved(name, values)


def gpt_oss_experts(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """Gates and inputs take turns along the last dimension, which becomes rows."""
    block, _, kind = name.partition(".mlp.experts.")
    ending = ".bias" if kind.endswith("_bias") else ".weight"
    if kind.startswith("gate_up_proj"):
        for at, part in enumerate(("gate", "up")):
            own = values[..., at::2]
            yield f"{block}.ffn_{part}_exps{ending}", own if own.ndim == 2 else own.swapaxes(1, 2)
    elif kind.startswith("down_proj"):
        own = values if values.ndim == 2 else values.swapaxes(1, 2)
        yield f"{block}.ffn_down_exps{ending}", own
    else:
        yield name, values


@dataclass(frozen=True)
class GgufCase:
    """A family: a tiny config, the metadata of its GGUF file, and how tensors get there."""

    architecture: str
    config: Config
    required: dict[str, Any]
    """Keys below the architecture without which a file is refused."""
    optional: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=lambda: LLAMA)
    convert: Convert = same

    def metadata(self) -> dict[str, object]:
        """With all keys."""
        keys = {**self.required, **self.optional}
        named = {f"{self.architecture}.{key}": value for key, value in keys.items()}
        return {"general.architecture": self.architecture, **named}

    def weights(self) -> dict[str, Array]:
        """The tensors of the folder."""
        return random_weights(self.config)

    def tensors(self, weights: dict[str, Array]) -> dict[str, Array]:
        """The tensors of the GGUF file. Those of single experts or heads become one."""
        found: dict[str, Array] = {}
        several: dict[str, list[Array]] = {}
        for name, values in weights.items():
            for converted, own in self.convert(name, values):
                for theirs, ours in self.names.items():
                    converted = converted.replace(theirs, ours)
                pieces = converted.split(".")
                if len(pieces) == 5:  # blk.0.ffn_gate_exps.7.weight
                    several.setdefault(".".join((*pieces[:3], pieces[4])), []).append(own)
                else:
                    found[converted] = own
        return found | {name: np.stack(values) for name, values in several.items()}

    def file(self, tensors: dict[str, Array], **changes: object) -> bytes:
        """A file with changed keys, below the architecture; ``__`` is a dot, ... removes one."""
        metadata = self.metadata()
        for key, value in changes.items():
            metadata[f"{self.architecture}.{key.replace('__', '.')}"] = value
        kept = {key: value for key, value in metadata.items() if value is not ...}
        return gguf_bytes(kept, {name: stored(values) for name, values in tensors.items()})


def case(
    model_type: str,
    architecture: str,
    eps: tuple[str, str],
    config: Config | None = None,
    required: dict[str, Any] | None = None,
    optional: dict[str, Any] | None = None,
    names: dict[str, str] | None = None,
    convert: Convert = same,
) -> GgufCase:
    """``eps``: its field and its key. Fields and keys that are ... are left out."""
    whole = {**_CONFIG, "model_type": model_type, eps[0]: 3e-5, **(config or {})}
    sizes = {**_KEYS, eps[1]: 3e-5, **(required or {})}
    may_lack = {key: sizes.pop(key) for key in ("context_length", "attention.head_count_kv")}
    may_lack |= {"attention.key_length": SIZE, "attention.value_length": SIZE, **(optional or {})}
    return GgufCase(
        architecture,
        {key: value for key, value in whole.items() if value is not ...},
        {key: value for key, value in sizes.items() if value is not ...},
        {key: value for key, value in may_lack.items() if value is not ...},
        names or LLAMA,
        convert,
    )
