"""The rotary frequencies of every rope kind, compared with transformers and with hand
calculations.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.checkpoints import config_of
from onward.errors import ConfigError
from onward.load.architectures import read_spec
from onward.spec import DecoderSpec

FIXTURES = Path(__file__).parents[1] / "fixtures"

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 2.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def spec_of(head_dim: int = 4, **changes: Any) -> DecoderSpec:
    changes = {"hidden_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1, **changes}
    return read_spec(config_of(head_dim=head_dim, **changes))


def frequencies(head_dim: int = 4, **changes: Any) -> np.ndarray:
    return np.array(spec_of(head_dim, **changes).rope.inv_freq)


def test_theta_at_the_top_or_in_rope_parameters() -> None:
    inside = {"rope_type": "default", "rope_theta": 4.0}
    assert frequencies(rope_parameters=inside).tolist() == [1, 0.5]
    assert frequencies(rope_theta=4.0).tolist() == [1, 0.5]
    assert frequencies(rope_theta=4).tolist() == [1, 0.5]
    assert frequencies(rope_parameters=inside, rope_theta=4.0).tolist() == [1, 0.5]
    assert frequencies(rope_theta=16.0).tolist() == [1, 0.25]
    assert frequencies() == pytest.approx([1, 0.01])
    assert frequencies(rope_parameters={"rope_theta": 4.0}).tolist() == [1, 0.5]
    assert frequencies(rope_theta=4.0, rope_scaling={}).tolist() == [1, 0.5]
    with pytest.raises(ConfigError, match="rope_theta is 5, but the rope section says 4"):
        frequencies(rope_parameters=inside, rope_theta=5.0)


@pytest.mark.parametrize("key", ["type", "rope_type"])
@pytest.mark.parametrize("section", ["rope_scaling", "rope_parameters"])
def test_linear(section: str, key: str) -> None:
    scaling = {key: "linear", "factor": 2.0}
    assert frequencies(rope_theta=4.0, **{section: scaling}).tolist() == [0.5, 0.25]
    assert spec_of(**{section: scaling}).max_context == 128


@pytest.mark.parametrize("section", ["rope_scaling", "rope_parameters"])
def test_llama3_by_hand(section: str) -> None:
    got = frequencies(rope_theta=4.0, **{section: LLAMA3})
    # The first pair turns 8 / 2 pi times in the original context: between 1 and 4, so mixed.
    share = (8 / (2 * math.pi) - 1) / 3
    assert got == pytest.approx([(1 - share) / 2 + share, 0.25], rel=1e-7)
    assert got[0] == pytest.approx(0.54554, abs=1e-6)


def test_llama3_of_head_dim_64() -> None:
    block = {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192}
    plain = frequencies(64, rope_theta=500000.0)
    got = frequencies(64, rope_theta=500000.0, rope_scaling=block, max_position_embeddings=131072)
    assert (got[:15] == plain[:15]).all()
    assert got[15:18] == pytest.approx([1.290547928e-3, 4.29556797e-4, 9.7082878e-5], rel=1e-6)
    assert (got / plain)[15:18] == pytest.approx([0.605573, 0.303743, 0.103448], abs=1e-6)
    assert got[18:] == pytest.approx(plain[18:] / 32, rel=1e-7)
    assert got[18] == pytest.approx(1.9461638e-5, rel=1e-7)


def test_llama3_of_head_dim_128() -> None:
    block = {**LLAMA3, "factor": 8.0, "original_max_position_embeddings": 8192}
    plain = frequencies(128, rope_theta=500000.0)
    ratio = frequencies(128, rope_theta=500000.0, rope_scaling=block) / plain
    assert (ratio[:29] == 1).all()
    mixed = [0.828168, 0.643743, 0.493507, 0.371122, 0.271425, 0.190211]
    assert ratio[29:35] == pytest.approx(mixed, abs=5e-6)
    assert ratio[35:] == pytest.approx(np.full(29, 0.125), rel=1e-7)


def test_dynamic_leaves_short_sequences_alone() -> None:
    scaling = {"type": "dynamic", "factor": 4.0}
    spec = spec_of(rope_theta=4.0, rope_scaling=scaling, max_position_embeddings=16)
    assert spec.rope.inv_freq == (1, 0.5)
    assert (spec.rope.theta, spec.rope.dynamic_factor) == (4.0, 4.0)
    assert (spec.rope.dynamic_original_context, spec.max_context) == (16, 64)
    with pytest.raises(ConfigError, match="head_dim of at least 4"):
        spec_of(2, rope_scaling=scaling)


def test_yarn_ramp_and_attention_factor() -> None:
    spec = spec_of(64, rope_theta=10000.0, rope_scaling=YARN)
    plain = frequencies(64, rope_theta=10000.0)
    share = np.array(spec.rope.inv_freq) / plain
    assert share[0] == 1  # turns more than 32 times a context: kept. The last: divided
    assert share[-1] == pytest.approx(0.25)
    assert (np.diff(share) <= 1e-7).all()
    assert spec.rope.attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    assert spec.max_context == 128
    given = spec_of(64, rope_scaling={**YARN, "attention_factor": 1.25})
    assert given.rope.attention_factor == 1.25
    mscale = spec_of(64, rope_scaling={**YARN, "mscale": 1.5, "mscale_all_dim": 0.5})
    expected = (0.15 * math.log(4) + 1) / (0.05 * math.log(4) + 1)
    assert mscale.rope.attention_factor == pytest.approx(expected)


def test_yarn_covers_max_position_embeddings_if_that_is_more() -> None:
    """32 = 4 x 8 positions by the factor, and 64 by the config."""
    scaling = {**YARN, "original_max_position_embeddings": 8}
    assert spec_of(64, rope_scaling=scaling, max_position_embeddings=64).max_context == 64
    assert spec_of(64, rope_scaling=scaling, max_position_embeddings=16).max_context == 32


def test_a_yarn_ramp_may_end_beyond_half_the_head() -> None:
    """head_dim 8, theta 4, 64 positions. The pair that turns once is 8 ln(64 / 2 pi) / (2 ln 4) =
    6.7, rounded up to 7; the pair that turns 32 times is below 0. There are 4 pairs, so the ramp of
    7 steps is cut after the fourth: of pair i, i / 7 is divided by the factor."""
    scaling = {**YARN, "original_max_position_embeddings": 64}
    found = frequencies(8, rope_theta=4.0, rope_scaling=scaling)
    divided = np.arange(4) / 7
    assert found / frequencies(8, rope_theta=4.0) == pytest.approx(
        1 - divided + divided / 4, rel=1e-6
    )


def test_yarn_original_context_at_the_top_of_the_config() -> None:
    inside = spec_of(64, rope_scaling=YARN)
    scaling = {"rope_type": "yarn", "factor": 4.0}
    outside = spec_of(64, rope_scaling=scaling, original_max_position_embeddings=32)
    assert outside.rope == inside.rope
    # Neither: max_position_embeddings (64) is the context of pre-training.
    assert spec_of(64, rope_scaling=scaling).max_context == 256


def test_longrope_has_the_short_factors_and_the_original_context():
    """Short factors, times attention_factor sqrt(1 + ln(4) / ln(16)), up to position 16."""
    section = {
        "rope_type": "longrope",
        "short_factor": [1.0, 2.0, 4.0, 8.0],
        "long_factor": [9.0, 9.0, 9.0, 9.0],
        "original_max_position_embeddings": 16,
        "factor": 4.0,
    }
    spec = spec_of(8, rope_scaling=section)
    plain = spec_of(8).rope.inv_freq
    np.testing.assert_allclose(
        spec.rope.inv_freq, np.array(plain) / [1.0, 2.0, 4.0, 8.0], rtol=1e-6
    )
    assert spec.rope.attention_factor == pytest.approx(1.5**0.5)
    assert spec.max_context == 16


def test_positions_of_images_change_nothing_in_text():
    section = {"rope_type": "default", "mrope_section": [1, 1, 2], "mrope_interleaved": True}
    assert spec_of(64, rope_scaling=section).rope == spec_of(64).rope


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"rope_type": "banana"}, "rope_scaling.rope_type is 'banana'"),
        ({"type": "longrope", "factor": 2.0}, "rope_scaling.long_factor is missing"),
        ({"rope_type": 3}, "rope_scaling.rope_type is 3"),
        ({"factor": 2.0}, "rope_scaling.rope_type is missing"),
        ({"rope_type": "linear"}, "rope_scaling.factor is missing"),
        ({"rope_type": "linear", "factor": "2"}, "rope_scaling.factor is '2'"),
        ({"rope_type": "linear", "factor": True}, "rope_scaling.factor is True"),
        ({"rope_type": "linear", "factor": 0}, "rope_scaling.factor is 0"),
        ({"rope_type": "linear", "factor": float("nan")}, "rope_scaling.factor is nan"),
        ({"rope_type": "linear", "factor": 2, "short_factor": [1.0]}, "rope_scaling.short_factor"),
        ({"rope_type": "linear", "type": "yarn", "factor": 2}, "rope_scaling.type is 'yarn'"),
        ({"rope_type": "default", "llama_5_scaling": 2}, "rope_scaling.llama_5_scaling is 2"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({**LLAMA3, "high_freq_factor": 1.0}, "rope_scaling.high_freq_factor is 1"),
        ({**LLAMA3, "low_freq_factor": 0}, "rope_scaling.low_freq_factor is 0"),
        (
            {**LLAMA3, "original_max_position_embeddings": 0},
            "original_max_position_embeddings is 0",
        ),
        ({**YARN, "truncate": 1}, "rope_scaling.truncate is 1"),
        ({**YARN, "rope_theta": 1.0}, "rope_scaling.rope_theta is 1"),
        ({"rope_type": "factors", "factors": [1.0]}, "rope_scaling.factors is a list of 1"),
        ({"full_attention": {"rope_type": "default"}}, "rope_scaling.rope_type is missing"),
    ],
)
def test_bad_rope_section_is_an_error_that_names_the_field(
    section: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        spec_of(rope_scaling=section)


def test_two_different_sections_are_an_error() -> None:
    linear = {"rope_type": "linear", "factor": 2.0}
    assert frequencies(rope_scaling=linear, rope_parameters=linear)[0] == 0.5
    with pytest.raises(ConfigError, match="rope_scaling and rope_parameters"):
        frequencies(rope_scaling=linear, rope_parameters={"rope_type": "default"})


def reference_cases() -> list[dict[str, Any]]:
    path = FIXTURES / "rope.json"
    return json.loads(path.read_text())["cases"] if path.exists() else []


@pytest.mark.parametrize("case", reference_cases(), ids=lambda case: case["name"])
def test_published_models_equal_transformers(case: dict[str, Any]) -> None:
    spec = spec_of(
        case["head_dim"],
        max_position_embeddings=case["max_position_embeddings"],
        rope_parameters=case["rope_parameters"],
    )
    assert spec.rope.attention_factor == pytest.approx(case["attention_factor"], rel=1e-12)
    if (case["seq_len"] or 0) > case["max_position_embeddings"]:
        assert spec.rope.dynamic_factor == case["rope_parameters"]["factor"]
        return  # computed by the core, because the frequencies depend on the position
    assert spec.rope.inv_freq == pytest.approx(
        case["inv_freq"], rel=2.5e-7
    )  # 2 units in the last place
