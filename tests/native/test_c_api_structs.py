"""Callers with an older or newer header than the library: structs that are shorter or longer.

A shorter struct gets defaults for missing fields. A longer struct is refused if an unknown field is
set. Results are written only up to the size of the caller's struct.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from builders.c_interface import FUNCTIONS, STRUCTS, CEngine, CError, lib, request_of, struct
from builders.core_engine import Shape, new_engine, random_prompt, seeded_model
from onward import _core

PROMPT = random_prompt(12, seed=3)


@pytest.fixture(scope="module")
def core():
    return new_engine(seeded_model("f32", Shape(num_layers=1)), threads=1)


@pytest.fixture
def engine(core):
    with CEngine.of(core) as made:
        yield made
        assert made.stats()["running"] == 0


def refusal(work) -> CError:
    with pytest.raises(CError) as caught:
        work()
    return caught.value


def longer(made: ctypes.Structure, extra: bytes) -> ctypes.Array[ctypes.c_char]:
    """The struct of a caller with more fields than the library has."""
    size = ctypes.sizeof(made)
    buffer = ctypes.create_string_buffer(bytes(made) + extra, size + len(extra))
    ctypes.c_size_t.from_buffer(buffer).value = size + len(extra)
    return buffer


def test_a_longer_request_whose_new_fields_are_zero(engine):
    made = request_of(PROMPT, max_new_tokens=4)
    buffer = longer(made, bytes(24))
    request = engine.submit_struct(buffer)
    assert len(engine.drain([request])[request][0].tokens) == 4


@pytest.mark.parametrize("at", [0, 7, 23])
def test_a_longer_request_with_an_unknown_field_set_is_refused(engine, at):
    made = request_of(PROMPT)
    extra = bytearray(24)
    extra[at] = 1
    error = refusal(lambda: engine.submit_struct(longer(made, bytes(extra))))
    assert error.status == "ONWARD_INVALID_ARGUMENT"
    assert f"request: byte {ctypes.sizeof(made) + at} is set" in error.message


def test_a_shorter_request_has_defaults_for_missing_fields(engine):
    """The caller's header is older than rules, priorities and log-probabilities."""
    made = request_of(PROMPT, max_new_tokens=4, logprobs=5, cache=0, priority=10**9)
    made.size = type(made).logprobs.offset
    request = engine.submit_struct(made)
    events = engine.drain([request])[request][0].events
    assert len(events) == 4 and all(event.top == [] for event in events)


SIZES = [0, 1, 7, 8, 4097, 4104, 2**63, 2**64 - 1, 2**64 - 8]


@pytest.mark.parametrize("size", [*SIZES, 13, 20])
def test_impossible_sizes_are_refused(engine, size):
    with engine.model() as model:
        options = struct("engine_options")
        stats, info = struct("stats"), struct("model_info")
        request, sampled, beamed = (
            request_of(PROMPT),
            request_of(PROMPT, sampling={"temperature": 0.0}),
            request_of(PROMPT, beams={"num_beams": 2}),
        )
        for made in (request, options, stats, info):
            made.size = size
        for made in (sampled, beamed):
            kind = "sampling" if made.sampling else "beams"
            ctypes.c_size_t.from_address(getattr(made, kind)).value = size
        value = ctypes.c_void_p()
        calls = {
            "request": lambda: engine.submit_struct(request),
            "sampling": lambda: engine.submit_struct(sampled),
            "beams": lambda: engine.submit_struct(beamed),
        }
        for name, work in calls.items():
            error = refusal(work)
            assert error.message.startswith(f"{name}: size: found {size}, expected sizeof(onward_")
        assert lib.onward_engine_open(model.handle, ctypes.byref(options), ctypes.byref(value)) == 1
        assert lib.onward_engine_stats(engine.handle, ctypes.byref(stats)) == 1
        assert lib.onward_model_get_info(model.handle, ctypes.byref(info)) == 1
        assert bytes(stats)[8:] == bytes(ctypes.sizeof(stats) - 8)
        count = ctypes.c_size_t(77)
        assert (
            lib.onward_engine_step(
                engine.handle,
                ctypes.create_string_buffer(4096),
                ctypes.c_size_t(size),
                ctypes.c_size_t(1),
                ctypes.byref(count),
            )
            == 1
        )
        assert count.value == 77


def test_results_for_callers_with_shorter_and_longer_structs(engine):
    whole = engine.stats()
    for size in (24, ctypes.sizeof(STRUCTS["onward_stats"]) + 16):
        buffer = ctypes.create_string_buffer(b"\x55" * 256, 256)
        ctypes.c_size_t.from_buffer(buffer).value = size
        assert lib.onward_engine_stats(engine.handle, buffer) == 0
        words = np.frombuffer(buffer.raw, np.int64)
        known = [size, *whole.values(), 0, 0][: size // 8]
        assert words.tolist() == known + [0x5555555555555555] * (32 - len(known))


@pytest.mark.parametrize("size", [16, 40, 160])
def test_events_for_callers_with_structs_of_another_size(engine, size):
    """Events for an older caller are shortened, events for a newer one are filled with zeros. No
    byte after them is written."""
    expected = engine.complete(PROMPT, max_new_tokens=1, num_sequences=2)
    request = engine.submit(PROMPT, max_new_tokens=1, num_sequences=2)
    buffer = ctypes.create_string_buffer(b"\x55" * 512, 512)
    count = ctypes.c_size_t()
    while count.value == 0:
        assert (
            lib.onward_engine_step(
                engine.handle,
                buffer,
                ctypes.c_size_t(size),
                ctypes.c_size_t(3),
                ctypes.byref(count),
            )
            == 0
        )
    assert count.value == 2
    known = ctypes.sizeof(STRUCTS["onward_event"])
    for index in range(2):
        own = buffer.raw[index * size : (index + 1) * size]
        assert np.frombuffer(own[:16], np.int64).tolist() == [request, index]
        if size > 16:
            assert np.frombuffer(own[16:20], np.int32)[0] == expected[index][0]
        assert own[known:] == bytes(max(size - known, 0))
    assert buffer.raw[2 * size :] == b"\x55" * (512 - 2 * size)


def test_defaults_are_written_only_up_to_the_callers_size():
    for name in FUNCTIONS:
        if not name.endswith("_init_sized"):
            continue
        kind = STRUCTS[name.removesuffix("_init_sized")]
        whole = kind()
        getattr(lib, name)(ctypes.byref(whole), ctypes.c_size_t(ctypes.sizeof(whole)))
        assert whole.size == ctypes.sizeof(kind)
        for size in (16, ctypes.sizeof(kind) + 8):
            buffer = ctypes.create_string_buffer(b"\x55" * 1024, 1024)
            getattr(lib, name)(buffer, ctypes.c_size_t(size))
            expected = (bytes(whole)[8:] + bytes(8))[: size - 8]
            assert buffer.raw[8:] == expected + b"\x55" * (1024 - size), name
            assert ctypes.c_size_t.from_buffer(buffer).value == size


def test_defaults_equal_the_core():
    sampling, core = struct("sampling"), _core.SamplingOptions()
    for name, _ in sampling._fields_:
        if hasattr(core, name) and name not in ("logit_bias", "suppress_tokens"):
            value = getattr(sampling, name)
            assert value == getattr(core, name), name
    beams, core_beams = struct("beams"), _core.BeamOptions()
    for name, _ in beams._fields_:
        if name != "size":
            assert getattr(beams, name) == getattr(core_beams, name), name
