"""Weight files for the fuzzer, and the reader of each damaged file."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path

import numpy as np

from builders.checkpoints import (
    BLOCKS,
    TINY,
    TINY_GGUF,
    Stored,
    config_of,
    gguf_bytes,
    gguf_name,
    random_blocks,
    random_weights,
    stored,
    tiny_gguf_tensors,
    write_folder,
)
from builders.mutations import Change, Target, damaged, framed_header
from onward.load.hub import find_model
from onward.load.loading import check_headers, load_model, plan_of, read_spec
from onward.load.weights import open_checkpoint
from onward.load.weights.checkpoint import STORAGE
from onward.load.weights.safetensors import INDEX_NAME


def read_weights(path: Path) -> None:
    """All parts of loading that read the files, and the first and last byte of every tensor.

    GGUF models are also packed, because their tensors may change their format.
    """
    checkpoint = open_checkpoint(find_model(path))
    try:
        spec = read_spec(checkpoint)
        check_headers(plan_of(spec, checkpoint), checkpoint, spec)
        for name in checkpoint.names():
            if checkpoint.describe(name)[0] in STORAGE:
                buffer = checkpoint.tensor(name).buffer
                sum(buffer[:1]) + sum(buffer[-1:])
                checkpoint.release(name)
    finally:
        checkpoint.close()
    if path.suffix == ".gguf":
        load_model(find_model(path), "bf16", 1)


def gguf_of_blocks() -> tuple[dict[str, object], dict[str, Stored]]:
    """A GGUF file whose matrices use every block format in turn."""
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 3}
    keys = {"llama.embedding_length": 256, "llama.feed_forward_length": 256, "llama.block_count": 3}
    formats = itertools.cycle(BLOCKS)
    generator = np.random.default_rng(0)
    tensors = {}
    for name, array in random_weights(config_of(**sizes)).items():
        matrix = array.ndim == 2
        tensors[gguf_name(name)] = (
            random_blocks(next(formats), array.shape, generator) if matrix else stored(array)
        )
    assert {tensor.dtype for tensor in tensors.values()} == {"F32", *BLOCKS}
    return {**TINY_GGUF, **keys}, tensors


def gguf(folder: Path, *, blocks: bool) -> Target:
    path = folder / "m.gguf"
    metadata, tensors = gguf_of_blocks() if blocks else (TINY_GGUF, tiny_gguf_tensors())
    path.write_bytes(gguf_bytes(metadata, tensors))
    head = path.stat().st_size - sum(len(tensor.data) for tensor in tensors.values())
    return Target(path, damaged(head), partial(read_weights, path))


def of_folder(folder: Path, name: str, change: Change | None = None) -> Target:
    """One file of a model folder; by default it is damaged everywhere."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    write_folder(folder, config_of(rope_parameters={**rope, "rope_theta": 500.0}))
    if name == INDEX_NAME:
        shard = "model-00001-of-00001.safetensors"  # not used beside model.safetensors
        (folder / "model.safetensors").rename(folder / shard)
        weight_map = dict.fromkeys(random_weights(TINY), shard)
        reported = {"metadata": {"total_size": 1}, "weight_map": weight_map}
        (folder / name).write_text(json.dumps(reported))
    file = folder / name
    head = file.stat().st_size
    if file.suffix == ".safetensors":
        head = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    return Target(file, change or damaged(head), partial(read_weights, folder))


WEIGHTS = {
    "safetensors": partial(of_folder, name="model.safetensors"),
    "safetensors-header": partial(of_folder, name="model.safetensors", change=framed_header),
    "gguf": partial(gguf, blocks=False),
    "gguf-blocks": partial(gguf, blocks=True),
    "config": partial(of_folder, name="config.json"),
    "index": partial(of_folder, name=INDEX_NAME),
}
