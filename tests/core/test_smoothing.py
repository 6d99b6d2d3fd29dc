"""Quadratic sampling (smoothing_factor, smoothing_curve) against its definition in numpy.

The definition is that of text-generation-webui. d is a logit minus the largest one; then
logit' = largest - k * factor * d**2 + s * factor * d**3, k = (3 - curve) / 2, s = (curve - 1) / 2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.core_engine import drain, submit
from builders.distributions import log_probabilities, possible, table_engine
from onward import _core
from onward.errors import InvalidArgument
from onward.options.for_engine import chain
from onward.options.resolution import ModelDefaults, resolve

P = log_probabilities([0.5, 0.3, 0.15, 0.05])
LOGITS = np.random.default_rng(7).normal(0, 3, 200).astype(np.float32)


def smoothed(logits: NDArray[Any], factor: float, curve: float = 1.0) -> NDArray[np.float64]:
    """The definition, in float64."""
    scores = logits.astype(np.float64)
    d = scores - scores.max()
    k, s = (3 - curve) / 2, (curve - 1) / 2
    return -k * factor * d**2 + s * factor * d**3 + scores.max()


def log_softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = scores - scores.max()
    return shifted - math.log(np.exp(shifted).sum())


def chain_logprobs(logits: NDArray[Any], **options: Any) -> dict[int, float]:
    """Token -> log-probability after the chain, as the engine reports it."""
    engine = table_engine(logits)
    request = submit(engine, [0], max_new_tokens=1, logprobs=len(logits), **options)
    (found,) = drain(engine, [request])[request].logprobs
    return dict(found.chain_top)


def assert_equal(found: dict[int, float], expected: NDArray[np.float64]) -> None:
    """Tokens of less than e^-80 may be missing or rounded to nothing."""
    for token, value in enumerate(expected):
        if value > -80:
            assert found[token] == pytest.approx(value, rel=2e-6, abs=2e-5), token


class TestDefinition:
    @pytest.mark.parametrize("factor", [0.01, 0.25, 1.0, 4.0])
    @pytest.mark.parametrize("curve", [1.0, 1.5, 3.0, 4.5])
    @pytest.mark.parametrize("temperature", [1.0, 0.7, 2.5])
    def test_log_probabilities(self, factor, curve, temperature):
        found = chain_logprobs(
            LOGITS, temperature=temperature, smoothing_factor=factor, smoothing_curve=curve
        )
        expected = log_softmax(smoothed(LOGITS / np.float64(temperature), factor, curve))
        assert_equal(found, expected)

    def test_values_match_a_hand_calculation(self):
        """d = 0, -1, -2 and factor 0.5 give 0, -0.5, -2; curve 3 gives 0, -0.5, -4."""
        logits = np.array([5.0, 4.0, 3.0], np.float32)
        for curve, scores in [(1.0, [0, -0.5, -2]), (3.0, [0, -0.5, -4])]:
            found = chain_logprobs(
                logits, temperature=1.0, smoothing_factor=0.5, smoothing_curve=curve
            )
            assert_equal(found, log_softmax(np.array(scores, np.float64)))

    def test_above_3_the_curve_may_lift_a_token_over_the_largest(self):
        """d = -0.2 and curve 9 give 3 * 0.04 - 4 * 0.008 = 0.088 times the factor."""
        logits = np.array([1.0, 0.8], np.float32)
        found = chain_logprobs(logits, temperature=1.0, smoothing_factor=10.0, smoothing_curve=9.0)
        assert found[1] - found[0] == pytest.approx(0.88, rel=1e-5)

    def test_values_of_any_size_leave_a_distribution(self):
        for factor in (1e-300, 1e300):
            for curve in (1.0, 2.0, 1e300):
                for temperature in (1e-300, 1.0, 1e300):
                    options = {"smoothing_factor": factor, "smoothing_curve": curve}
                    found = chain_logprobs(LOGITS, temperature=temperature, **options)
                    assert sum(map(math.exp, found.values())) == pytest.approx(1, abs=1e-5)

    def test_the_curve_without_a_factor_has_no_effect(self):
        plain = chain_logprobs(LOGITS, temperature=1.0)
        assert chain_logprobs(LOGITS, temperature=1.0, smoothing_curve=2.0) == plain
        assert chain_logprobs(LOGITS, temperature=1.0, smoothing_factor=0.0) == plain

    def test_banned_tokens_stay_banned(self):
        found = chain_logprobs(P, temperature=1.0, smoothing_factor=0.3, logit_bias={0: -math.inf})
        assert_equal(
            {token - 1: value for token, value in found.items()}, log_softmax(smoothed(P[1:], 0.3))
        )


class TestOrder:
    """d of P is 0, -.51, -1.20, -2.30. Factor 0.2 makes it 0, -.05, -.29, -1.06, which are the
    probabilities .329, .312, .246, .114."""

    @pytest.mark.parametrize(("order", "kept"), [("hf", 3), ("vllm", 3), ("llama.cpp", 2)])
    def test_smoothing_applies_before_filters_if_the_temperature_comes_first(self, order, kept):
        options = {"temperature": 1.0, "smoothing_factor": 0.2, "top_p": 0.75}
        assert possible(P, sampling_order=order, **options) == set(range(kept))

    @pytest.mark.parametrize("order", ["hf", "vllm", "llama.cpp"])
    def test_smoothing_comes_right_after_the_temperature(self, order):
        options = {"temperature": 0.5, "dynatemp_range": 0.2, "smoothing_factor": 0.3, "top_k": 3}
        names = chain(resolve({**options, "sampling_order": order}, ModelDefaults(100)))
        at = names.index("smoothing_factor")
        assert names[at - 2 : at] == ["temperature", "dynatemp_range"]

    def test_smoothing_applies_with_mirostat(self):
        options = {"temperature": 1.0, "mirostat": 2, "smoothing_factor": 0.3}
        names = chain(resolve(options, ModelDefaults(100)))
        assert names == ["temperature", "smoothing_factor", "mirostat", "draw"]


class TestOptions:
    def test_smoothing_turns_sampling_on(self):
        assert resolve({"smoothing_factor": 0.3}, ModelDefaults(100)).temperature == 1.0
        assert resolve({"smoothing_curve": 2.0}, ModelDefaults(100)).temperature == 0.0

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("smoothing_factor", [-0.1, math.nan, math.inf]),
            ("smoothing_curve", [0.9, -1.0, math.nan, math.inf]),
        ],
    )
    def test_illegal_values(self, name, values):
        engine = table_engine(P)
        for value in values:
            with pytest.raises(InvalidArgument, match=rf"^{name}: .*expected"):
                resolve({name: value}, ModelDefaults(100))
            with pytest.raises(ValueError, match=rf"^{name}: found .*, expected"):
                submit(engine, [0], temperature=1.0, **{name: value})

    def test_smoothing_is_off_in_the_core_by_default(self):
        options = _core.SamplingOptions()
        assert (options.smoothing_factor, options.smoothing_curve) == (0.0, 1.0)
