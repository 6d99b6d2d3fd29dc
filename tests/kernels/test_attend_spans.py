"""Attention over spans of 512 keys (csrc/cpu/kernels.h), at the edges of spans.

The generic kernels are compared with float64; the other instruction sets and the CUDA kernels must
give the bits of generic. An engine must give the same bits for every assignment of spans to
threads.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray

from builders import kernel_places
from builders.core_engine import (
    ALL_CHUNK,
    Shape,
    complete,
    instruction_set,
    new_engine,
    random_prompt,
    seeded_model,
)
from builders.covering import pairwise
from builders.instruction_sets import ISAS
from builders.kernel_arrays import assert_bits
from onward import _core

F32 = NDArray[np.float32]
Stored = NDArray[np.float32] | NDArray[np.float16] | NDArray[np.uint16]

SPAN = 512
TOLERANCE = 2e-6  # of the largest |value|
ROWS_AT = (1, 63, 64, 511, 512, 513, 575, 577, 1023, 1024, 1025, 1300)
"""Lengths of contexts: on and around the edges of tiles and spans."""
DTYPES = ("f32", "f16", "bf16")


@pytest.fixture(params=kernel_places.PLACES)
def places(request: pytest.FixtureRequest) -> list[str]:
    return kernel_places.beside_generic(request.param, "floats")


def promised(places: list[str], dtype: str) -> str:
    """A device promises the bits of the processor for float32 caches only."""
    return "f32" if places == [kernel_places.CUDA_HOST] else dtype


def stored(x: F32, dtype: str) -> Stored:
    if dtype == "bf16":
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    return x.astype(np.float16) if dtype == "f16" else x


def value(x: Stored) -> NDArray[np.float64]:
    if x.dtype == np.uint16:
        x = (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64)


@functools.cache
def inputs(
    dtype: str, group: int, head_dim: int, spread: float = 1.0
) -> tuple[F32, Stored, Stored]:
    """Queries, keys and values of 1,300 positions."""
    generator = np.random.default_rng(7)
    q = generator.standard_normal((1300, group, head_dim)).astype(np.float32)
    keys = (generator.standard_normal((1300, head_dim)) * spread).astype(np.float32)
    values = generator.standard_normal((1300, head_dim)).astype(np.float32)
    return q, stored(keys, dtype), stored(values, dtype)


def attend(
    place: str, whole: tuple[F32, Stored, Stored], first: int, last: int, window: int = 0
) -> F32:
    """The tokens at positions [first, last)."""
    q, keys, values = whole
    return kernel_places.attend(
        place, q[first:last], keys[:last], values[:last], first, window, 0.2
    )


def softmax(whole: tuple[F32, Stored, Stored], first: int, last: int, window: int = 0):
    q, keys, values = (value(x) for x in whole)
    out = np.empty_like(q[first:last])
    for position in range(first, last):
        begin = max(0, position - window + 1) if window else 0
        scores = 0.2 * q[position] @ keys[begin : position + 1].T
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[position - first] = p @ values[begin : position + 1] / p.sum(axis=1, keepdims=True)
    return out


Part = tuple[int, int]
"""Tokens at positions [first, last)."""


@functools.cache
def by_generic(
    dtype: str, group: int, head_dim: int, part: Part, window: int = 0, spread: float = 1.0
) -> F32:
    """The output of the generic instruction set, after a comparison with float64."""
    whole = inputs(dtype, group, head_dim, spread)
    found = attend("generic", whole, *part, window)
    bound = TOLERANCE * np.abs(value(whole[2])).max()
    if spread > 1:
        bound *= spread  # scores of up to 300, rounded to float32 before exp
    assert np.abs(found - softmax(whole, *part, window)).max() <= bound
    return found


@pairwise(dtype=DTYPES, shape=[(1, 64), (3, 24), (4, 128)], spread=[1.0, 40.0])
def test_one_token(places: list[str], dtype: str, shape: tuple[int, int], spread: float) -> None:
    """Contexts of all lengths in ROWS_AT. With a large spread the largest score may be in any span,
    so that either side of a merge is rescaled."""
    dtype = promised(places, dtype)
    for length in ROWS_AT:
        expected = by_generic(dtype, *shape, (length - 1, length), spread=spread)
        for place in places:
            found = attend(place, inputs(dtype, *shape, spread), length - 1, length)
            assert_bits(found, expected, place)


@pairwise(
    dtype=DTYPES,
    window=[1, 16, 100, 511, 512, 513, 600, 1024, 1200],
    shape=[(3, 24), (1, 64)],
    part=[(500, 530), (1010, 1040), (1111, 1112), (1290, 1300)],
)
def test_windows_across_span_edges(
    places: list[str], dtype: str, window: int, shape: tuple[int, int], part: Part
) -> None:
    """The windows begin inside one span and end inside another."""
    dtype = promised(places, dtype)
    expected = by_generic(dtype, *shape, part, window)
    for place in places:
        found = attend(place, inputs(dtype, *shape), *part, window)
        assert_bits(found, expected, place)


@pairwise(
    dtype=DTYPES,
    shape=[(1, 64), (3, 64), (7, 24)],
    window=[0, 75, 512, 700],
    part=[(490, 540), (1000, 1060)],
)
def test_decode_gives_the_bits_of_prefill(
    places: list[str], dtype: str, shape: tuple[int, int], window: int, part: Part
) -> None:
    whole = inputs(promised(places, dtype), *shape)
    begin, end = part
    for place in places:
        prefill = attend(place, whole, begin, end, window)
        for tokens in (1, 5, 16):
            for first in range(begin, end - tokens + 1, 3 if tokens == 1 else tokens):
                found = attend(place, whole, first, first + tokens, window)
                assert_bits(found, prefill[first - begin : first - begin + tokens], place)


def test_spans_are_merged_by_the_rule(places: list[str]) -> None:
    """With equal scores all factors are 1, the sums are whole numbers, and the output is the mean.
    With one key far above the others in each span, that key has the whole weight of its span."""
    zeros, count = np.zeros((1300, 16), np.float32), np.arange(1300, dtype=np.float32)
    values = count.repeat(16).reshape(1300, 16)
    for place in ["generic", *places]:
        q = np.zeros((1300, 1, 16), np.float32)
        for length in (512, 513, 1024, 1025, 1300):
            found = attend(place, (q, zeros, values), length - 1, length)
            assert (found == (length - 1) / 2).all(), place
        for strongest in (0, 511, 512, 1023, 1024, 1299):
            keys = zeros.copy()
            keys[strongest, 0] = 1000
            q[:, :, 0] = 1
            assert (attend(place, (q, keys, values), 1299, 1300) == strongest).all(), place


@pairwise(dtype=DTYPES, last=[511, 512, 513, 1024, 1030], tokens=[1, 16])
def test_stale_slots_stay_invisible(places: list[str], dtype: str, last: int, tokens: int) -> None:
    """NaN after the last position changes nothing."""
    dtype = promised(places, dtype)
    q, keys, values = inputs(dtype, 3, 24)
    first = last - tokens
    expected = by_generic(dtype, 3, 24, (first, last))
    stale_keys, stale_values = keys.copy(), values.copy()
    stale = stored(np.array([np.nan], np.float32), dtype)[0]
    stale_keys[last:], stale_values[last:] = stale, stale
    for place in ["generic", *places]:
        found = kernel_places.attend(place, q[first:last], stale_keys, stale_values, first, 0, 0.2)
        assert_bits(found, expected, place)


def test_a_nan_in_an_early_span_is_passed_on(places: list[str]) -> None:
    """A merge with a larger maximum does not hide it."""
    q, keys, values = (x.copy() for x in inputs("f32", 1, 16))
    keys[3, 5] = np.nan
    for place in ["generic", *places]:
        assert np.isnan(attend(place, (q, keys, values), 1299, 1300)).all(), place


# --- the engine, which distributes the spans of a row over threads ---

DEPTH = 1540
WINDOWS = {"full": (), "mixed": (700, 0)}
THREADS = (1, 2, 3, 5)


@functools.cache
def model(dtype: str, attention: str) -> _core.Model:
    windows = WINDOWS[attention]
    return seeded_model(dtype, Shape(num_layers=2, windows=windows))


@functools.cache
def reference(dtype: str, attention: str) -> tuple[F32, list[int]]:
    """One thread, the whole prompt in one step."""
    engine = new_engine(model(dtype, attention), threads=1, chunk=ALL_CHUNK)
    prompt = random_prompt(DEPTH)
    return engine.logits(prompt), complete(engine, [prompt], max_new_tokens=12)[0]


@pairwise(attention=[*WINDOWS], threads=THREADS, model_dtype=["f32", "bf16"], chunk=[5, 100, 512])
def test_deep_bits_do_not_depend_on_threads_or_chunks(
    attention: str, threads: int, model_dtype: str, chunk: int
) -> None:
    """Chunks of 5 tokens are cut by spans, chunks of 512 are not."""
    logits, tokens = reference(model_dtype, attention)
    prompt = random_prompt(DEPTH)
    engine = new_engine(model(model_dtype, attention), threads=threads, chunk=chunk)
    found = engine.logits(prompt)
    assert (found.view(np.uint32) == logits.view(np.uint32)).all()
    assert complete(engine, [prompt], max_new_tokens=12)[0] == tokens


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_merges_to_the_same_bits(isa: str) -> None:
    """States are computed by some threads and merged by others, with each set's own kernels."""
    with instruction_set(isa):
        engine = new_engine(model("f32", "mixed"), threads=3, chunk=20)
        assert engine.backend == f"cpu:{isa}"
        found = engine.logits(random_prompt(DEPTH)[:1050])
    expected = reference("f32", "mixed")[0][:1050]
    assert (found.view(np.uint32) == expected.view(np.uint32)).all()


@pytest.mark.parametrize("threads", [1, 5])
def test_decoding_gives_the_logits_of_prefill(threads: int) -> None:
    """Steps of one token, across the edge of a span: 1,530 tokens and 20 more."""
    engine = new_engine(model("f32", "full"), threads=threads)
    prompt = random_prompt(1530)
    tokens = complete(engine, [prompt], max_new_tokens=20)[0]
    logits = engine.logits(np.concatenate([prompt, np.array(tokens[:-1], np.int32)]))
    assert logits[len(prompt) - 1 :].argmax(axis=1).tolist() == tokens


@pytest.mark.parametrize("threads", [2, 5])
def test_deep_and_short_contexts_share_a_step(threads: int) -> None:
    """Some rows of a step are cut into spans and others are not. The states of several rows are
    stored side by side."""
    prompts = [random_prompt(length, seed=length) for length in (1100, 3, 1540, 600, 513)]
    alone = new_engine(model("f32", "mixed"), threads=1)
    expected = [complete(alone, [prompt], max_new_tokens=8)[0] for prompt in prompts]
    engine = new_engine(model("f32", "mixed"), threads=threads, chunk=300)
    assert complete(engine, prompts, max_new_tokens=8) == expected
