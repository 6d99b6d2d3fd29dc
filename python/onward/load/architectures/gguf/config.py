"""The metadata of a GGUF file as config.json would say it.

Every key of the architecture's namespace is arithmetic, so one that is not understood is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_LAYERS
from onward.load.architectures.gguf.family import GgufFamily
from onward.load.architectures.gguf.rope import read_rope_scaling
from onward.load.architectures.layer_kinds import FULL, SLIDING
from onward.load.architectures.model_types import GGUF_ARCHITECTURES

# What llama.cpp computes with where a file does not say the base of the rotation.
_DEFAULT_BASE = 10000.0
_PATTERN = "attention.sliding_window_pattern"


@dataclass(frozen=True)
class GgufTensors:
    """What a config takes from the tensors of a file."""

    shapes: Mapping[str, tuple[int, ...]]
    vector: Callable[[str], list[float]]
    """The values of a vector in F32; WeightError for other tensors."""


def gguf_model_type(metadata: Mapping[str, object], where: str) -> str:
    """The ``model_type`` of a GGUF file.

    Raises:
        ConfigError: its architecture is not supported.
    """
    architecture = ConfigReader(metadata, where).text(
        "general.architecture", sorted(GGUF_ARCHITECTURES)
    )
    types = GGUF_ARCHITECTURES[architecture]
    for key, model_type in types.items():
        if key and _is_on(metadata.get(f"{architecture}.{key}")):
            return model_type
    return types[""]


def gguf_config(
    family: GgufFamily,
    model_type: str,
    metadata: Mapping[str, object],
    tensors: GgufTensors,
    where: str,
) -> dict[str, Any]:
    """The config of a GGUF file, as the converter read it.

    Raises:
        ConfigError: a key is missing, has a wrong value, or is not understood.
    """
    return _Config(family, model_type, metadata, tensors, where).read()


class _Config:
    def __init__(
        self,
        family: GgufFamily,
        model_type: str,
        metadata: Mapping[str, object],
        tensors: GgufTensors,
        where: str,
    ) -> None:
        prefix = f"{metadata['general.architecture']}."
        values = {
            key[len(prefix) :]: value for key, value in metadata.items() if key.startswith(prefix)
        }
        self._keys = ConfigReader(values, where, prefix)
        self._family = family
        self._tensors = tensors
        self._config: dict[str, Any] = {"model_type": model_type}

    def read(self) -> dict[str, Any]:
        family, keys, config = self._family, self._keys, self._config
        self._copy_keys()
        embedding = self._tensors.shapes.get("token_embd.weight")
        if embedding is not None:
            # The matrix decides how many tokens there are: older files lack the key.
            config.setdefault("vocab_size", embedding[0])
        config["tie_word_embeddings"] = "output.weight" not in self._tensors.shapes
        if keys.values.get("tensor_data_layout") == "Meta AI original pth":
            keys.ignore("tensor_data_layout")  # the order of rows that ``interleaved`` undoes
        for key, expected in {"attention.causal": True, **family.same}.items():
            keys.ignore(key)
            if key in keys and _decimal(keys.values[key]) != expected:
                raise keys.wrong(key, f"{expected} in this architecture")
        self._add_head_size()
        if family.full_every:
            self._add_windows(family.full_every)
        if family.rotates:
            config.setdefault("rope_theta", _DEFAULT_BASE)
            scaling = read_rope_scaling(keys, self._tensors.shapes, self._tensors.vector)
            if scaling is not None:
                yarn = family.yarn if scaling["rope_type"] == "yarn" else {}
                config["rope_scaling"] = {**scaling, **yarn}
        config.update(family.fixed)
        for field, names in family.from_tensors.items():
            config[field] = any(f"blk.0.{name}" in self._tensors.shapes for name in names)
        if family.complete is not None:
            config.update(family.complete(config))
        keys.refuse_the_rest(strict=True)
        return config

    def _copy_keys(self) -> None:
        for key, field in {**self._family.optional, **self._family.required}.items():
            self._keys.ignore(key)
            if key in self._keys:
                value = _decimal(self._keys.values[key])
                self._config[field] = None if field == "sliding_window" and value == 0 else value
            elif key in self._family.required:
                raise self._keys.error(key, "is missing: every file of this architecture has it")

    def _add_head_size(self) -> None:
        keys, config = self._keys, self._config
        hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
        if "head_dim" not in config and type(hidden) is int and type(heads) is int and heads > 0:
            if hidden % heads:
                raise keys.error("attention.head_count", f"is {heads}, not a divisor of {hidden}")
            config["head_dim"] = hidden // heads
        size = config.get("head_dim")
        keys.ignore("attention.value_length", "rope.dimension_count")
        value_length = keys.values.get("attention.value_length", size)
        if value_length != size:
            raise keys.wrong("attention.value_length", f"the width of a head, {size}")
        rotated = keys.values.get("rope.dimension_count", size)
        if self._family.partial and type(size) is int and type(rotated) is int:
            if not 0 < rotated <= size:
                raise keys.wrong("rope.dimension_count", f"at most the width of a head, {size}")
            # A share that gives this count when it is multiplied by the width and rounded down.
            config["partial_rotary_factor"] = min(1.0, (rotated + 0.25) / size)
        elif rotated != size:
            raise keys.wrong("rope.dimension_count", f"the width of a head, {size}")

    def _add_windows(self, full_every: int) -> None:
        keys, config = self._keys, self._config
        keys.ignore("attention.sliding_window", _PATTERN)
        window = keys.values.get("attention.sliding_window", self._family.default_window)
        pattern = keys.values.get(_PATTERN, full_every)
        layers = config["num_hidden_layers"]
        if type(layers) is not int or not 0 < layers <= MAX_LAYERS:
            return  # the family refuses it
        if isinstance(pattern, list):
            if len(pattern) != layers:
                raise keys.error(_PATTERN, f"has {len(pattern)} values, expected {layers}, one "
                                 "for each layer")  # fmt: skip
            slides = [bool(value) for value in pattern]
        elif type(pattern) is int and pattern >= 0:
            slides = [pattern == 0 or (layer + 1) % pattern != 0 for layer in range(layers)]
        else:
            raise keys.wrong(_PATTERN, "a whole number or a list of true and false")
        config["sliding_window"] = window or None
        if not window:
            slides = [False] * layers
        config["layer_types"] = [SLIDING if each else FULL for each in slides]


def _is_on(value: object) -> bool:
    return value not in (None, 0, False)


def _decimal(value: object) -> object:
    """The number that config.json says: a float32 is the shortest decimal that rounds to it."""
    if isinstance(value, float) and float(np.float32(value)) == value:
        return float(str(np.float32(value)))
    return value
