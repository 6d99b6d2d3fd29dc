"""The same prompt gives the same bits: in any batch, for any number of threads and size of chunks,
with and without the cache, on every instruction set, in every dtype of the weights.

Bits are compared, never tolerances. The model is small but awkward: no size is a multiple of 64,
prompts cross many cache blocks (16 tokens) and attention tiles (64 keys), and the window starts in
the middle of both.
"""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.core_engine import (
    ALL_CHUNK,
    PACKED,
    Shape,
    complete,
    drain,
    instruction_set,
    new_engine,
    random_prompt,
    seeded_model,
    submit,
)
from builders.covering import pairwise
from builders.instruction_sets import ISAS

PROMPT_TOKENS = 150
NEW_TOKENS = 24
WINDOWS = {"full": (), "sliding": (37, 37, 37), "mixed": (20, 0, 65)}
# Keys and values are stored as f32, bf16, or (for the other dtypes of weights) f16. Each of them
# occurs with every window, and every dtype of the weights with windows of all kinds.
CASES = [
    *((dtype, attention) for dtype in ("f32", "bf16", "int4-min") for attention in WINDOWS),
    *((dtype, "mixed") for dtype in ("f16", "int8", "int4")),
]
CHUNKS = (1, 7, 64, ALL_CHUNK)
EXTRA = {"temperature": 0.9, "top_p": 0.95, "repetition_penalty": 1.1, "seed": 5}


@functools.cache
def model(dtype: str, attention: str):
    return seeded_model(dtype, Shape(windows=WINDOWS[attention]))


every_case = pytest.mark.parametrize(("dtype", "attention"), CASES)
"""A test with chunks, threads or batches covers pairs of their values (covering.py)."""
every_dtype = pytest.mark.parametrize("dtype", PACKED)


def test_the_cases_cover_every_dtype_of_weights():
    assert {dtype for dtype, _ in CASES} == set(PACKED)
    for dtype in PACKED:
        assert model(dtype, "mixed").cache_dtype == (dtype if dtype in ("f32", "bf16") else "f16")


@functools.cache
def reference_logits(dtype: str, attention: str) -> NDArray[np.float32]:
    """One thread, the whole prompt in one step."""
    return new_engine(model(dtype, attention), threads=1, chunk=ALL_CHUNK).logits(
        random_prompt(PROMPT_TOKENS)
    )


@functools.cache
def reference_tokens(dtype: str, attention: str, index: int) -> list[int]:
    """The greedy tokens of prompt ``index`` alone, on one thread."""
    engine = new_engine(model(dtype, attention), threads=1, chunk=ALL_CHUNK)
    return complete(engine, [batch_prompt(index)], max_new_tokens=NEW_TOKENS)[0]


def batch_prompt(index: int) -> NDArray[np.int32]:
    """Prompts of 1, 15, 16, 17, 63, 64, 65, ... tokens: on and around the edges of blocks."""
    lengths = (PROMPT_TOKENS, 1, 15, 16, 17, 63, 64, 65, 2, 100, 31)
    return random_prompt(lengths[index % len(lengths)], seed=index)


def assert_same_bits(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert found.shape == expected.shape
    different = np.flatnonzero(found.view(np.uint32) != expected.view(np.uint32))
    assert different.size == 0, f"{different.size} of {found.size} values differ"


@pairwise(case=CASES, chunk=CHUNKS, threads=[1, 2, 4])
def test_logits_do_not_depend_on_chunk_or_threads(case, chunk, threads):
    dtype, attention = case
    engine = new_engine(model(dtype, attention), threads=threads, chunk=chunk)
    found = engine.logits(random_prompt(PROMPT_TOKENS))
    assert_same_bits(found, reference_logits(dtype, attention))


@every_case
def test_logits_of_a_prefix_are_a_prefix_of_the_logits(dtype, attention):
    """Row i depends only on tokens 0 to i."""
    engine = new_engine(model(dtype, attention))
    for length in (1, 16, 17, 64, 65, 149):
        found = engine.logits(random_prompt(PROMPT_TOKENS)[:length])
        assert_same_bits(found, reference_logits(dtype, attention)[:length])


@pairwise(case=CASES, batch=[1, 2, 7, 32], threads=[1, 2, 4])
def test_tokens_do_not_depend_on_the_batch(case, batch, threads):
    dtype, attention = case
    engine = new_engine(model(dtype, attention), threads=threads, chunk=64)
    prompts = [batch_prompt(index) for index in range(batch)]
    found = complete(engine, prompts, max_new_tokens=NEW_TOKENS)
    assert found == [reference_tokens(dtype, attention, index) for index in range(batch)]


@pairwise(case=CASES, chunk=CHUNKS, cache=[True, False])
def test_tokens_of_a_batch_do_not_depend_on_chunk_or_cache(case, chunk, cache):
    """A chunk of 1 makes seven sequences take turns, one token a step."""
    dtype, attention = case
    engine = new_engine(model(dtype, attention), chunk=chunk)
    prompts = [batch_prompt(i) for i in range(7 if cache else 5)]
    found = complete(engine, prompts, max_new_tokens=NEW_TOKENS, cache=cache)
    assert found == [reference_tokens(dtype, attention, i) for i in range(len(prompts))]


@every_case
def test_requests_with_and_without_the_cache_share_a_batch(dtype, attention):
    engine = new_engine(model(dtype, attention), chunk=40)
    requests = [
        submit(engine, batch_prompt(i), max_new_tokens=NEW_TOKENS, cache=i % 2 == 0)
        for i in range(6)
    ]
    outputs = drain(engine, requests)
    found = [outputs[request].tokens for request in requests]
    assert found == [reference_tokens(dtype, attention, index) for index in range(6)]


@every_case
def test_decoding_gives_the_logits_of_prefill(dtype, attention):
    """Greedy tokens are the argmax of the logits of the whole text, computed at once."""
    engine = new_engine(model(dtype, attention))
    prompt = batch_prompt(0)
    tokens = complete(engine, [prompt], max_new_tokens=NEW_TOKENS)[0]
    logits = engine.logits(np.concatenate([prompt, np.array(tokens[:-1], np.int32)]))
    assert logits[len(prompt) - 1 :].argmax(axis=1).tolist() == tokens


@every_dtype
@pytest.mark.parametrize("chunk", [1, 64])
def test_sampled_tokens_do_not_depend_on_batch_chunk_or_cache(dtype, chunk):
    """The random numbers belong to the request, and the filters see the same bits."""
    alone = [
        complete(new_engine(model(dtype, "full"), threads=1), [batch_prompt(i)], **EXTRA)[0]
        for i in range(7)
    ]
    engine = new_engine(model(dtype, "full"), chunk=chunk)
    requests = [submit(engine, batch_prompt(i), cache=i != 3, **EXTRA) for i in range(7)]
    outputs = drain(engine, requests)
    assert [outputs[request].tokens for request in requests] == alone
    assert len({tuple(tokens) for tokens in alone}) == 7


@every_dtype
def test_a_request_that_joins_later_changes_no_bit_of_the_others(dtype):
    engine = new_engine(model(dtype, "full"), chunk=32)
    early = submit(engine, batch_prompt(0), max_new_tokens=NEW_TOKENS)
    tokens: list[int] = []
    for _ in range(12):  # five steps of prefill, then decoding
        tokens += [event.token for event in engine.step() if event.request == early]
    late = submit(engine, batch_prompt(9), max_new_tokens=NEW_TOKENS)
    outputs = drain(engine, [early, late])
    assert tokens + outputs[early].tokens == reference_tokens(dtype, "full", 0)
    assert outputs[late].tokens == reference_tokens(dtype, "full", 9)


@every_dtype
def test_cancelling_another_request_changes_no_bit(dtype):
    """The cache blocks of the cancelled request are reused at once and still have its numbers."""
    engine = new_engine(model(dtype, "full"), chunk=32)
    kept = submit(engine, batch_prompt(5), max_new_tokens=NEW_TOKENS)
    dropped = submit(engine, batch_prompt(0), max_new_tokens=NEW_TOKENS)
    tokens = [event.token for _ in range(6) for event in engine.step() if event.request == kept]
    engine.cancel(dropped)
    next_ = submit(engine, batch_prompt(4), max_new_tokens=NEW_TOKENS)
    outputs = drain(engine, [kept, next_])
    assert tokens + outputs[kept].tokens == reference_tokens(dtype, "full", 5)
    assert outputs[next_].tokens == reference_tokens(dtype, "full", 4)


@pytest.mark.parametrize("isa", ISAS)
class TestInstructionSets:
    """Each instruction set keeps the promise, and they all compute the same bits."""

    @every_case
    def test_bits_are_the_same_everywhere(self, isa, dtype, attention):
        with instruction_set(isa):
            engine = new_engine(model(dtype, attention), chunk=64)
            assert engine.backend == f"cpu:{isa}"
            assert_same_bits(
                engine.logits(random_prompt(PROMPT_TOKENS)), reference_logits(dtype, attention)
            )

    @pairwise(case=CASES, cut=[(2, 1), (4, 7), (2, 64)])
    def test_bits_do_not_depend_on_chunk_threads_batch_or_cache(self, isa, case, cut):
        """The generic instruction set, which is slow, takes one cut and three prompts."""
        dtype, attention = case
        slow = isa == "generic"
        if slow and (attention != "mixed" or cut != (4, 7)):
            pytest.skip("slow without instructions for it")
        threads, chunk = cut
        with instruction_set(isa):
            prompts = [batch_prompt(index) for index in range(3)]
            alone = new_engine(model(dtype, attention), threads=1, chunk=ALL_CHUNK)
            tokens = [complete(alone, [p], max_new_tokens=8)[0] for p in prompts]
            engine = new_engine(model(dtype, attention), threads=threads, chunk=chunk)
            assert_same_bits(engine.logits(prompts[0]), reference_logits(dtype, attention))
            assert complete(engine, prompts, max_new_tokens=8) == tokens
            few = slice(1, 3)
            assert complete(engine, prompts[few], max_new_tokens=8, cache=False) == tokens[few]

    @pytest.mark.parametrize("dtype", ["int4"])
    def test_a_child_process_gives_the_same_bits(self, isa, dtype, run_python):
        """The environment variable is set before the start of the process, as by a user."""
        with instruction_set(isa):
            expected = new_engine(model(dtype, "mixed"), threads=1).logits(random_prompt(70))
        source = (
            "import hashlib, json\n"
            "from builders.core_engine import *\n"
            f"engine = new_engine(seeded_model('{dtype}', Shape(windows=(20, 0, 65))), 4, 7)\n"
            "logits = engine.logits(random_prompt(70))\n"
            "print(json.dumps([engine.backend, logits.view('uint32').sum(1).tolist()]))\n"
        )
        child = run_python(source, ONWARD_CPU_ISA=isa)
        assert child.returncode == 0, child.stderr
        assert json.loads(child.stdout) == [
            f"cpu:{isa}",
            expected.view(np.uint32).sum(axis=1).tolist(),
        ]


def test_fewer_bits_stay_close_to_float32():
    """The tests above compare the engine only with itself; this one compares it with float32."""
    exact = reference_logits("f32", "mixed")
    largest = {"f16": 0.003, "bf16": 0.03, "int8": 0.1, "int4": 0.6, "int4-min": 0.6}
    for dtype, share in largest.items():
        difference = reference_logits(dtype, "mixed") - exact
        assert 0 < np.sqrt((difference**2).mean()) < share * exact.std()


@pytest.mark.parametrize("name", ["avx1024", "AVX2", "generic "])
def test_an_unknown_instruction_set_is_refused(name, monkeypatch):
    monkeypatch.setenv("ONWARD_CPU_ISA", name)
    with pytest.raises(ValueError, match=r"ONWARD_CPU_ISA: unknown .*found '.*expected one of gen"):
        new_engine(model("f32", "full"))
