"""Limits and hostile arguments: counts, the context, empty prompts, token ids. The model is M-SEEN,
which must still answer like a new one after every refusal.
"""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from builders.core_engine import (
    Shape,
    new_engine,
    seeded_model,
    spec_of,
    submit,
    weight_shapes,
)
from closed_form import chain, write_pieces_tokenizer, write_seen, write_table
from onward import _core

PIECES = ["<pad>", "<s>", "</s>", "three", "four", "five", "six", "seven"]


@pytest.fixture
def llm(tmp_path, open_llm):
    """M-SEEN with a context of 16. After the test it must still work."""
    llm = open_llm(write_seen(tmp_path / "seen", max_position_embeddings=16))
    yield llm
    assert llm.generate([3, 4], max_new_tokens=3).token_ids == (4, 4, 4)
    assert llm.stats()["running"] == 0


class TestMaxNewTokens:
    def test_zero_gives_an_empty_result(self, llm):
        """An empty result that ended by its length, not one token and not an unlimited output."""
        result = llm.generate([3, 4], max_new_tokens=0)
        assert (result.token_ids, result.text) == ((), "")
        assert (result.finish_reason, result.stop_reason) == ("length", None)
        assert result.usage.completion_tokens == 0
        assert result.timings.time_to_first_token_s is None

    def test_zero_in_a_batch_and_in_a_stream(self, llm):
        assert [r.token_ids for r in llm.generate([[3], [4]], max_new_tokens=0)] == [(), ()]
        assert list(llm.stream([3], max_new_tokens=0)) == []

    @pytest.mark.parametrize("count", [1, 2, 7])
    def test_exactly_the_requested_number_of_tokens(self, llm, count):
        result = llm.generate([3, 4], max_new_tokens=count)
        assert result.token_ids == (4,) * count
        assert result.finish_reason == "length"

    @pytest.mark.parametrize("value", [-1, -(10**30)])
    def test_negative_is_a_value_error(self, llm, value):
        with pytest.raises(ValueError, match=r"max_new_tokens: is -1"):
            llm.generate([3], max_new_tokens=value)

    @pytest.mark.parametrize("value", [None, 2.5, 2.0, "3", True, [3]])
    def test_a_value_that_is_not_an_integer_is_a_type_error(self, llm, value):
        with pytest.raises(TypeError, match="max_new_tokens"):
            llm.generate([3], max_new_tokens=value)

    @pytest.mark.parametrize("value", [np.int64(3), np.uint8(3)])
    def test_numpy_integers_are_integers(self, llm, value):
        assert llm.generate([3, 4], max_new_tokens=value).token_ids == (4, 4, 4)

    @pytest.mark.parametrize("value", [10**6, 2**63, 10**30])
    def test_more_than_the_context_ends_at_the_context(self, llm, value):
        result = llm.generate([3, 4], max_new_tokens=value)
        assert result.token_ids == (4,) * 14
        assert result.finish_reason == "length"


class TestContext:
    """max_position_embeddings 16: prompt and output together."""

    @pytest.mark.parametrize("chunk", [1, 5, 256])
    @pytest.mark.parametrize(("prompt_tokens", "new"), [(8, 8), (14, 2), (15, 1), (16, 0)])
    def test_generation_ends_at_the_context(self, prompt_tokens, new, chunk, tmp_path, open_llm):
        folder = write_seen(tmp_path, max_position_embeddings=16)
        llm = open_llm(folder, prefill_chunk_tokens=chunk)
        result = llm.generate([5] * (prompt_tokens - 1) + [3], max_new_tokens=8)
        assert result.token_ids == (5,) * new
        assert result.finish_reason == "length"

    def test_a_longer_prompt_is_refused_with_both_numbers(self, llm):
        with pytest.raises(ValueError, match=r"prompt: has 17 tokens, expected at most .* of 16"):
            llm.generate([5] * 17)
        with pytest.raises(ValueError, match=r"prompt\[1\]: has 40 tokens"):
            llm.generate([[5], [5] * 40])
        with pytest.raises(ValueError, match=r"token_ids: has 17 tokens"):
            llm.logits([5] * 17)
        with pytest.raises(ValueError, match="17"):
            llm.stream([5] * 17)

    def test_logits_of_a_full_context(self, llm):
        assert llm.logits([5] * 16).shape == (16, 8)

    def test_a_batch_at_the_edge(self, llm):
        results = llm.generate([[5] * 16, [5] * 15, [5] * 14, [5]], max_new_tokens=8)
        assert [len(result.token_ids) for result in results] == [0, 1, 2, 8]


class TestEmptyPrompts:
    def test_no_ids_are_an_error(self, llm):
        nothing = np.array([], np.int32)
        with pytest.raises(ValueError, match="token_ids: is empty"):
            llm.logits([])
        with pytest.raises(ValueError, match="prompt: is empty"):
            llm.generate(nothing)
        with pytest.raises(ValueError, match="prompt: is empty"):
            llm.stream(nothing)
        with pytest.raises(ValueError, match=r"prompt\[1\]: is empty"):
            llm.generate([[3], []])

    def test_an_empty_list_is_a_prompt_without_tokens(self, llm):
        """[] could mean no prompt or no token; it is an error in every call."""
        for call in (llm.generate, llm.stream, lambda ids: asyncio.run(llm.agenerate(ids))):
            for empty in ([], ()):
                with pytest.raises(ValueError, match="prompt: is empty, expected text or at least"):
                    call(empty)

    def test_an_array_without_rows_is_a_batch_without_prompts(self, llm):
        assert llm.generate(np.zeros((0, 4), np.int64)) == []
        assert asyncio.run(llm.agenerate(np.array([], np.str_))) == []

    def test_empty_text_starts_from_bos(self, tmp_path, open_llm):
        """With "" the model continues its beginning-of-sequence token, alone and in a batch."""
        folder = write_table(tmp_path, chain(8, {1: 6, 6: 7, 7: 2, 3: 4, 4: 2}))
        write_pieces_tokenizer(folder, PIECES)
        (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
        llm = open_llm(folder)
        assert llm.generate("").prompt_token_ids == (1,)
        assert llm.generate("").token_ids == (6, 7, 2)
        batch = llm.generate(["", "three"])
        assert [result.token_ids for result in batch] == [(6, 7, 2), (4, 2)]

    def test_empty_text_without_bos_is_refused(self, tmp_path, open_llm):
        folder = write_table(tmp_path, chain(8, {3: 4, 4: 2}), bos_token_id=None)
        write_pieces_tokenizer(folder, PIECES)
        llm = open_llm(folder)
        with pytest.raises(ValueError, match=r"prompt: is empty .*no beginning-of-sequence"):
            llm.generate("")
        with pytest.raises(ValueError, match=r"prompt\[1\]: is empty"):
            llm.generate(["three", ""])
        assert llm.generate("three").token_ids == (4, 2)

    def test_a_chat_without_messages_is_refused(self, tmp_path, open_llm):
        folder = write_table(tmp_path, chain(8, {3: 4, 4: 2}))
        write_pieces_tokenizer(folder, PIECES)
        with pytest.raises(ValueError, match=r"messages: .*expected"):
            open_llm(folder).chat([])


class TestTokenIds:
    @pytest.mark.parametrize("bad", [8, -1, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**40])
    def test_ids_outside_the_vocabulary_are_refused(self, llm, bad):
        for prompt in ([bad], [3, bad, 4]):
            for call in (llm.generate, llm.stream, llm.logits):
                with pytest.raises(ValueError, match=rf"token id {bad} at position.*0 to 7"):
                    call(prompt)
        with pytest.raises(ValueError, match=r"prompt\[1\]: token id"):
            llm.generate([[3], [bad]])

    @pytest.mark.parametrize("bad", [1.5, 3.0, True, None, "3", math.nan, np.float32(3)])
    def test_values_that_are_not_integers_are_refused(self, llm, bad):
        for prompt in ([3, bad], [bad, 3]):
            with pytest.raises((ValueError, TypeError), match=r"prompt|token"):
                llm.generate(prompt)

    @pytest.mark.parametrize(
        "bad", [np.array([3.0, 4.0]), np.array([True, False]), np.array(3), {3, 4}, 3, None, b"34"]
    )
    def test_values_that_are_not_sequences_of_integers_are_refused(self, llm, bad):
        with pytest.raises((ValueError, TypeError), match="prompt"):
            llm.generate(bad)

    @pytest.mark.parametrize(
        "prompt",
        [
            (7, 6, 5),
            np.array([7, 6, 5], np.int64),
            np.array([7, 6, 5], np.uint32),
            np.array([7, 6, 5], np.int8),
            np.array([7, 6, 5], ">i4"),
            np.array([7, 0, 6, 0, 5, 0])[::2],
            np.array([5, 6, 7], np.int32)[::-1],
            [np.int64(7), np.uint8(6), 5],
        ],
        ids=["tuple", "int64", "uint32", "int8", "big-endian", "strided", "reversed", "mixed"],
    )
    def test_integers_of_any_type_are_accepted(self, llm, prompt):
        assert llm.generate(prompt, max_new_tokens=4).token_ids == (7,) * 4
        expected = llm.logits([7, 6, 5])
        np.testing.assert_array_equal(llm.logits(prompt), expected)

    @pytest.mark.parametrize("bad", [np.array([8], np.uint64), np.array([2**64 - 1], np.uint64)])
    def test_unsigned_arrays_do_not_wrap(self, llm, bad):
        with pytest.raises(ValueError, match=f"token id {bad[0]}"):
            llm.generate(bad)

    def test_a_matrix_is_a_batch(self, llm):
        results = llm.generate(np.array([[3, 4], [5, 3]]), max_new_tokens=2)
        assert [result.token_ids for result in results] == [(4, 4), (5, 5)]

    @pytest.mark.parametrize("bad", [8, -1, 2**40])
    def test_stop_token_ids_are_checked_too(self, llm, bad):
        with pytest.raises(ValueError, match="stop_token_ids"):
            llm.generate([3], stop_token_ids=[bad])


def test_the_core_checks_without_python():
    """The engine is also driven without the Python checks in front of it."""
    engine = new_engine(seeded_model("f32", Shape(num_layers=1, vocab_size=300)))
    for prompt, message in (
        ([300], "token id 300 is outside the vocabulary, expected 0 to 299"),
        ([-1], "token id -1 is outside"),
        ([], "no token ids"),
        ([1] * 4097, "has 4097 tokens, expected at most the model's context of 4096"),
    ):
        with pytest.raises(ValueError, match=message):
            submit(engine, prompt)
    with pytest.raises(ValueError, match="stop_token_ids: found token id 300, outside"):
        submit(engine, [1], stop_token_ids=[300])
    with pytest.raises(ValueError, match="token_ids: have 2 dimensions, expected 1"):
        submit(engine, np.ones((2, 2), np.int32))
    with pytest.raises(ValueError, match="prefill_chunk_tokens: found 0"):
        new_engine(seeded_model("f32"), chunk=0)


FINISH_TWICE = """
import numpy
from builders.core_engine import Shape, spec_of, weight_shapes
from onward import _core
shape = Shape(num_layers=1)
builder = _core.ModelBuilder(spec_of(shape), "f32", 1)
for name, parts in weight_shapes(shape).items():
    builder.add(name, [(numpy.ones(part, "f"), "F32", part, None) for part in parts], dtype="f32")
builder.finish()
try:
    builder.finish()
except Exception as error:
    print(type(error).__name__)
"""


def test_a_builder_that_is_finished_twice_is_an_error(run_python):
    child = run_python(FINISH_TWICE)
    assert child.returncode == 0, "ended by a signal"
    assert child.stdout.endswith("Error\n")


def test_a_strided_buffer_is_refused():
    """Its memory does not hold the rows in order. Packing it would read wrong numbers, or beyond
    its end."""
    shape = Shape(num_layers=1)
    builder = _core.ModelBuilder(spec_of(shape), "f32", 1)
    rows, columns = weight_shapes(shape)["embed"][0]
    transposed = np.ones((columns, rows), np.float32).T
    with pytest.raises(ValueError, match="'embed' is strided, expected contiguous"):
        builder.add("embed", [(transposed, "F32", transposed.shape, None)], dtype="f32")


def test_dtypes_for_storage_only_are_refused():
    """No product has such weights, and keys are floats."""
    spec = spec_of(Shape(num_layers=1))
    for dtype in ("q8_0", "q4_1", "q5_k"):
        with pytest.raises(ValueError, match=f"dtype of the cache: found {dtype}, expected f32, f"):
            _core.ModelBuilder(spec, dtype, 1)
    builder = _core.ModelBuilder(spec, "f16", 1)
    [(rows, columns)] = weight_shapes(Shape(num_layers=1))["embed"]
    part = (np.ones((rows, columns), np.float32), "F32", (rows, columns), None)
    for dtype in ("q4_k", "q6_k", "q5_1"):
        with pytest.raises(ValueError, match=f"dtype of a matrix: found {dtype}, expected f32, f1"):
            builder.add("embed", [part], dtype=dtype)
    with pytest.raises(ValueError, match="'int8', expected one of f32"):
        builder.add("embed", [part], dtype="int8")
    builder.add("embed", [part], dtype="q4_1")
