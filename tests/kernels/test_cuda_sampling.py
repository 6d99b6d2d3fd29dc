"""Tokens that the device chooses: the same as by the sampler on the processor, and the host
receives nothing else of the logits.

The kernel runs on the processor here (device "cuda-host"). The order of its blocks and threads is
different in every launch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onward_kernels
import pytest
from numpy.typing import NDArray

from builders.core_engine import (
    Shape,
    complete,
    drain,
    drain_all,
    guessing,
    new_engine,
    random_prompt,
    seeded_model,
    submit,
)
from closed_form import base_config, chain, table_tensors, write_folder
from onward import _core
from onward.errors import NumericsError

DEVICE = "cuda-host"
SHAPE = Shape(num_layers=2)
EVERY_WAY = (
    {},
    {"temperature": 0.9, "seed": 3},
    {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "seed": 4},
    {
        **{"temperature": 0.8, "top_p": 0.95, "seed": 5, "repetition_penalty": 1.3},
        **{"presence_penalty": 0.4, "frequency_penalty": 0.2},
    },
    {"repetition_penalty": 1.2, "logit_bias": {5: 2.0, 7: -math.inf}, "suppress_tokens": [3, 9]},
    {"temperature": 2.0, "top_k": 3, "seed": 6, "stop_token_ids": [11], "min_new_tokens": 20},
)
"""All options that a device can sample: greedy and not, every filter, penalty and ban."""
ON_THE_HOST: tuple[dict[str, Any], ...] = (
    {"logprobs": 5},
    {"temperature": 0.9, "typical_p": 0.9},
    {"temperature": 0.9, "mirostat": 2},
    {"temperature": 0.9, "min_p": 0.1, "top_k": 5, "sampling_order": "vllm"},
    {"temperature": 0.9, "top_p": 0.9, "sampling_order": "llama.cpp"},
    {"temperature": 0.9, "dynatemp_range": 0.5},
    {"temperature": 0.9, "smoothing_factor": 0.3},
    {"no_repeat_ngram_size": 2},
    {"allowed_token_ids": [1, 2, 3]},
)


@pytest.fixture(scope="module", autouse=True)
def device() -> str:
    """Skips the test without the test build of the kernels."""
    if DEVICE not in [name for name, _, why_not in _core.devices() if not why_not]:
        pytest.skip("the CUDA kernels are not built for the processor (-DONWARD_CUDA_HOST=ON)")
    return DEVICE


def options_of(**values: Any) -> _core.SamplingOptions:
    options = _core.SamplingOptions()
    for name, value in values.items():
        setattr(options, name, value)
    return options


def random_logits(generator: np.random.Generator, size: int) -> NDArray[np.float32]:
    """A row of one of many kinds: peaked and flat, with ties, huge, tiny, zeros of both signs."""
    row = generator.normal(0, 1, size)
    match generator.integers(0, 10):
        case 0:
            row *= 3
        case 1:
            row = np.round(row * 2) / 2
        case 2:
            row[:] = row[0]
        case 3:
            row[generator.integers(0, size)] += 20
        case 4:
            row *= 1e30
        case 5:
            row = generator.choice([0.0, -0.0, 1.0], size)
        case 6:
            row *= 1e-2
        case 7:
            row = generator.permutation(-1.2 * np.log(np.arange(1, size + 1)))
        case 8:
            row *= 1e-40
        case 9:
            row = np.where(generator.random(size) < 0.5, -3e38, row)
    return row.astype(np.float32)


def random_options(generator: np.random.Generator, size: int) -> _core.SamplingOptions:
    def one_of(*values: float) -> float:
        return float(generator.choice(values))

    def sometimes(probability: float) -> bool:
        return bool(generator.random() < probability)

    def ids(count: int) -> list[int]:
        return generator.integers(0, size, count).tolist()

    options = options_of(
        temperature=one_of(0, 1, 0.7, 1.5, 1e-3, 1e-30, 1e30, 3e-7, 100),
        top_k=int(one_of(0, 1, 2, 50, 200, max(1, size // 2), size)),
        top_p=one_of(1, 0, 1e-8, 0.1, 0.5, 0.9, 0.999, 0.9999999),
        min_p=one_of(0, 0, 0.05, 1, 1e-3, 0.5),
        seed=int(generator.integers(0, 2**63)),
        stream=int(generator.integers(0, 2**40)),
        logprobs=int(one_of(-1, 0)),
    )
    if sometimes(0.4):
        options.repetition_penalty = one_of(1.1, 0.5, 1e30, 1e-30, 2)
    if sometimes(0.3):
        options.presence_penalty = one_of(0.5, -1, 1e30)
    if sometimes(0.3):
        options.frequency_penalty = one_of(0.25, -1)
    if sometimes(0.3):
        options.logit_bias = dict(zip(ids(4), [1, -2, -math.inf, 1e39], strict=True))
    if sometimes(0.2):
        options.suppress_tokens = ids(3)
    if sometimes(0.2):
        options.min_new_tokens = int(one_of(1, 5))
        options.stop_token_ids = ids(2)
    return options


def on_host(logits: NDArray[np.float32], options: Any, tokens: Any) -> Any:
    """None if every token is banned, as a device reports it."""
    try:
        return onward_kernels.sample_rows("cpu", logits[None], [options], [tokens])[0]
    except ValueError:
        return None


class TestRows:
    """Rows of logits, by the device and by the processor's sampler."""

    @pytest.mark.parametrize(
        ("size", "count"), [(1, 150), (2, 300), (31, 900), (1000, 1200), (49152, 80), (128256, 50)]
    )
    def test_choices_equal_the_processor(self, size, count):
        generator = np.random.default_rng(size)
        logits = [random_logits(generator, size) for _ in range(count)]
        options = [random_options(generator, size) for _ in range(count)]
        tokens = [
            tuple(generator.integers(0, size, generator.integers(1, most)).tolist())
            for most in (30, 10) * count
        ]
        tokens = list(zip(tokens[::2], tokens[1::2], strict=True))
        reported = onward_kernels.sample_rows(DEVICE, np.stack(logits), options, tokens, threads=2)
        for index, found in enumerate(reported):
            expected = on_host(logits[index], options[index], tokens[index])
            where = f"row {index}, {options[index].chain()}"
            if expected is None or found is None:
                assert found is expected, where
                continue
            assert found[0] == expected[0], where
            if expected[1] is None:
                assert found[1:] == (None, None), where
            else:
                assert found[1:] == pytest.approx(expected[1:], rel=1e-6, abs=1e-9), where

    def test_the_order_of_threads_changes_no_bit(self):
        generator = np.random.default_rng(1)
        logits = np.stack([random_logits(generator, 3000) for _ in range(40)])
        options = [random_options(generator, 3000) for _ in logits]
        for row in options:
            row.logprobs = 0
        tokens = [(generator.integers(0, 3000, 20).tolist(), [1, 2, 2]) for _ in logits]
        first, *others = (
            onward_kernels.sample_rows(DEVICE, logits, options, tokens, threads)
            for threads in (1, 2, 2, 1)
        )
        for other in others:
            assert other == first

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("temperature", [0.0, 0.7])
    def test_a_logit_that_is_not_finite_is_left_to_the_host(self, bad, temperature):
        logits = np.tile(np.linspace(0, 1, 700, dtype=np.float32), (4, 1))
        for row, place in enumerate((0, 555, 699)):
            logits[row, place] = bad
        options = [options_of(temperature=temperature, suppress_tokens=[0, 555, 699])] * 4
        found = onward_kernels.sample_rows(DEVICE, logits, options, [([1], [])] * 4)
        assert found[:3] == [None] * 3
        assert found[3] is not None

    def test_a_row_without_a_token_is_left_to_the_host(self):
        options = [options_of(suppress_tokens=[0, 1, 2]), options_of(suppress_tokens=[0, 2])]
        found = onward_kernels.sample_rows(
            DEVICE, np.zeros((2, 3), np.float32), options, [([1], [])] * 2
        )
        assert found == [None, (1, None, None)]

    @pytest.mark.parametrize("values", ON_THE_HOST, ids=lambda values: "-".join(values))
    def test_options_that_no_device_has_are_left_to_the_host(self, values):
        logits = np.zeros((1, 40), np.float32)
        assert onward_kernels.sample_rows(DEVICE, logits, [options_of(**values)], [([1], [])]) == [
            None
        ]

    def test_a_chain_with_one_active_stage_may_have_any_order(self):
        values = {"temperature": 0.9, "top_p": 0.9, "sampling_order": "vllm"}
        logits = np.zeros((1, 40), np.float32)
        asked = logits, [options_of(**values)], [([1], [])]
        assert onward_kernels.sample_rows(DEVICE, *asked) == onward_kernels.sample_rows(
            "cpu", *asked
        )


@pytest.fixture(scope="module")
def models(device):
    """The same weights on the processor and on the device."""
    return {name: seeded_model("f32", SHAPE, device=name) for name in ("cpu", device)}


@pytest.fixture
def engines(models):
    return {name: new_engine(model) for name, model in models.items()}


def counters(engine: _core.Engine) -> tuple[int, int]:
    stats = engine.stats()
    return stats["sampled_on_device"], stats["logits_rows_read"]


class TestEngine:
    @pytest.mark.parametrize("logprobs", [-1, 0])
    def test_only_ids_are_copied_to_the_host(self, engines, logprobs):
        said = {}
        for name, engine in engines.items():
            requests = [
                submit(engine, random_prompt(9 + i, seed=i), logprobs=logprobs, **values)
                for i, values in enumerate(EVERY_WAY)
            ]
            said[name] = list(drain(engine, requests).values())
        for here, there in zip(said["cpu"], said[DEVICE], strict=True):
            assert there.tokens == here.tokens
            assert there.finish == here.finish
            for ours, theirs in zip(there.logprobs, here.logprobs, strict=True):
                assert ours.token == theirs.token
                assert ours.raw == pytest.approx(theirs.raw, abs=1e-5)
                assert ours.chain == pytest.approx(theirs.chain, abs=1e-5)
                assert ours.raw_top == ours.chain_top == []
        tokens = sum(len(output.tokens) for output in said["cpu"])
        assert counters(engines["cpu"]) == (0, tokens)
        assert counters(engines[DEVICE]) == (tokens, 0)

    def test_requests_of_both_kinds_side_by_side(self, engines):
        said = {}
        kinds = (*EVERY_WAY, *ON_THE_HOST)
        for name, engine in engines.items():
            requests = [
                submit(engine, random_prompt(5 + i, seed=i), max_new_tokens=8, **values)
                for i, values in enumerate(kinds)
            ]
            said[name] = [output.tokens for output in drain(engine, requests).values()]
        assert said[DEVICE] == said["cpu"]
        chosen = sum(map(len, said[DEVICE][: len(EVERY_WAY)]))
        read = sum(map(len, said[DEVICE][len(EVERY_WAY) :]))
        assert counters(engines[DEVICE]) == (chosen, read)
        assert counters(engines["cpu"]) == (0, chosen + read)

    def test_samples_of_one_prompt_equal_the_processor(self, engines):
        """The first tokens of all samples are drawn from one row of logits."""
        said = {}
        for name, engine in engines.items():
            request = submit(
                engine, [5, 6, 7], num_sequences=4, max_new_tokens=6, temperature=2.0, seed=9
            )
            [outputs] = drain_all(engine, [request]).values()
            said[name] = [output.tokens for output in outputs]
        assert said[DEVICE] == said["cpu"]
        assert len({tuple(tokens) for tokens in said[DEVICE]}) > 1
        assert counters(engines[DEVICE]) == (24, 0)

    def test_prompt_logprobs_copy_only_rows_of_the_prompt(self, engines):
        engine = engines[DEVICE]
        drain(engine, [submit(engine, [5, 6, 7], prompt_logprobs=0, max_new_tokens=5)])
        assert counters(engine) == (4, 3)

    @pytest.mark.parametrize("way", ["lookup", "draft"])
    def test_guesses_change_no_bit(self, models, way):
        draft = models[DEVICE] if way == "draft" else None
        engine = new_engine(models[DEVICE], draft=draft)
        options = {
            **{"temperature": 0.6, "top_p": 0.9, "seed": 2, "logprobs": 0},
            **{"repetition_penalty": 1.05, "frequency_penalty": 0.1},
        }
        prompt = np.tile(random_prompt(6, seed=1), 4)
        speculation = guessing(lookup=3) if way == "lookup" else guessing(draft=3)
        [plain] = drain(engine, [submit(engine, prompt, **options)]).values()
        [guessed] = drain(
            engine, [submit(engine, prompt, speculation=speculation, **options)]
        ).values()
        assert guessed.tokens == plain.tokens
        assert guessed.guessed > 0
        for ours, theirs in zip(guessed.logprobs, plain.logprobs, strict=True):
            assert (ours.token, ours.raw, ours.chain) == (theirs.token, theirs.raw, theirs.chain)
        if way == "draft":
            assert guessed.accepted == guessed.guessed
        assert counters(engine)[1] == 0

    def test_alone_or_in_a_batch(self, models):
        prompts = [random_prompt(3 + i, seed=i) for i in range(6)]
        options = {"temperature": 0.8, "top_p": 0.9, "seed": 8, "repetition_penalty": 1.1}
        together = complete(new_engine(models[DEVICE]), prompts, **options)
        alone = [complete(new_engine(models[DEVICE]), [prompt], **options)[0] for prompt in prompts]
        assert together == alone


class TestBadWeights:
    @pytest.mark.parametrize("temperature", [0.0, 0.7])
    def test_the_error_equals_the_processor(self, tmp_path, open_llm, device, temperature):
        """3 is followed by 4, and 4 by 3. 5 is followed by 6, whose row of the embedding has a
        NaN."""
        config = base_config(eos_token_id=None)
        tensors = table_tensors(config, chain(8, {3: 4, 4: 3, 5: 6}))
        tensors["model.embed_tokens.weight"][6, 2] = np.nan
        llm = open_llm(write_folder(tmp_path, config, tensors), device=device)
        for _ in range(2):
            with pytest.raises(NumericsError, match=r"prompt: logits: token \d+ has a non-finite"):
                llm.generate([5], temperature=temperature)
            result = llm.generate([3], max_new_tokens=4, temperature=temperature)
            assert result.token_ids == (4, 3, 4, 3)
        with pytest.raises(NumericsError, match=r"prompt\[1\]: logits"):
            llm.generate([[3], [6], [4]], max_new_tokens=4)
