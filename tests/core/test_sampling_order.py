"""sampling_order: the same stages in another order, in cases where the order changes the result.

Orders: generate of Hugging Face, the V1 sampler of vLLM, the default chain of llama.cpp. Each case
is computed by hand for every preset from the same four probabilities.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from builders.core_engine import complete, drain, submit
from builders.distributions import log_probabilities, possible, table_engine
from closed_form import write_table
from onward import _core
from onward.errors import InvalidArgument
from onward.options.for_engine import chain
from onward.options.resolution import ModelDefaults, resolve

P = log_probabilities([0.5, 0.3, 0.15, 0.05])
PRESETS = ("hf", "vllm", "llama.cpp")

ALL_ON: dict[str, Any] = {
    "temperature": 0.7,
    "smoothing_factor": 0.3,
    "top_n_sigma": 1.0,
    "top_k": 5,
    "top_p": 0.9,
    "min_p": 0.1,
    "typical_p": 0.9,
    "epsilon_cutoff": 0.01,
    "eta_cutoff": 0.01,
    "xtc_probability": 0.5,
    "logit_bias": {1: 1.0},
    "repetition_penalty": 1.1,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "dry_multiplier": 0.8,
    "no_repeat_ngram_size": 3,
    "bad_words_ids": [[1, 2]],
    "min_new_tokens": 2,
    "allowed_token_ids": [1, 2, 3],
    "suppress_tokens": [4],
    "logits_processor": lambda token_ids, scores: None,
    "regex": "a*",
}
HF_PROCESSORS = [
    *("logit_bias", "repetition_penalty", "presence_penalty", "frequency_penalty"),
    *("dry_multiplier", "no_repeat_ngram_size", "bad_words_ids", "min_new_tokens"),
    *("allowed_token_ids", "suppress_tokens", "logits_processor", "regex"),
]
PROCESSORS = {
    "hf": HF_PROCESSORS,
    "vllm": [
        *("allowed_token_ids", "bad_words_ids", "suppress_tokens", "min_new_tokens", "logit_bias"),
        *("logits_processor", "repetition_penalty", "frequency_penalty", "presence_penalty"),
        *("dry_multiplier", "no_repeat_ngram_size", "regex"),
    ],
    "llama.cpp": HF_PROCESSORS,
}
DRAW = {
    "hf": [
        *("temperature", "smoothing_factor", "top_n_sigma", "top_k", "top_p", "min_p", "typical_p"),
        *("epsilon_cutoff", "eta_cutoff", "xtc_probability"),
    ],
    "vllm": [
        *("temperature", "smoothing_factor", "top_n_sigma", "min_p", "top_k", "top_p", "typical_p"),
        *("epsilon_cutoff", "eta_cutoff", "xtc_probability"),
    ],
    "llama.cpp": [
        *("top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc_probability"),
        *("epsilon_cutoff", "eta_cutoff", "temperature", "smoothing_factor"),
    ],
}


def chain_of(**options: Any) -> list[str]:
    return chain(resolve(options, ModelDefaults(100)))


@pytest.mark.parametrize("order", PRESETS)
class TestLists:
    def test_all_stages(self, order):
        assert chain_of(sampling_order=order, **ALL_ON) == [
            *PROCESSORS[order],
            *DRAW[order],
            "draw",
        ]

    def test_greedy_choice_has_only_the_processors(self, order):
        options = {**ALL_ON, "temperature": 0}
        assert chain_of(sampling_order=order, **options) == [*PROCESSORS[order], "greedy"]

    def test_mirostat_replaces_the_filters(self, order):
        options = {**ALL_ON, "mirostat": 2, "dynatemp_range": 0.5}
        assert chain_of(sampling_order=order, **options) == [
            *PROCESSORS[order],
            *("temperature", "dynatemp_range", "smoothing_factor", "mirostat", "draw"),
        ]

    def test_each_stage_alone_has_the_effect_of_its_option(self, order):
        for name in ALL_ON.keys() - {"temperature"}:
            found = chain_of(sampling_order=order, temperature=1.0, **{name: ALL_ON[name]})
            assert sorted(found) == sorted([name, "temperature", "draw"])


def one_of(*orders: str) -> Any:
    return pytest.mark.parametrize("order", orders)


class TestTemperatureAndFilters:
    """T = 2 makes square roots of .5 .3 .15 .05: .3790 .2936 .2076 .1198 of their sum."""

    @pytest.mark.parametrize(("order", "kept"), [("hf", 3), ("vllm", 3), ("llama.cpp", 2)])
    def test_top_p(self, order, kept):
        """p = .75: flattened, .379 + .294 = .673 needs a third; as they are, .5 + .3 reach it."""
        options = {"temperature": 2.0, "top_p": 0.75, "sampling_order": order}
        assert possible(P, **options) == set(range(kept))

    @pytest.mark.parametrize(("order", "kept"), [("hf", 3), ("vllm", 3), ("llama.cpp", 1)])
    def test_min_p(self, order, kept):
        """.54: flattened, .2076 / .3790 = .548 is above and .316 below; as they are, .3 / .5 = .6
        is above and .15 / .5 = .3 below. .62: flattened .775 is above, and .548 below."""
        options = {"temperature": 2.0, "sampling_order": order}
        assert possible(P, min_p=0.54, **options) == set(range(3 if kept == 3 else 2))
        assert possible(P, min_p=0.62, **options) == set(range(2 if kept == 3 else 1))

    @pytest.mark.parametrize(("order", "kept"), [("hf", 4), ("vllm", 4), ("llama.cpp", 3)])
    def test_epsilon_cutoff(self, order, kept):
        """.08 lies between .05 and .1198."""
        options = {"temperature": 2.0, "epsilon_cutoff": 0.08, "sampling_order": order}
        assert possible(P, **options) == set(range(kept))

    @pytest.mark.parametrize(("order", "dropped"), [("hf", 2), ("vllm", 2), ("llama.cpp", 1)])
    def test_xtc(self, order, dropped):
        """A threshold of .2: flattened three tokens reach it, and two are dropped; as they are, two
        do, and one is."""
        options = {"xtc_probability": 1.0, "xtc_threshold": 0.2, "sampling_order": order}
        assert possible(P, temperature=2.0, **options) == set(range(dropped, 4))

    @one_of(*PRESETS)
    def test_the_remaining_tokens_are_drawn_at_the_temperature(self, order):
        """top_k = 2 keeps the same two in every order, and they come as .7071 to .5477."""
        options = {"temperature": 2.0, "top_k": 2, "logprobs": 4, "sampling_order": order}
        engine = table_engine(np.tile(P, (4, 1)))
        output = drain(engine, [submit(engine, [0], **options)])[0]
        expected = np.log(np.sqrt([0.5, 0.3]) / np.sqrt([0.5, 0.3]).sum())
        for found in output.logprobs:
            np.testing.assert_allclose([v for _, v in found.chain_top], expected, atol=2e-6)

    @one_of(*PRESETS)
    def test_dynamic_temperature_uses_the_entropy_at_its_place(self, order):
        """The entropy of what is there at the temperature's place: of all four in hf and vllm, of
        the first two, .625 and .375, in llama.cpp. T is 1 - .5 + 1 * entropy / ln(number)."""
        of_all, of_two = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.625, 0.375])
        p = of_two if order == "llama.cpp" else of_all
        temperature = 0.5 + -(p * np.log(p)).sum() / math.log(len(p))
        powers = of_two ** (1 / temperature)
        options = {"temperature": 1.0, "dynatemp_range": 0.5, "top_k": 2, "logprobs": 2}
        engine = table_engine(np.tile(P, (4, 1)))
        request = submit(engine, [0], sampling_order=order, max_new_tokens=1, **options)
        [found] = drain(engine, [request])[0].logprobs
        found_top = [value for _, value in found.chain_top]
        np.testing.assert_allclose(found_top, np.log(powers / powers.sum()), atol=1e-5)


class TestFiltersAmongThemselves:
    @one_of(*PRESETS)
    def test_top_k_comes_before_top_p_everywhere(self, order):
        """k = 2 leaves .625 and .375, and .625 reaches .6; p first would keep .5 and .3."""
        assert possible(P, top_k=2, top_p=0.6, sampling_order=order) == {0}

    @pytest.mark.parametrize(("order", "kept"), [("hf", 2), ("vllm", 1), ("llama.cpp", 2)])
    def test_min_p_and_top_p(self, order, kept):
        """min_p = .4 drops .15 and .05 and leaves .625 and .375. top_p = .6 after it keeps one;
        before it .5 + .3, and min_p then has nothing to drop."""
        options = {"min_p": 0.4, "top_p": 0.6, "sampling_order": order}
        assert possible(P, **options) == set(range(kept))

    @one_of("hf", "vllm")
    def test_typical_after_top_p(self, order):
        """top_p = .75 leaves .625 and .375, whose entropy is .662; the surprises are .470 and .981,
        .192 and .319 away. typical_p = .5 would keep the nearer alone, .7 both."""
        options = {"top_p": 0.75, "sampling_order": order}
        assert possible(P, typical_p=0.5, **options) == {0}
        assert possible(P, typical_p=0.7, **options) == {0, 1}

    def test_typical_before_top_p_in_llama_cpp(self):
        """The entropy of all is 1.142; the surprises .693, 1.204, 1.897, 2.996 are .449, .062,
        .755, 1.853 away: typical_p = .5 keeps 1 and 0, in this order, and then top_p = .75 both
        (.625 + .375)."""
        options = {"typical_p": 0.5, "top_p": 0.75}
        assert possible(P, sampling_order="llama.cpp", **options) == {0, 1}
        assert possible(P, sampling_order="hf", **options) == {0}

    def test_xtc_before_the_cutoffs_in_llama_cpp(self):
        """XTC over .1 drops .5 and .3 and leaves .75 and .25; a cutoff of .12 then drops none. The
        cutoff first drops .05, XTC then leaves .15 alone."""
        options = {"xtc_probability": 1.0, "xtc_threshold": 0.1, "epsilon_cutoff": 0.12}
        assert possible(P, sampling_order="llama.cpp", **options) == {2, 3}
        assert possible(P, sampling_order="hf", **options) == {2}


class TestProcessors:
    """Greedy choice, so that only the processors have an effect."""

    def run(self, row: list[float], prompt: list[int], order: str, **options: Any) -> int:
        engine = table_engine(np.tile(np.array(row, np.float32), (len(row), 1)))
        [[token]] = complete(engine, [prompt], max_new_tokens=1, sampling_order=order, **options)
        return token

    @one_of(*PRESETS)
    def test_the_bias_comes_before_the_repetition_penalty_everywhere(self, order):
        """(-1 + 4) / 2 = 1.5 against 1.8; the other way round -1 * 2 + 4 = 2 would win."""
        options = {"logit_bias": {1: 4.0}, "repetition_penalty": 2.0}
        assert self.run([1.8, -1.0], [1], order, **options) == 0

    @pytest.mark.parametrize(("order", "token"), [("hf", 0), ("vllm", 1), ("llama.cpp", 0)])
    def test_a_rule_and_the_repetition_penalty_in_both_orders(self, order, token):
        """The rule adds 3 to token 1, the penalty is 3. Penalty first: -1 * 3 + 3 = 0, less than
        token 0's .5. Rule first: (-1 + 3) / 3 = .667, more."""

        def add(token_ids, scores):
            scores[1] += 3

        sampling = _core.SamplingOptions()
        sampling.repetition_penalty = 3.0
        sampling.sampling_order = order
        sampling.set_logits_processor(add)
        engine = table_engine(np.tile(np.float32([0.5, -1.0]), (2, 1)))
        request = engine.submit(np.int32([1]), max_new_tokens=1, sampling=sampling)
        assert drain(engine, [request])[request].tokens == [token]

    @one_of(*PRESETS)
    def test_a_rule_may_lift_earlier_bans(self, order, tmp_path, open_llm):
        def lift(token_ids, scores):
            scores[3] = 5.0

        llm = open_llm(write_table(tmp_path / "table", np.zeros((8, 8)), eos_token_id=None))
        for ban in ({"suppress_tokens": [3]}, {"allowed_token_ids": [1]}, {"bad_words_ids": [[3]]}):
            options = {"sampling_order": order, "logits_processor": lift, "max_new_tokens": 1}
            assert llm.generate([1], **ban, **options).token_ids == (3,)

    def test_no_repeat_ngram_comes_after_the_rule_in_vllm(self, tmp_path, open_llm):
        """The prompt says 3 4 3; the ban of 4 is before the rule in hf, which lifts it."""

        def lift(token_ids, scores):
            scores[4] = 5.0

        llm = open_llm(write_table(tmp_path / "table", np.zeros((8, 8)), eos_token_id=None))
        options = {"no_repeat_ngram_size": 2, "logits_processor": lift, "max_new_tokens": 1}
        found = [llm.generate([3, 4, 3], sampling_order=o, **options).token_ids for o in PRESETS]
        assert found == [(4,), (0,), (4,)]


class TestNames:
    def test_an_unknown_name_is_refused_with_the_known_names(self, tmp_path, open_llm):
        llm = open_llm(write_table(tmp_path / "table", np.zeros((8, 8))))
        for name in ("ollama", "HF", "", "llama_cpp"):
            with pytest.raises(ValueError, match=r'^sampling_order: is .*"hf" or "vllm" or "llama'):
                llm.generate([1], sampling_order=name)
        with pytest.raises(TypeError, match=r"^sampling_order: is None"):
            llm.generate([1], sampling_order=None)

    def test_the_core_refuses_an_unknown_name(self):
        with pytest.raises(InvalidArgument, match='sampling_order: found "x", expected "hf", "vll'):
            _core.SamplingOptions().sampling_order = "x"

    def test_without_conflicting_stages_every_order_draws_the_same(self):
        """One stage at a time, one seed: the same tokens."""
        engine = table_engine(np.tile(P, (4, 1)))
        for options in ({"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.2}, {"repetition_penalty": 1.5}):
            drawn = [
                complete(engine, [[0]], temperature=1.0, sampling_order=order, **options)
                for order in PRESETS
            ]
            assert all(a == b for a, b in itertools.pairwise(drawn))
