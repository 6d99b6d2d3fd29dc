"""Memory and open files do not grow, however often the engine is called, loaded or dropped.

Each measurement runs in its own child process, where nothing else changes the figures. The short
versions always run; the long ones are marked slow.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.checkpoints import with_header
from builders.resources import needs_proc
from builders.seeded_folder import write_seeded
from closed_form import base_config, write_pieces_tokenizer
from onward.load import architectures
from onward.load.architectures.parts import stored_shapes

pytestmark = needs_proc
MIB = 2**20

PRELUDE = """
import gc, json, sys, onward
from builders.resources import open_files, peak_growth, resident_bytes
folder = sys.argv[1]
def measure():
    gc.collect()
    return {"bytes": resident_bytes(), "files": open_files()}
"""

MANY_CALLS = """
llm = onward.LLM(folder, dtype="f32")
def call(i):
    if i % 4 == 0:
        llm.generate([1 + i % 50, 7], max_new_tokens=32, temperature=0.8)
    elif i % 4 == 1:
        for piece in llm.stream([1 + i % 50, 7], max_new_tokens=32):
            break
    elif i % 4 == 2:
        stream = llm.stream([1 + i % 50, 7], max_new_tokens=32)
        next(stream)
        del stream
    else:
        try:
            llm.generate([[5], [10**9]], max_new_tokens=32)
        except ValueError:
            pass
before_last, calls = int(sys.argv[2]), int(sys.argv[3])
for i in range(before_last):
    call(i)
start = measure()
for i in range(before_last, calls):
    call(i)
end = measure()
print(json.dumps([start, end, llm.stats()["cache_blocks_in_use"]]))
"""

MANY_LOADS = """
def load():
    with onward.LLM(folder, dtype="f32") as llm:
        llm.generate([5, 6], max_new_tokens=4)
    return llm.weight_bytes
for _ in range(3):
    load()
start = measure()
for _ in range(int(sys.argv[2])):
    weight_bytes = load()
print(json.dumps([start, measure(), weight_bytes]))
"""

MANY_FAILURES = """
def load():
    try:
        onward.LLM(folder, dtype="f32")
    except ValueError:
        return
    raise AssertionError("it loaded")
for _ in range(3):
    load()
start = measure()
for _ in range(int(sys.argv[2])):
    load()
print(json.dumps([start, measure()]))
"""

CLOSING = """
from builders.resources import resident_bytes
llm = onward.LLM(folder, dtype="f32")
llm.generate([5, 6], max_new_tokens=4)
full = measure()
llm.close()
closed = resident_bytes()  # before any garbage collection
print(json.dumps([full["bytes"], closed, llm.weight_bytes]))
"""

HUGE_CONTEXT = """
import numpy
llm = []
grown = peak_growth(lambda: llm.append(onward.LLM(folder, dtype="f32")))
grown += peak_growth(lambda: llm[0].generate([5, 6, 7], max_new_tokens=8))
print(json.dumps([grown, llm[0].context, llm[0].weight_bytes]))
"""

LOADING_HIGH_WATER = """
from onward.load.hub import find_model
from onward.load.loading import load_model
def high_water():
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
load_model(find_model(folder + "/../warm"), "f32", 2)
before = measure()["bytes"]
model = load_model(find_model(folder), sys.argv[2], 2)
print(json.dumps([high_water() - before, model.core.weight_bytes]))
"""

LOADING = """
onward.LLM(folder + "/../warm", dtype="f32")
grown = peak_growth(lambda: onward.LLM(folder))
print(json.dumps([grown]))
"""


@pytest.fixture
def measured(run_python) -> Callable[..., Any]:
    """Runs a script of this file and reads what it prints."""

    def run(script: str, *arguments: object) -> Any:
        child = run_python(PRELUDE + script, *arguments, timeout=240)
        assert child.returncode == 0, child.stderr
        return json.loads(child.stdout)

    return run


@pytest.fixture
def folder(tmp_path):
    """A small model with text, so that a stream can be abandoned between two pieces."""
    write_seeded(tmp_path / "model")
    write_pieces_tokenizer(tmp_path / "model", [f"<{token}>" for token in range(256)])
    return tmp_path / "model"


@pytest.fixture
def medium_folder(tmp_path):
    """About 30 MB of weights in float32."""
    return write_seeded(tmp_path / "medium", hidden_size=512, intermediate_size=1024, num_layers=3)


@pytest.mark.parametrize(
    ("before_last", "calls"),
    [(200, 500), pytest.param(200, 1000, marks=pytest.mark.slow)],
)
def test_calls_do_not_grow_the_memory(before_last, calls, folder, measured):
    """Whole, abandoned, dropped and refused calls in turn: from call 200 on under 5 MB."""
    start, end, blocks = measured(MANY_CALLS, folder, before_last, calls)
    assert end["bytes"] - start["bytes"] < 5 * MIB
    assert end["files"] == start["files"]
    assert blocks == 0


@pytest.mark.parametrize("loads", [8, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("speaks", [True, False], ids=["tokenizer", "no-tokenizer"])
def test_repeated_loading_does_not_grow_the_memory(loads, speaks, medium_folder, measured):
    """Growth of less than one model, whether or not it has a tokenizer; files are closed."""
    if speaks:
        write_pieces_tokenizer(medium_folder, [f"<{token}>" for token in range(256)])
    start, end, weight_bytes = measured(MANY_LOADS, medium_folder, loads)
    assert weight_bytes > 25 * MIB
    assert end["bytes"] - start["bytes"] < 0.5 * weight_bytes
    assert end["files"] == start["files"]


@pytest.mark.parametrize("loads", [10, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", ["truncated", "config"])
def test_repeated_failures_to_load_do_not_grow_the_memory(loads, fault, medium_folder, measured):
    """A file that ends too early, and a config that does not fit the tensors."""
    if fault == "truncated":
        weights = medium_folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4])
    else:
        config = json.loads((medium_folder / "config.json").read_text())
        (medium_folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
    start, end = measured(MANY_FAILURES, medium_folder, loads)
    assert end["bytes"] - start["bytes"] < 5 * MIB
    assert end["files"] == start["files"]


@pytest.mark.parametrize("speaks", [True, False], ids=["tokenizer", "no-tokenizer"])
def test_close_frees_the_weights_at_once(speaks, medium_folder, measured):
    """The object stays alive, and the garbage collector is not needed."""
    if speaks:
        write_pieces_tokenizer(medium_folder, [f"<{token}>" for token in range(256)])
    full, closed, weight_bytes = measured(CLOSING, medium_folder)
    assert full - closed > 0.9 * weight_bytes


@pytest.mark.parametrize("context", [131_072, 1_024_000, 2**40])
@pytest.mark.parametrize("scaling", [None, {"rope_type": "dynamic", "factor": 2.0}])
def test_memory_follows_the_text_not_the_context(context, scaling, tmp_path, measured):
    """Neither the cache nor the rotary angles are allocated for max_position_embeddings."""
    folder = write_seeded(tmp_path / "model", max_position_embeddings=context, rope_scaling=scaling)
    grown, llm_context, weight_bytes = measured(HUGE_CONTEXT, folder)
    assert weight_bytes < MIB
    assert llm_context >= min(context, 2**31 - 1)
    assert grown < 60 * MIB


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_loading_takes_little_more_than_the_model(dtype, tmp_path, measured):
    """Source pages are released while tensors are packed: the peak is 1.2 times the file, and bf16
    is not widened in between."""
    folder = write_seeded(
        tmp_path / "model",
        hidden_size=512,
        intermediate_size=2048,
        num_layers=8,
        vocab_size=8192,
        dtype=dtype,
    )
    write_seeded(tmp_path / "warm")
    size = (folder / "model.safetensors").stat().st_size
    assert size > 60 * MIB
    [grown] = measured(LOADING, folder)
    assert grown < 1.2 * size


@pytest.fixture(scope="module")
def large_folders(tmp_path_factory) -> Callable[[str], Path]:
    """Models of 130 million weights, half of them in one tensor, made by repeating one million
    numbers."""

    @functools.cache
    def write(stored: str) -> Path:
        folder = tmp_path_factory.mktemp("large") / "model"
        write_seeded(folder.parent / "warm")
        config = base_config(
            hidden_size=1024,
            intermediate_size=4096,
            num_hidden_layers=4,
            num_attention_heads=16,
            num_key_value_heads=8,
            vocab_size=65536,
            tie_word_embeddings=True,
        )
        noise = np.random.default_rng(1).standard_normal(1 << 20, dtype=np.float32) / 32
        values = noise if stored == "F32" else (noise.view(np.uint32) >> 16).astype(np.uint16)
        plan = architectures.tensor_plan(architectures.read_spec(config))
        header: dict[str, Any] = {}
        at = 0
        for source, shape in stored_shapes(plan).items():
            end = at + prod(shape) * values.itemsize
            header[source] = {"dtype": stored, "shape": shape, "data_offsets": [at, end]}
            at = end
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        with open(folder / "model.safetensors", "wb") as file:
            file.write(with_header(json.dumps(header).encode(), b""))
            for begin in range(0, at, values.nbytes):
                file.write(values.view(np.uint8)[: at - begin])
        return folder

    return write


@pytest.mark.parametrize(
    ("stored", "dtype"),
    [
        *(("BF16", "bf16"), ("BF16", "int8"), ("BF16", "int4")),
        pytest.param("F32", "f16", marks=pytest.mark.slow),
        pytest.param("F32", "int4", marks=pytest.mark.slow),
    ],
)
def test_loading_takes_little_more_than_what_is_packed(stored, dtype, large_folders, measured):
    """Pages of the file are dropped while a tensor is packed, not only after it."""
    folder = large_folders(stored)
    grown, weight_bytes = measured(LOADING_HIGH_WATER, folder, dtype)
    size = (folder / "model.safetensors").stat().st_size
    assert size > 240 * MIB
    per_weight = {"f16": 2, "bf16": 2, "int8": 34 / 32, "int4": (18 + 34) / 64}[dtype]
    assert weight_bytes == pytest.approx(130e6 * per_weight, rel=0.02)
    assert grown < 1.15 * weight_bytes + 16 * MIB
