"""Each family of models against transformers: logits and greedy tokens of a tiny model.

The fixtures hold configs, and what transformers 5.24 computes in float32 from weights that follow
from the names of tensors. scripts/check_families.py --write makes them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onward
from builders.family_folders import TYPES, fixture_of, write_folder
from onward.load import architectures
from onward.load.architectures.model_types import MULTIMODAL

BOUND = 1e-5  # of the range of the logits


def test_every_type_has_a_fixture() -> None:
    assert set(architectures.families()) - set(TYPES) == set()


@pytest.mark.parametrize("model_type", TYPES)
def test_logits_and_tokens_equal_those_of_transformers(model_type: str, tmp_path: Path) -> None:
    fixture, folder = fixture_of(model_type), write_folder(model_type, tmp_path)
    expected = np.array(fixture["logits"], np.float32)
    bound = BOUND * float(np.ptp(expected))
    for chunk in (256, 7):
        with onward.LLM(folder, dtype="f32", threads=2, prefill_chunk_tokens=chunk) as llm:
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
