"""The common fields of configs in the families: spellings, defaults, partial rotation."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from builders.checkpoints import config_of
from onward.errors import ConfigError
from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import GPT2_FIELDS, activation, decoder_spec
from onward.spec import MlpSpec, NormSpec


class TestSpellings:
    """Families with their own spelling of fields."""

    def reader(self, **values: Any) -> ConfigReader:
        return ConfigReader(values, "config.json").spelled(hidden_size="n_embd")

    def test_the_spelling_of_the_family_is_read(self) -> None:
        assert self.reader(n_embd=8).integer("hidden_size", 1, 9) == 8
        assert self.reader(hidden_size=8).integer("hidden_size", 1, 9) == 8
        assert self.reader(n_embd=8, hidden_size=8).integer("hidden_size", 1, 9) == 8
        assert "hidden_size" in self.reader(n_embd=8)
        assert "hidden_size" not in self.reader()

    def test_errors_name_the_field_of_the_file(self) -> None:
        for values, message in (
            ({"n_embd": 10}, "n_embd is 10, expected an integer from 1 to 9"),
            ({"hidden_size": 10}, "hidden_size is 10"),
            ({}, "n_embd is missing"),
            ({"n_embd": 8, "hidden_size": 7}, "n_embd is 8, but hidden_size is 7"),
        ):
            with pytest.raises(ConfigError, match=rf"^config\.json: {message}"):
                self.reader(**values).integer("hidden_size", 1, 9)

    def test_a_field_that_means_something_else_is_not_read(self) -> None:
        reader = ConfigReader({"decoder_layers": 2, "num_hidden_layers": 9}, "config.json")
        reader.renamed(num_hidden_layers="decoder_layers")
        assert reader.integer("num_hidden_layers", 1, 9) == 2
        reader.refuse_the_rest()
        with pytest.raises(ConfigError, match=r"^config\.json: decoder_layers is missing"):
            ConfigReader({"num_hidden_layers": 9}, "config.json").renamed(
                num_hidden_layers="decoder_layers"
            ).integer("num_hidden_layers", 1, 9)

    def test_both_spellings_are_understood(self) -> None:
        reader = self.reader(hidden_size=8, n_embd=None)
        reader.integer("hidden_size", 1, 9)
        reader.refuse_the_rest()


class TestDecoderSpec:
    """The common fields with the options of families."""

    GPT: ClassVar[dict[str, Any]] = {
        "n_embd": 8,
        "n_layer": 2,
        "n_head": 2,
        "n_positions": 32,
        "n_inner": None,
        "vocab_size": 16,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
    }

    def test_a_family_that_does_not_rotate(self) -> None:
        config = ConfigReader(self.GPT, "config.json").spelled(**GPT2_FIELDS)
        spec = decoder_spec(
            config,
            "gpt2",
            default_context=1024,
            default_inner=4,
            default_tied=True,
            eps_field="layer_norm_epsilon",
            rotates=False,
            mlp=MlpSpec(activation(config, "gelu_new"), gated=False),
            norms=NormSpec("layer", bias=True),
        )
        assert (spec.hidden_size, spec.intermediate_size, spec.max_context) == (8, 32, 32)
        assert (spec.layer_ropes, spec.rope.inv_freq) == ((-1, -1), (0.0, 0.0))
        assert (spec.mlp.activation, spec.norm_eps, spec.tied_head) == ("gelu_tanh", 1e-5, True)

    @pytest.mark.parametrize(("share", "rotated"), [(None, 4), (0.25, 2), (1, 8)])
    def test_heads_with_partial_rotation(self, share: float | None, rotated: int) -> None:
        config = config_of(num_attention_heads=4, partial_rotary_factor=share)
        config["attention_bias"] = None
        reader = ConfigReader(config, "config.json")
        spec = decoder_spec(reader, "x", default_context=64, default_rotated=0.5)
        expected = [10000.0 ** (-2 * i / rotated) for i in range(rotated // 2)]
        assert len(spec.rope.inv_freq) == 4
        assert spec.rope.inv_freq[: rotated // 2] == pytest.approx(expected)
        assert set(spec.rope.inv_freq[rotated // 2 :]) <= {0.0}

    @pytest.mark.parametrize("share", [0.1, 0.4, -1, "half"])
    def test_a_wrong_share_is_refused(self, share: object) -> None:
        config = config_of(num_attention_heads=4, rope_parameters={"partial_rotary_factor": share})
        with pytest.raises(ConfigError, match=r"rope_parameters\.partial_rotary_factor"):
            decoder_spec(
                ConfigReader(config, "config.json"), "x", default_context=64, default_rotated=0.5
            )
