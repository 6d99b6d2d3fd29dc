"""Folders of tiny models of the families, from the fixtures (tests/fixtures/families)."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from builders.named_weights import tensors_of
from onward import _core
from onward.load import architectures
from onward.spec import to_fields

FIXTURES = Path(__file__).parents[1] / "fixtures" / "families"
TYPES = sorted(path.stem for path in FIXTURES.glob("*.json"))


@functools.cache
def fixture_of(model_type: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / f"{model_type}.json").read_text("utf-8"))
    return found


def write_folder(model_type: str, folder: Path) -> Path:
    """The model of a type, with its stored config."""
    fixture = fixture_of(model_type)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fixture["config"]), "utf-8")
    save_file(tensors_of(fixture), folder / "model.safetensors")
    return folder


def features_of(model_type: str) -> set[str]:
    """The features of a type's layers that layers of Llama do not have."""
    spec = architectures.read_spec(fixture_of(model_type)["config"])
    return set(_core.layer_features(_core.DecoderSpec(to_fields(spec))))


@functools.cache
def types_with_all_features() -> tuple[str, ...]:
    """Few types that have every feature between them."""
    features = {model_type: features_of(model_type) for model_type in TYPES}
    missing, chosen = set().union(*features.values()), []
    while missing:
        best = max(features, key=lambda name: len(features[name] & missing))
        chosen.append(best)
        missing -= features[best]
    return tuple(chosen)
