"""Writes a stand-in for a model: the same attention, a small rest, and random weights, in a folder.

The cache depends on layers, kv heads, head_dim and windows, not on the width of the rest of the
network or on the vocabulary. So the cache of a model that is too large for this machine's disk can
be measured. The output of the stand-in has no meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models

from onward.load import architectures
from onward.load.architectures import PlannedTensor
from onward.load.architectures.parts import stored_shapes
from onward.spec import DecoderSpec

HIDDEN, VOCABULARY = 64, 256
DEVIATION = 0.02


def write_stand_in(
    folder: Path, config: Mapping[str, object], spec: DecoderSpec, stored: str
) -> None:
    """Write config.json, model.safetensors in ``stored`` (F32, F16 or BF16) and a tokenizer."""
    small = {
        **config,
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "vocab_size": VOCABULARY,
        "head_dim": spec.head_dim,  # else it would follow from hidden_size
        "num_key_value_heads": spec.num_kv_heads,
        "tie_word_embeddings": True,
    }
    # Token ids may exceed the small vocabulary; the weights here are not quantized.
    for key in [key for key in small if key.endswith("_token_id") or key == "quantization_config"]:
        del small[key]
    (folder / "config.json").write_text(json.dumps(small), encoding="utf-8")
    plan = architectures.tensor_plan(architectures.read_spec(small, "stand-in"))
    _write_tensors(folder / "model.safetensors", plan, stored)
    _tokenizer().save(str(folder / "tokenizer.json"))


def _write_tensors(path: Path, plan: Sequence[PlannedTensor], dtype: str) -> None:
    """Write a safetensors file: the length of the header, the header, the tensors in order."""
    generator = np.random.default_rng(0)
    header: dict[str, object] = {}
    tensors: list[bytes] = []
    begin = 0
    norms = {name for planned in plan if planned.name.endswith("norm") for name in planned.sources}
    for source, shape in stored_shapes(plan).items():
        values = generator.standard_normal(prod(shape), dtype=np.float32) * DEVIATION
        if source in norms:
            values[:] = 1
        tensors.append(_stored(values.astype(np.float32), dtype))
        end = begin + len(tensors[-1])
        header[source] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *tensors]))


def _stored(values: NDArray[np.float32], dtype: str) -> bytes:
    """The values in little endian; bf16 is truncated, not rounded."""
    if dtype == "F32":
        return values.astype("<f4").tobytes()
    if dtype == "F16":
        return values.astype("<f2").tobytes()
    return (values.view(np.uint32) >> 16).astype("<u2").tobytes()


def _tokenizer() -> Tokenizer:
    """A tokenizer in which every token has text, so that a stream shows each token at once."""
    pieces = {f" {token}": token for token in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(pieces, unk_token=" 0"))
    tokenizer.decoder = decoders.Fuse()
    return tokenizer
