"""Multimodal files run as text models, with a warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.checkpoints import config_of, random_weights, write_folder
from onward.errors import ConfigError
from onward.load.architectures import read_spec
from onward.load.hub import find_model
from onward.load.loading import load_model

TEXT = config_of(model_type="mistral", sliding_window=None, eos_token_id=7)


def whole_config(text: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """As transformers writes it for Mistral 3."""
    return {
        "model_type": "mistral3",
        "architectures": ["Mistral3ForConditionalGeneration"],
        "image_token_index": 10,
        "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu",
        "spatial_merge_size": 2,
        "text_config": TEXT if text is None else text,
        "vision_config": {"model_type": "pixtral", "hidden_size": 1024},
        "vision_feature_layer": -1,
        **changes,
    }


def test_the_spec_equals_the_text_model() -> None:
    assert read_spec(whole_config()) == read_spec(TEXT)
    without_type = {key: value for key, value in TEXT.items() if key != "model_type"}
    assert read_spec(whole_config(without_type)) == read_spec(TEXT)
    tied = read_spec(whole_config(tie_word_embeddings=True))
    assert tied == read_spec({**TEXT, "tie_word_embeddings": True})
    copies = whole_config(hidden_size=1, num_hidden_layers=99)  # as the config of Fuyu has them
    assert read_spec(copies) == read_spec(TEXT)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (whole_config({**TEXT, "hidden_size": 0}), r"text_config\.hidden_size is 0"),
        (whole_config({**TEXT, "logits_scaling": 8}), r"text_config\.logits_scaling is 8"),
        (whole_config({**TEXT, "model_type": "t5"}), r"text_config\.model_type is 't5'"),
        (whole_config(text_config=3), "text_config is 3, expected an object"),
        (whole_config(text_config={}), r"text_config is \{\}, expected the config of the text"),
        (whole_config(attention_scale=8), "attention_scale is 8"),
        (whole_config(quantization_config={"bits": 4}), "quantization_config is present"),
    ],
)
def test_fields_that_may_change_the_arithmetic_are_refused(
    config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^config\.json: {message}"):
        read_spec(config)


def test_fields_of_images_in_several_types() -> None:
    """As Idefics 3, ViP-LLaVA, Kimi K2.5 and Qwen 3 VL have them."""
    for model_type, fields in (
        ("idefics3", {"scale_factor": 2}),
        ("vipllava", {"projector_layernorm_eps": 1e-5}),
        ("kimi_k25", {"projection_hidden_size": 1152, "projection_layer_norm_eps": 1e-5}),
        ("mistral3", {"text_config": {**TEXT, "model_type": "mistral3"}}),
    ):
        assert read_spec(whole_config(**{"model_type": model_type, **fields})) == read_spec(TEXT)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "new": lambda name: name.replace("model.", "model.language_model."),
    "old": lambda name: f"language_model.{name}",
    "idefics": lambda name: name.replace("model.", "model.text_model."),
    "emu": lambda name: f"text_model.{name}",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_weights_equal_the_text_model(tmp_path: Path, spelling: str) -> None:
    weights = random_weights(TEXT)
    plain = load_model(find_model(write_folder(tmp_path / "text", TEXT, weights)), "auto", 1)
    media = {
        "vision_tower.patch_conv.weight": np.zeros((2, 3, 4, 4)),
        "model.vision_tower.ln_pre.weight": np.zeros(4),
        "multi_modal_projector.linear_1.weight": np.zeros((2, 2)),
    }
    named = {SPELLINGS[spelling](name): values for name, values in weights.items()} | media
    folder = write_folder(tmp_path / "whole", whole_config(), named)
    with pytest.warns(UserWarning, match="model_type mistral3 .* runs as a text model") as seen:
        whole = load_model(find_model(folder), "auto", 1)
    assert len(seen) == 1
    assert [bytes(data) for _, _, data in whole.core.packed()] == [
        bytes(data) for _, _, data in plain.core.packed()
    ]
    assert whole.config["eos_token_id"] == 7
