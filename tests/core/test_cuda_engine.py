"""The engine on the CUDA kernels, run on the processor: the promises for every device.

A prompt gives the same bits for any size of chunks and with any other requests, although few and
many rows, short and long contexts, recorded and other steps use different kernels. Compared with
the CPU: the same bits with float32, and with quantised weights if attention has the order of the
CPU; close to it in other cases.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.core_engine import (
    ALL_CHUNK,
    Shape,
    complete,
    drain,
    new_engine,
    random_prompt,
    seeded_model,
    submit,
)
from builders.kernel_arrays import assert_bits
from onward import _core

pytestmark = pytest.mark.skipif(
    "cuda-host" not in [name for name, _, _ in _core.devices()],
    reason="the CUDA kernels are not built for the processor",
)

SHAPES = {
    # head_dim 24: attention in the processor's order.
    "odd": Shape(num_layers=2, windows=(20, 0)),
    # Tensor cores, with the heads of a kv head in one tile.
    "tiles": Shape(head_dim=32, num_layers=2, windows=(0, 65)),
    "wide": Shape(head_dim=80, num_layers=1),
}
PROMPT_TOKENS = 100
SPANS_PROMPT = 1100  # three spans of 512 keys


@functools.cache
def model(dtype: str, shape: str, device: str = "cuda-host") -> _core.Model:
    return seeded_model(dtype, SHAPES[shape], device=device)


def logits(dtype: str, shape: str, chunk: int, tokens: int, device: str) -> NDArray[np.float32]:
    engine = new_engine(model(dtype, shape, device), chunk=chunk)
    return engine.logits(random_prompt(tokens))


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        *((dtype, "odd") for dtype in ("f32", "bf16", "int4-min")),
        *((dtype, "tiles") for dtype in ("bf16", "f16", "int8", "int4")),
        ("bf16", "wide"),
    ],
)
def test_the_size_of_chunks_changes_no_bit(dtype: str, shape: str) -> None:
    """Chunks of one token are tested by decoding, below."""
    whole = logits(dtype, shape, ALL_CHUNK, PROMPT_TOKENS, "cuda-host")
    for chunk in (13, 64):
        assert_bits(logits(dtype, shape, chunk, PROMPT_TOKENS, "cuda-host"), whole)


SMALL = {"num_layers": 1, "hidden_size": 32, "intermediate_size": 32}


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("int8", marks=pytest.mark.slow)])
def test_long_contexts_are_cut_among_blocks_and_keep_their_bits(dtype: str) -> None:
    """A few rows share the spans of their keys among blocks, many rows do not."""
    prompt = random_prompt(SPANS_PROMPT)
    made = seeded_model(dtype, Shape(head_dim=32, **SMALL), device="cuda-host")
    whole = new_engine(made, chunk=ALL_CHUNK).logits(prompt)
    assert_bits(new_engine(made, chunk=20).logits(prompt), whole)


@pytest.mark.parametrize(
    ("window", "heads"),
    [
        (511, 2),
        pytest.param(512, 6, marks=pytest.mark.slow),
        pytest.param(700, 6, marks=pytest.mark.slow),
    ],
)
def test_a_window_that_ends_inside_a_span_keeps_its_bits_on_a_large_gpu(
    window: int, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """132 multiprocessors, as on an H100, so that blocks of several rows share the spans of their
    keys. The rows of such a block together may touch one span more than any of them sees."""
    shape = Shape(head_dim=32, num_heads=heads, windows=(window,), **SMALL)
    prompt = random_prompt(SPANS_PROMPT)
    whole = new_engine(seeded_model("bf16", shape, device="cuda-host"), chunk=ALL_CHUNK)
    expected = whole.logits(prompt)
    monkeypatch.setenv("ONWARD_CUDA_HOST_PROCESSORS", "132")
    for chunk in (100, 250):
        engine = new_engine(seeded_model("bf16", shape, device="cuda-host"), chunk=chunk)
        assert_bits(engine.logits(prompt), expected)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_the_size_of_shared_memory_changes_no_bit(
    head_dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block may have 99 KiB on compute capability 8.6, 8.9 and 12.0, and 163 KiB on 8.0, where
    attention takes more rows at a time."""
    shape = Shape(head_dim=head_dim, num_heads=4, **SMALL)
    found = []
    for kibibytes in (99, 163):
        monkeypatch.setenv("ONWARD_CUDA_HOST_SHARED_BYTES", str(kibibytes << 10))
        engine = new_engine(seeded_model("bf16", shape, device="cuda-host"), chunk=ALL_CHUNK)
        found.append(engine.logits(random_prompt(PROMPT_TOKENS)))
    assert_bits(found[0], found[1])


def test_a_row_that_decodes_over_spans_has_the_bits_of_the_processor() -> None:
    """float32: the spans of the last row are split over blocks, the spans of the prompt are not."""
    reported = []
    for device in ("cuda-host", "cpu"):
        engine = new_engine(
            seeded_model("f32", Shape(head_dim=24, **SMALL), device=device), chunk=ALL_CHUNK
        )
        request = submit(engine, random_prompt(SPANS_PROMPT), max_new_tokens=4, logprobs=2)
        output = drain(engine, [request])[request]
        reported.append((output.tokens, [choice.raw_top for choice in output.logprobs]))
    assert reported[0] == reported[1]


@pytest.mark.parametrize(
    "dtype",
    [
        *("f32", "bf16", "int4"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("f16", "int8", "int4-min")),
    ],
)
def test_other_requests_change_no_token(dtype: str) -> None:
    """Decoding too: from the third token on the steps are recorded."""
    prompts = [random_prompt(length, seed=length) for length in (40, 1, 17, 64)]
    options = {"max_new_tokens": 8}
    alone = [
        complete(new_engine(model(dtype, "tiles")), [prompt], **options)[0] for prompt in prompts
    ]
    together = complete(new_engine(model(dtype, "tiles"), chunk=50), prompts, **options)
    assert together == alone


def test_decoding_gives_the_logits_of_a_prefill() -> None:
    engine = new_engine(model("bf16", "tiles"))
    prompt = random_prompt(30)
    written = complete(engine, [prompt], max_new_tokens=20)[0]
    text = np.concatenate([prompt, np.array(written, np.int32)])
    best = new_engine(model("bf16", "tiles")).logits(text).argmax(1)
    assert best[len(prompt) - 1 : -1].tolist() == written


@pytest.mark.parametrize("dtype", ["f32", "int8", "int4", "int4-min"])
def test_bits_equal_the_processor(dtype: str) -> None:
    found, expected = (
        logits(dtype, "odd", 64, PROMPT_TOKENS, device) for device in ("cuda-host", "cpu")
    )
    assert_bits(found, expected)


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_bits_equal_the_processor_in_a_coded_cache(dtype: str) -> None:
    """Heads of 32, which an f16 cache without codes would give to tensor cores."""
    found, expected = (
        _core.Engine(
            model(dtype, "tiles", device),
            threads=2,
            prefill_chunk_tokens=64,
            kv_keys="turbo4",
            kv_values="int8",
            kv_window_tokens=16,
        ).logits(random_prompt(PROMPT_TOKENS))
        for device in ("cuda-host", "cpu")
    )
    assert_bits(found, expected)


def test_sequences_of_one_step_are_encoded_in_each_group_of_layers() -> None:
    """Two prompts in one step, and layers of two windows: a step encodes blocks in the order of the
    sequences, and a launch takes the blocks of the layers of one window."""
    prompts = [random_prompt(length, seed=length) for length in (100, 90)]
    found = []
    for device in ("cuda-host", "cpu"):
        engine = _core.Engine(
            model("int8", "tiles", device),
            threads=2,
            prefill_chunk_tokens=256,
            kv_keys="turbo4",
            kv_values="int8",
            kv_window_tokens=16,
        )
        requests = [submit(engine, prompt, max_new_tokens=3, logprobs=3) for prompt in prompts]
        outputs = drain(engine, requests)
        found.append([[choice.raw_top for choice in outputs[r].logprobs] for r in requests])
    assert len(found[0]) == 2 and all(len(rows) == 3 for rows in found[0])
    assert found[0] == found[1]


def test_f32_bits_equal_the_processor_for_any_head_dim() -> None:
    for shape in ("tiles", "wide"):
        found, expected = (
            logits("f32", shape, 64, PROMPT_TOKENS, device) for device in ("cuda-host", "cpu")
        )
        assert_bits(found, expected)


@pytest.mark.parametrize(("dtype", "most"), [("bf16", 2e-3), ("f16", 2e-5), ("int8", 2e-2)])
def test_other_dtypes_are_close_to_the_processor(dtype: str, most: float) -> None:
    """Mean KL divergence of the predictions of this model, whose logits are spread on purpose. int8
    rounds inputs, so the smallest difference may become a whole step of int8."""
    found, expected = (
        logits(dtype, "tiles", 64, PROMPT_TOKENS, device).astype(np.float64)
        for device in ("cuda-host", "cpu")
    )
    log_p, log_q = (x - np.logaddexp.reduce(x, axis=1, keepdims=True) for x in (expected, found))
    divergence = (np.exp(log_p) * (log_p - log_q)).sum(1).mean()
    assert 0 < divergence < most
