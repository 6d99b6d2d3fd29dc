"""Small models of every family and rope kind, compared with values of transformers.

tests/fixtures/README.md describes the folders. Float32 agrees to 1e-4 of the range of the
logits (measured: 2e-6), and greedy tokens one for one. Fewer bits were measured to differ by these
shares of the range at worst, and in the root mean square: f16 by 0.16 % and 0.022 %; bf16, where
weights, activations that enter a product, keys and values are all rounded to 8 bits, by 1.8 % and
0.25 %; int8 by 13 % and 1.2 %; int4 by 50 % and 7.7 %, for weights that are noise.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

FOLDERS = sorted(
    path.parent
    for path in (Path(__file__).parents[1] / "fixtures" / "models").glob("*/expected.npz")
)
F32_TOLERANCE = 1e-4  # of the range of the logits, at worst
FEWER_BITS = {  # the largest share, and the root mean square
    **{"f16": (0.003, 0.0005), "bf16": (0.03, 0.005)},
    **{"int8": (0.2, 0.02), "int4": (0.7, 0.12)},
}
EXPECTED_FAMILIES = {"llama", "mistral", "qwen2", "qwen3", "smollm3"}


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request):
    return request.param


def expected(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    with np.load(folder / "expected.npz") as arrays:
        return dict(arrays), json.loads((folder / "expected.json").read_text())


def difference(found: np.ndarray, values: np.ndarray) -> np.ndarray:
    """As a share of the range of the logits."""
    assert found.shape == values.shape
    assert found.dtype == np.float32
    return np.abs(found - values) / np.ptp(values)


def test_the_folders_cover_every_family_and_rope():
    configs = [json.loads((folder / "config.json").read_text()) for folder in FOLDERS]
    assert {config["model_type"] for config in configs} == EXPECTED_FAMILIES
    ropes = json.dumps([c.get("rope_scaling") or c.get("rope_parameters") for c in configs])
    assert all(kind in ropes for kind in ("default", "linear", "dynamic", "llama3", "yarn"))
    assert len(FOLDERS) >= 20


@pytest.mark.parametrize("chunk", [1, 7, 256])
def test_logits_in_float32(folder, chunk, open_llm):
    arrays, facts = expected(folder)
    llm = open_llm(folder, prefill_chunk_tokens=chunk)
    worst = difference(llm.logits(arrays["token_ids"]), arrays["logits"]).max()
    assert worst < F32_TOLERANCE, facts["note"]


@pytest.mark.parametrize("cache", [True, False])
def test_greedy_tokens_in_float32(folder, cache, open_llm):
    arrays, facts = expected(folder)
    llm = open_llm(folder)
    prompt = arrays["token_ids"][: facts["prompt_tokens"]]
    result = llm.generate(
        prompt, max_new_tokens=len(arrays["greedy"]), ignore_eos=True, temperature=0, cache=cache
    )
    assert result.token_ids == tuple(arrays["greedy"].tolist())


def test_greedy_tokens_of_all_prefixes_in_one_batch(folder, open_llm):
    """The continuation of the prompt and some tokens of its answer is the rest of the answer."""
    arrays, facts = expected(folder)
    llm = open_llm(folder)
    prompt, greedy = arrays["token_ids"][: facts["prompt_tokens"]].tolist(), arrays["greedy"]
    cuts = range(0, len(greedy), 3)
    results = llm.generate(
        [prompt + greedy[:cut].tolist() for cut in cuts],
        max_new_tokens=6,
        ignore_eos=True,
        temperature=0,
    )
    for cut, result in zip(cuts, results, strict=True):
        assert list(result.token_ids)[: len(greedy) - cut] == greedy[cut : cut + 6].tolist()


@pytest.mark.parametrize("dtype", FEWER_BITS)
def test_logits_in_fewer_bits(folder, dtype, open_llm):
    arrays, facts = expected(folder)
    llm = open_llm(folder, dtype=dtype)
    shares = difference(llm.logits(arrays["token_ids"]), arrays["logits"])
    worst, typical = FEWER_BITS[dtype]
    assert llm.dtype == dtype
    assert shares.max() < worst, facts["note"]
    assert np.sqrt((shares**2).mean()) < typical, facts["note"]
    assert shares.max() > F32_TOLERANCE, "fewer bits that are as good as f32 are f32"


def test_auto_is_the_dtype_of_the_file(folder, open_llm):
    """f16 or bf16 if every matrix is stored so; otherwise f32, which holds all values exactly."""
    arrays, facts = expected(folder)
    llm = open_llm(folder, dtype="auto")
    assert llm.dtype == {"F16": "f16", "BF16": "bf16"}.get(facts["storage"], "f32")
    worst, _ = {"f32": (F32_TOLERANCE, 0), **FEWER_BITS}[llm.dtype]
    assert difference(llm.logits(arrays["token_ids"]), arrays["logits"]).max() < worst
