"""The same prompt gives the same bits in models that have every kind of layer between them: in any
batch, at any thread count, in any chunks, with a reused prefix, and on every instruction set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import onward
from builders.core_engine import instruction_set
from builders.family_folders import fixture_of, types_with_all_features, write_folder
from builders.instruction_sets import ISAS
from onward.load.packing import pack_model

NEW_TOKENS = 6
DTYPES = ("f32", "int8")


@pytest.fixture(scope="module", params=types_with_all_features())
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(request.param, tmp_path_factory.mktemp("model") / request.param)


def opened(model: Path, dtype: str = "f32", **options: Any) -> onward.LLM:
    return onward.LLM(model, **{"dtype": dtype, "threads": 1, **options})


def prompt_of(model: Path) -> list[int]:
    prompt: list[int] = fixture_of(model.name)["prompt"]
    return prompt


def logits_of(model: Path, dtype: str, **options: Any) -> NDArray[np.float32]:
    with opened(model, dtype, **options) as llm:
        return llm.logits(prompt_of(model))


def outcome(result: Any) -> tuple[list[int], list[float]]:
    return list(result.token_ids), list(result.logprobs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_do_not_depend_on_chunk_or_threads(model: Path, dtype: str) -> None:
    expected = logits_of(model, dtype)
    for options in ({"prefill_chunk_tokens": 7, "threads": 2}, {"prefill_chunk_tokens": 1}):
        np.testing.assert_array_equal(
            logits_of(model, dtype, **options).view(np.uint32), expected.view(np.uint32)
        )


def test_tokens_do_not_depend_on_the_batch(model: Path) -> None:
    prompt = prompt_of(model)
    prompts = [prompt, prompt[:1], prompt[:16], prompt[5:38], prompt[::-1]]
    options = {"max_new_tokens": NEW_TOKENS, "temperature": 0.0, "logprobs": 1, "ignore_eos": True}
    with opened(model, threads=2, prefix_cache=False) as llm:
        alone = [outcome(llm.generate(each, **options)) for each in prompts]
        together = [outcome(result) for result in llm.generate(prompts, **options)]
    assert together == alone


def test_a_reused_prefix_changes_nothing(model: Path) -> None:
    prompt = prompt_of(model)
    options = {"max_new_tokens": NEW_TOKENS, "temperature": 0.0, "logprobs": 1, "ignore_eos": True}
    with opened(model, prefix_cache=False) as llm:
        expected = outcome(llm.generate(prompt, **options))
    with opened(model) as llm:
        llm.generate(prompt[:50], **options)
        result = llm.generate(prompt, **options)
    assert outcome(result) == expected
    assert result.usage.cached_tokens >= 32


@pytest.mark.parametrize("isa", ISAS)
def test_instruction_sets_agree(model: Path, isa: str) -> None:
    expected = logits_of(model, "f32")
    with instruction_set(isa):
        found = logits_of(model, "f32")
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_latent_attention_refuses_streaming(tmp_path: Path) -> None:
    """The keys that are seen at other distances would have to turn as a whole."""
    folder = write_folder("deepseek_v3", tmp_path)
    with pytest.raises(ValueError, match="attention_window: this model has latent attention"):
        opened(folder, attention_window=16)


def test_a_draft_model_changes_nothing(model: Path) -> None:
    options = {"max_new_tokens": NEW_TOKENS, "temperature": 0.0, "logprobs": 1, "ignore_eos": True}
    prompt = prompt_of(model)
    with opened(model) as llm:
        expected = outcome(llm.generate(prompt, **options))
    with opened(model, draft_model=model) as llm:
        assert outcome(llm.generate(prompt, **options)) == expected


def test_a_pack_computes_the_same_bits(model: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.onward"
    pack_model(model, target, dtype="int8", threads=1)
    with onward.LLM(target, threads=1) as llm:
        found = llm.logits(prompt_of(model))
    np.testing.assert_array_equal(found.view(np.uint32), logits_of(model, "int8").view(np.uint32))
