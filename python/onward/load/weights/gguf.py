"""Opens a GGUF file, with its parts if it has several, and gives it in Hugging Face's words.

The metadata becomes a config as config.json would say it, the tensors get Hugging Face's names,
and the rows of q and k, which the converters of the llama family reorder for another way of
rotating, get the order that undoes it. Every key of the architecture's namespace is arithmetic, so
one that is not understood is an error. Knows no decoder arithmetic.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onward.errors import WeightError
from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.row_orders import each_head, half_split_from_pairs
from onward.load.weights.checkpoint import STORAGE, SourceFile, Tensor, unsupported
from onward.load.weights.gguf_parts import open_parts
from onward.load.weights.gguf_reader import GgufTensor
from onward.load.weights.mapped_file import MappedFile
from onward.message_text import label

_ARCHITECTURES = ("llama", "qwen2", "qwen3", "smollm3")
# Families whose q and k rows the converters interleave.
_PERMUTED = ("llama", "smollm3")

# GGUF key below "<architecture>." -> field of config.json.
_FIELDS = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS = "rope_freqs.weight"


class GgufCheckpoint:
    """A GGUF file as a config and Hugging Face tensors.

    `path` is the file, or any part of a model in parts.
    """

    def __init__(self, path: Path) -> None:
        parts = open_parts(path)
        self._files = [part.file for part in parts]
        try:
            self._tensors: dict[str, GgufTensor] = {}
            self._holders: dict[str, MappedFile] = {}
            for part in parts:
                for own_name, tensor in part.header.tensors.items():
                    name = hugging_face_name(own_name)
                    if name in self._tensors:
                        raise WeightError(
                            f"{part.name}: tensors {label(self._tensors[name].name)} and "
                            f"{label(own_name)} are both {label(name)}, expected one of them"
                        )
                    self._tensors[name], self._holders[name] = tensor, part.file
            first = parts[0]
            self.where = f"{first.name} (metadata as config.json would say it)"
            self.metadata: Mapping[str, object] = first.header.metadata
            self.generation_config: dict[str, Any] = {}
            self.config = self._make_config(first.name)
        except BaseException:
            self.close()
            raise

    def names(self) -> set[str]:
        """The tensors there are; those without a Hugging Face name keep their own."""
        return set(self._tensors) - {_ROPE_FACTORS}

    def describe(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The dtype and shape that the header gives."""
        tensor = self._tensors[name]
        return tensor.dtype, tensor.shape

    def file_of(self, name: str) -> str:
        """The name of the file, or of the part that holds the tensor."""
        return self._holders[name].path.name

    def sources(self) -> list[SourceFile]:
        """The file, or its parts in order."""
        return [file.source() for file in self._files]

    def tensor(self, name: str) -> Tensor:
        """The bytes of a tensor; WeightError if its dtype is not supported."""
        tensor = self._supported(name)
        buffer = self._holders[name].view(tensor.begin, tensor.end)
        return Tensor(buffer, tensor.dtype, tensor.shape, self._row_order(name, tensor.shape))

    def release(self, name: str) -> None:
        """Give the memory of a tensor's pages back."""
        tensor = self._tensors[name]
        self._holders[name].release(tensor.begin, tensor.end)

    def check_unchanged(self) -> None:
        """WeightError where a file was written again since it was opened."""
        for file in self._files:
            file.check_unchanged()

    def close(self) -> None:
        """Give up the files."""
        for file in self._files:
            file.close()

    def _supported(self, name: str) -> GgufTensor:
        tensor = self._tensors[name]
        if tensor.dtype not in STORAGE:
            raise WeightError(
                f"{self.file_of(name)}: tensor {label(tensor.name)} {unsupported(tensor.dtype)}"
            )
        return tensor

    def _row_order(self, name: str, shape: tuple[int, ...]) -> NDArray[np.int32] | None:
        if self.metadata["general.architecture"] not in _PERMUTED:
            return None
        if ".self_attn.q_proj." in name:
            heads = self.config.get("num_attention_heads")
        elif ".self_attn.k_proj." in name:
            heads = self.config.get("num_key_value_heads") or self.config.get("num_attention_heads")
        else:
            return None
        if type(heads) is not int or heads < 1 or shape[0] % (2 * heads):
            raise WeightError(
                f"{self.file_of(name)}: tensor {self._tensors[name].name} has {shape[0]} rows, "
                f"expected a multiple of 2 * {heads} heads"
            )
        return each_head(half_split_from_pairs(shape[0] // heads), heads)

    def _make_config(self, name: str) -> dict[str, Any]:
        """config.json as a converter in the other direction would write it."""
        everything = ConfigReader(self.metadata, name)
        architecture = everything.text("general.architecture", _ARCHITECTURES)
        prefix = f"{architecture}."
        keys = ConfigReader(
            {
                key[len(prefix) :]: value
                for key, value in self.metadata.items()
                if key.startswith(prefix)
            },
            name,
            prefix,
        )
        config: dict[str, Any] = {"model_type": architecture}
        for key, field in _FIELDS.items():
            keys.ignore(key)
            if key in keys:
                config[field] = keys.values[key]
        embedding = self._tensors.get("model.embed_tokens.weight")
        if embedding is not None:
            # What tokens there are is decided by the matrix: older files lack the key.
            config.setdefault("vocab_size", embedding.shape[0])
        config["tie_word_embeddings"] = "lm_head.weight" not in self._tensors
        if keys.values.get("tensor_data_layout") == "Meta AI original pth":
            keys.ignore("tensor_data_layout")  # the row order of q and k that is undone here
        if keys.flag("attention.causal", True) is False:
            raise keys.wrong("attention.causal", "true")
        self._check_head_width(keys, config)
        self._add_biases(config)
        self._add_window(keys, config)
        self._add_rope(keys, config)
        keys.refuse_the_rest(strict=True)
        return config

    def _check_head_width(self, keys: ConfigReader, config: dict[str, Any]) -> None:
        hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
        if "head_dim" not in config and type(hidden) is int and type(heads) is int and heads > 0:
            if hidden % heads:
                raise keys.error("attention.head_count", f"is {heads}, not a divisor of {hidden}")
            config["head_dim"] = hidden // heads
        for key in ("attention.value_length", "rope.dimension_count"):
            keys.ignore(key)
            width = keys.values.get(key)
            if width is not None and width != config.get("head_dim"):
                raise keys.wrong(key, f"the width of a head, {config.get('head_dim')}")

    def _add_biases(self, config: dict[str, Any]) -> None:
        first = "model.layers.0."
        if config["model_type"] != "qwen2":  # which has them always
            config["attention_bias"] = first + "self_attn.q_proj.bias" in self._tensors
        if config["model_type"] in ("llama", "smollm3"):
            config["mlp_bias"] = first + "mlp.up_proj.bias" in self._tensors

    def _add_window(self, keys: ConfigReader, config: dict[str, Any]) -> None:
        window = config.pop("sliding_window", None)
        if not window:
            return
        if config["model_type"] != "llama" or config["attention_bias"] or config["mlp_bias"]:
            raise keys.wrong("attention.sliding_window", "no window in this architecture")
        # Mistral travels under the name llama; the window is what tells them apart.
        config["model_type"] = "mistral"
        config["sliding_window"] = window
        del config["attention_bias"], config["mlp_bias"]

    def _add_rope(self, keys: ConfigReader, config: dict[str, Any]) -> None:
        scale_linear = keys.number("rope.scale_linear", 0, 1e6, default=0.0)
        default = "linear" if scale_linear not in (0, 1) else "none"
        kind = keys.text("rope.scaling.type", ("none", "linear", "yarn"), default)
        factor = keys.number("rope.scaling.factor", 0, 1e6, default=scale_linear)
        keys.ignore("rope.scaling.original_context_length", "rope.scaling.finetuned")
        factors = self._tensors.get(_ROPE_FACTORS)
        if kind == "yarn":
            if factors is not None:
                raise keys.error("rope.scaling.type", f"is yarn, beside a tensor {_ROPE_FACTORS}")
            config["rope_scaling"] = self._yarn(keys, factor)
        elif kind == "linear":
            if factors is not None:
                raise keys.error("rope.scaling.type", f"is linear, beside a tensor {_ROPE_FACTORS}")
            config["rope_scaling"] = {"rope_type": "linear", "factor": factor or 1.0}
        elif factors is not None:
            config["rope_scaling"] = {"rope_type": "factors", "factors": self._factors()}

    def _yarn(self, keys: ConfigReader, factor: float) -> dict[str, Any]:
        yarn: dict[str, Any] = {"rope_type": "yarn", "factor": factor or None}
        yarn["original_max_position_embeddings"] = keys.values.get(
            "rope.scaling.original_context_length"
        )
        for key, field in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
            yarn[field] = keys.number(f"rope.scaling.{key}", 0, 1e6, default=None)
        return {field: value for field, value in yarn.items() if value is not None}

    def _factors(self) -> list[float]:
        """One divisor per pair: how a GGUF file says llama3."""
        tensor = self._supported(_ROPE_FACTORS)
        if tensor.dtype != "F32" or len(tensor.shape) != 1 or tensor.shape[0] > 1 << 16:
            raise WeightError(
                f"{self.file_of(_ROPE_FACTORS)}: tensor {label(tensor.name)} is {tensor.dtype} of "
                f"shape {tensor.shape}, expected one dimension of F32"
            )
        values = self._holders[_ROPE_FACTORS].view(tensor.begin, tensor.end)
        return list(struct.unpack(f"<{tensor.shape[0]}f", values))


def hugging_face_name(name: str) -> str:
    """``blk.3.attn_q.weight`` -> ``model.layers.3.self_attn.q_proj.weight``; else the name."""
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _LAYER_NAMES:
        _, layer, source, kind = parts
        if layer.isdecimal() and kind in ("weight", "bias"):
            return f"model.layers.{layer}.{_LAYER_NAMES[source]}.{kind}"
    return name
