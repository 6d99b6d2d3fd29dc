"""Writes fixtures of the tests: what transformers computes with weights that follow from the names
of tensors (tests/builders/named_weights.py)."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from builders.named_weights import Tensors, tensors_of
from families.reference import Reference

GREEDY = 8
"""Tokens that a fixture holds."""


def rename_weights(folder: Path) -> list[list[Any]]:
    """Replaces the weights of a saved model; returns the entries of its tensors."""
    (path,) = folder.glob("*.safetensors")
    saved = load_file(path)
    saved.pop("roformer.encoder.embed_positions.weight", None)  # its rotation, which is computed
    entries = [entry for entry in _entries(saved)]
    save_file(tensors_of({"tensors": entries}), path, metadata={"format": "pt"})
    return entries


def _entries(saved: dict[str, Any]) -> list[list[Any]]:
    groups: dict[Any, list[str]] = defaultdict(list)
    for name, tensor in saved.items():
        groups[re.sub(r"(?<=\.)\d+(?=\.)", "*", name), tensor.shape].append(name)
    entries: list[list[Any]] = []
    for (pattern, shape), names in groups.items():
        values = np.concatenate([saved[name].ravel() for name in names])
        centre = float(np.round(values.mean())) if len(shape) < 2 else 0.0
        spread = max(float(f"{values.std():.1g}"), 0.01)
        counts = [max(found) + 1 for found in zip(*map(_indices, names), strict=True)]
        whole = Tensors(pattern, tuple(counts), (1,), 0, 0)
        if {name for name, _ in whole} == set(names):
            entries.append([pattern, counts, list(shape), centre, spread])
        else:
            entries += [[name, [], list(shape), centre, spread] for name in sorted(names)]
    return entries


def _indices(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"(?<=\.)\d+(?=\.)", name)]


def write_fixture(path: Path, folder: Path, entries: list[list[Any]], found: Reference) -> None:
    """The config, the tensors, a prompt, its last logits, and greedy tokens after it."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config.pop("transformers_version", None)
    lines = {
        "config": config,
        "tensors": entries,
        "prompt": found.prompt,
        "logits": [float(f"{value:.6g}") for value in found.logits[-1]],
        "greedy": found.greedy[:GREEDY],
    }
    text = ",\n".join(
        f'"{key}": {json.dumps(value, separators=(",", ":"))}' for key, value in lines.items()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{" + text + "}\n", "utf-8")
