"""Random numbers: a pure function of (seed, stream, step), with any other requests and in any
process.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from builders.core_engine import complete, new_engine, random_prompt, seeded_model
from builders.distributions import table_engine
from closed_form import write_table

UNIFORM_4 = np.full((8, 8), -100.0)
UNIFORM_4[:, 3:7] = 0
SAMPLED = {"max_new_tokens": 16, "temperature": 1.0}


@pytest.fixture
def llm(tmp_path, open_llm):
    """Draws 3, 4, 5 and 6 with equal probability after every token."""
    return open_llm(write_table(tmp_path / "uniform", UNIFORM_4))


def philox4x32(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10, Salmon et al. 2011, written from the paper."""
    for _ in range(10):
        low = 0xD2511F53 * counter[0]
        high = 0xCD9E8D57 * counter[2]
        counter = [
            (high >> 32) ^ counter[1] ^ key[0],
            high & 0xFFFFFFFF,
            (low >> 32) ^ counter[3] ^ key[1],
            low & 0xFFFFFFFF,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def words(number: int) -> list[int]:
    return [number & 0xFFFFFFFF, number >> 32]


def test_the_second_implementation_is_philox():
    """The known answers of the authors' own test file (Random123, kat_vectors)."""
    ones = 0xFFFFFFFF
    assert philox4x32([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox4x32([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize("stream", [0, 1, 2**32 + 5, 2**64 - 1])
@pytest.mark.parametrize("seed", [0, 1, 42, 2**32, 2**64 - 1])
def test_draws_are_philox_of_seed_stream_and_step(seed, stream):
    """The first six bits select one of 64 equal tokens; key = seed, counter = (step, stream)."""
    engine = table_engine(np.zeros(64))
    [tokens] = complete(engine, [[0]], temperature=1.0, seed=seed, stream=stream)
    for step, token in enumerate(tokens):
        assert token == philox4x32([*words(step), *words(stream)], words(seed))[0] >> 26


def test_a_prompt_of_another_length_draws_the_same_numbers():
    """Steps count output tokens, not positions."""
    engine = table_engine(np.zeros(64))
    short, long = complete(engine, [[0], [0] * 50], temperature=1.0, seed=7)
    assert short == long


class TestSeed42:
    """Seed 42 gives one answer: alone, in a batch, after other calls, after loading again."""

    def test_the_answer_is_the_same_alone_in_a_batch_and_after_others(self, llm):
        alone = llm.generate([1], seed=42, **SAMPLED).token_ids
        assert len(alone) == 16
        assert set(alone) <= {3, 4, 5, 6}
        assert len(set(alone)) > 1
        llm.generate([[1], [3]], **SAMPLED)
        assert llm.generate([1], seed=42, **SAMPLED).token_ids == alone
        for batch in ([[1], [3]], [[3], [1]], [[4, 5], [6], [1], [7]]):
            results = llm.generate(batch, seed=42, **SAMPLED)
            assert results[batch.index([1])].token_ids == alone
        stream = llm.stream([1], seed=42, **SAMPLED)
        assert list(stream) == []  # no tokenizer, no text
        assert stream.result.token_ids == alone

    def test_the_answer_is_the_same_after_loading_again_and_in_a_new_process(
        self, llm, tmp_path, open_llm, run_python
    ):
        alone = llm.generate([1], seed=42, **SAMPLED).token_ids
        again = open_llm(tmp_path / "uniform", threads=1)
        assert again.generate([1], seed=42, **SAMPLED).token_ids == alone
        child = run_python(GENERATE_IN_A_CHILD, tmp_path / "uniform", 42)
        assert json.loads(child.stdout) == list(alone), child.stderr

    def test_copies_of_a_prompt_differ_from_each_other_and_repeat(self, llm):
        """The k-th copy draws from stream k, so the first is the same as alone."""
        first = [r.token_ids for r in llm.generate([[1]] * 3, seed=42, **SAMPLED)]
        second = [r.token_ids for r in llm.generate([[1]] * 3, seed=42, **SAMPLED)]
        assert first == second
        assert len(set(first)) == 3
        assert first[0] == llm.generate([1], seed=42, **SAMPLED).token_ids


GENERATE_IN_A_CHILD = """
import json, sys, onward
seed = None if sys.argv[2] == "None" else int(sys.argv[2])
llm = onward.LLM(sys.argv[1])
print(json.dumps(llm.generate([1], max_new_tokens=16, temperature=1.0, seed=seed).token_ids))
"""


class TestNoSeed:
    def test_two_calls_differ(self, llm):
        """16 tokens with 4 equally likely values: equal by chance once in 4 billion."""
        first, second = (llm.generate([1], **SAMPLED) for _ in range(2))
        assert first.token_ids != second.token_ids

    def test_rows_of_a_batch_differ(self, llm):
        results = llm.generate([[1]] * 4, seed=None, **SAMPLED)
        assert len({result.token_ids for result in results}) == 4

    def test_fresh_processes_differ(self, tmp_path, run_python):
        folder: Path = write_table(tmp_path / "uniform", UNIFORM_4)
        outputs = {run_python(GENERATE_IN_A_CHILD, folder, None).stdout for _ in range(3)}
        assert len(outputs) == 3
        assert all(len(json.loads(output)) == 16 for output in outputs)

    def test_a_drawn_seed_repeats_the_answer(self, llm):
        result = llm.generate([1], **SAMPLED)
        again = llm.generate([1], seed=result.options.seed, **SAMPLED)
        assert again.token_ids == result.token_ids


def test_greedy_needs_no_seed():
    engine = new_engine(seeded_model("f32"))
    prompt = random_prompt(10)
    assert len({tuple(complete(engine, [prompt], seed=seed)[0]) for seed in range(5)}) == 1
