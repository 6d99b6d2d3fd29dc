"""Each family of models against transformers: logits and greedy tokens of a tiny model.

The fixtures hold configs, and what transformers 5.24 computes in float32 from weights that follow
from the names of tensors. scripts/check_families.py --write makes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import onward
from builders.named_weights import tensors_of
from onward.load import architectures
from onward.load.architectures.model_types import MULTIMODAL

FIXTURES = Path(__file__).parents[1] / "fixtures" / "families"
TYPES = sorted(path.stem for path in FIXTURES.glob("*.json"))
BOUND = 1e-5  # of the range of the logits


def fixture_of(model_type: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / f"{model_type}.json").read_text("utf-8"))
    return found


def test_every_type_has_a_fixture() -> None:
    assert set(architectures.families()) - set(TYPES) == set(WITHOUT_A_CLASS)


WITHOUT_A_CLASS = {
    "exaone",  # transformers has no model for it
}


@pytest.mark.parametrize("model_type", TYPES)
def test_logits_and_tokens_equal_those_of_transformers(model_type: str, tmp_path: Path) -> None:
    fixture = fixture_of(model_type)
    (tmp_path / "config.json").write_text(json.dumps(fixture["config"]), "utf-8")
    save_file(tensors_of(fixture), tmp_path / "model.safetensors")
    expected = np.array(fixture["logits"], np.float32)
    bound = BOUND * float(np.ptp(expected))
    for chunk in (256, 7):
        with onward.LLM(tmp_path, dtype="f32", threads=2, prefill_chunk_tokens=chunk) as llm:
            found = llm.logits(fixture["prompt"])[-1]
            assert float(np.max(np.abs(found - expected))) <= bound
            result = llm.generate(
                fixture["prompt"],
                max_new_tokens=len(fixture["greedy"]),
                ignore_eos=True,
                temperature=0.0,
            )
            assert list(result.token_ids) == fixture["greedy"]


@pytest.mark.parametrize("model_type", sorted(set(TYPES) & set(MULTIMODAL)))
def test_multimodal_files_run_as_text_models(model_type: str) -> None:
    config = fixture_of(model_type)["config"]
    assert "vision_config" in config
    assert architectures.read_spec(config).num_layers == 4
