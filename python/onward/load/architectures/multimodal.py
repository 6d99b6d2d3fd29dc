"""Configs of multimodal models, of which the text model alone is read.

Such a config has the text model's under ``text_config``. The fields beside it are of images and
sound, except for ``tie_word_embeddings``. Old files of some types have the fields of the text model
at the top, beside ``vision_config``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import refuse_quantized
from onward.load.architectures.model_types import MULTIMODAL

# Fields of the whole model that a text does not meet.
_MEDIA_FIELDS = (
    *("vision_config", "audio_config", "vq_config", "mm_tokens_per_image", "projector_hidden_act"),
    *("image_token_index", "video_token_index", "boi_token_index", "eoi_token_index"),
    *("image_seq_length", "multimodal_projector_bias", "spatial_merge_size"),
    *("vision_feature_layer", "vision_feature_select_strategy", "image_grid_pinpoints"),
    *("image_size", "patch_size", "num_channels", "scale_factor"),
    *("projector_layernorm_eps", "projection_hidden_size", "projection_layer_norm_eps"),
    *("use_image_newline_parameter", "vision_soft_tokens_per_image", "audio_soft_tokens_per_image"),
)


def is_multimodal(config: Mapping[str, object]) -> bool:
    """Whether a config is of a model for images or sound, too."""
    nested = "text_config" in config or "vision_config" in config
    return config.get("model_type") in MULTIMODAL and nested


def text_reader(whole: ConfigReader) -> ConfigReader:
    """The reader of the text model's config.

    Raises:
        ConfigError: a field beside it that may change what the text model computes.
    """
    model_type = whole.text("model_type", tuple(MULTIMODAL))
    text = whole.section("text_config")
    if text is None and "hidden_size" in whole:
        values = {key: value for key, value in whole.values.items() if key not in _MEDIA_FIELDS}
        return ConfigReader({**values, "model_type": MULTIMODAL[model_type]}, whole.where)
    if text is None:
        raise whole.wrong("text_config", "the config of the text model")
    values = dict(text.values)
    if values.get("model_type") in (None, model_type):
        values["model_type"] = MULTIMODAL[model_type]
    if "tie_word_embeddings" in whole:
        values["tie_word_embeddings"] = whole.flag("tie_word_embeddings", False)
    # A field that the text model has, too, is a copy. The text model's counts.
    whole.ignore(*text.values)
    refuse_quantized(whole)
    whole.ignore(*_MEDIA_FIELDS)
    whole.refuse_the_rest()
    return ConfigReader(values, whole.where, "text_config.")


def with_text_ids(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the ids of special tokens, which a multimodal one may have in its text_config
    alone."""
    text = config.get("text_config")
    if not is_multimodal(config) or not isinstance(text, Mapping):
        return dict(config)
    ids = {key: value for key, value in text.items() if key.endswith("_token_id")}
    return ids | {key: value for key, value in config.items() if value is not None}
