"""Writes a tiny model as a GGUF file, with the tensors and the metadata that llama.cpp's converter
gives its type. Names and keys come from the ``gguf`` package; onward's own tables are not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from transformers import AutoConfig

from families.gguf_keys import ARCHITECTURES, write_keys

Values = NDArray[np.float32]
Tensors = dict[str, Values]
Named = Iterator[tuple[str, Values]]

INTERLEAVED = (
    "llama",
    "mistral",
    "mixtral",
    "smollm3",
    "granite",
    "granitemoe",
    "granitemoeshared",
    "olmo",
    "arcee",
)
"""Types whose rows of q and k the converter reorders, for the program's way of rotating."""
NORMS_PLUS_ONE = ("gemma", "gemma2", "gemma3_text", "nemotron")
# Experts, and norms of single heads, which become one tensor.
_NUMBERED = re.compile(r"(.*\.experts|.*\.norms)\.(\d+)\.(.*)")
_EXPERT_NAMES = {
    "w1.weight": "gate_proj.weight",
    "w2.weight": "down_proj.weight",
    "w3.weight": "up_proj.weight",
}


def write_gguf(model_type: str, folder: Path, path: Path) -> None:
    """Write ``path`` from a folder of transformers. All tensors are float32."""
    config = AutoConfig.from_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    architecture = ARCHITECTURES[model_type]
    name_map = gguf.get_tensor_name_map(_member(architecture), config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, architecture)
    write_keys(writer, model_type, config, json.loads((folder / "config.json").read_text()))
    _write_tokenizer(writer, config.vocab_size)
    for name, values in converted(model_type, tensors, config):
        own_name = name_map.get_name(name, try_suffixes=(".weight", ".bias"))
        if own_name is None:
            raise ValueError(f"{model_type}: the gguf package has no name for {name}")
        writer.add_tensor(own_name, np.ascontiguousarray(values, np.float32))
    if model_type == "phi3" and "long_factor" in config.rope_parameters:
        for kind in ("long", "short"):
            factors = np.array(config.rope_parameters[f"{kind}_factor"], np.float32)
            writer.add_tensor(f"rope_factors_{kind}.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _member(architecture: str) -> Any:
    return next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)


def converted(
    model_type: str, tensors: Tensors, config: Any
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """The tensors under names that the ``gguf`` package knows, with their values as a converter
    stores them."""
    rows: dict[str, dict[int, NDArray[np.float32]]] = {}
    for name, values in tensors.items():
        if name in ("lm_head.weight", "embed_out.weight") and config.tie_word_embeddings:
            continue
        numbered = _NUMBERED.fullmatch(name)
        if numbered is not None:
            block, number, kind = numbered.groups()
            block = block.replace("block_sparse_moe", "mlp").removesuffix(".norms")
            merged = f"{block}.{_EXPERT_NAMES.get(kind, kind)}"
            rows.setdefault(merged, {})[int(number)] = values
            continue
        if model_type in INTERLEAVED:
            if ".q_proj." in name:
                values = interleaved(values, config.num_attention_heads)
            elif ".k_proj." in name:
                values = interleaved(values, config.num_key_value_heads)
        if model_type in NORMS_PLUS_ONE and name.endswith("norm.weight"):
            values = values + np.float32(1)
        yield from _OWN_WAYS.get(model_type, _unchanged)(name, values, config)
    for name, matrices in rows.items():
        yield name, np.stack([matrices[number] for number in range(len(matrices))])


def _unchanged(name: str, values: Values, config: Any) -> Named:
    yield name, values


def _gpt2(name: str, values: Values, config: Any) -> Named:
    """Its matrices are stored as (inputs, outputs)."""
    turned = name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
    yield name, values.T if turned else values


def _by_groups(name: str, values: Values, config: Any) -> Named:
    """Groups of heads of q and one head of k and of v become all of q, all of k, all of v."""
    if "query_key_value" in name:
        heads = config.num_attention_heads
        groups = getattr(config, "num_kv_heads", heads)
        size = config.hidden_size // heads
        grouped = values.reshape(groups, -1, size, *values.shape[1:])
        parts = (grouped[:, :-2], grouped[:, -2], grouped[:, -1])
        values = np.concatenate([part.reshape(-1, *values.shape[1:]) for part in parts])
    yield name.removeprefix("transformer.") if config.model_type == "bloom" else name, values


def _granitemoe(name: str, values: Values, config: Any) -> Named:
    """The two halves of the rows are the gates and the inputs."""
    if name.endswith("block_sparse_moe.input_linear.weight"):
        base = name.removesuffix("block_sparse_moe.input_linear.weight")
        gate, up = np.split(values, 2, axis=1)
        yield f"{base}mlp.experts.gate_proj.weight", gate
        yield f"{base}mlp.experts.up_proj.weight", up
    elif name.endswith("shared_mlp.input_linear.weight"):
        base = name.removesuffix("shared_mlp.input_linear.weight")
        gate, up = np.split(values, 2, axis=0)
        yield f"{base}mlp.shared_experts.gate_proj.weight", gate
        yield f"{base}mlp.shared_experts.up_proj.weight", up
    else:
        yield name, values


def _gpt_oss(name: str, values: Values, config: Any) -> Named:
    """Gates and inputs take turns, and matrices are stored as (inputs, outputs)."""
    name = name.replace(".sinks", ".sinks.weight")
    bias = name.endswith("_proj_bias")
    kind = "bias" if bias else "weight"
    base = name.removesuffix("_bias")
    if not bias and base.endswith(("experts.gate_up_proj", "experts.down_proj")):
        values = values.swapaxes(1, 2)
    if base.endswith("experts.gate_up_proj"):
        base = base.removesuffix("gate_up_proj")
        yield f"{base}gate_proj.{kind}", values[:, ::2]
        yield f"{base}up_proj.{kind}", values[:, 1::2]
    elif base.endswith("experts.down_proj"):
        yield f"{base}.{kind}", values
    else:
        yield name, values


_OWN_WAYS: dict[str, Callable[[str, Values, Any], Named]] = {
    "gpt2": _gpt2,
    **dict.fromkeys(("gpt_neox", "bloom", "falcon"), _by_groups),
    **dict.fromkeys(("granitemoe", "granitemoeshared"), _granitemoe),
    "gpt_oss": _gpt_oss,
}


def interleaved(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Each head's rows 0, half, 1, half + 1, ..."""
    rows = values.reshape(heads, 2, -1, *values.shape[1:])
    return np.swapaxes(rows, 1, 2).reshape(values.shape)


def _write_tokenizer(writer: Any, vocabulary: int) -> None:
    """A byte-level tokenizer of made-up pieces, so that programs open the file."""
    pieces = ["<unk>", "<s>", "</s>", "a", "b", "ab"]
    pieces += [f"token{number}" for number in range(len(pieces), vocabulary)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    writer.add_token_types([3] * 3 + [1] * (vocabulary - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
