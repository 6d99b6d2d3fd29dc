"""Refusals of the C interface: each has its status and a message that names the cause, and writes
no result. Afterwards the engine serves the next call normally.
"""

from __future__ import annotations

import ctypes
import math
import threading
from typing import Any

import pytest

from builders.c_interface import (
    FUNCTIONS,
    STRUCTS,
    CEngine,
    CError,
    ids_of,
    lib,
    request_of,
    struct,
)
from builders.core_engine import Shape, new_engine, random_prompt, seeded_model

PROMPT = random_prompt(12, seed=3)
VOCAB = Shape.vocab_size
INT64 = (-(2**63), 2**63 - 1)
NAN, INF = math.nan, math.inf


@pytest.fixture(scope="module")
def core():
    return new_engine(seeded_model("f32", Shape(num_layers=1)), threads=1)


@pytest.fixture
def engine(core):
    with CEngine.of(core) as made:
        before = made.complete(PROMPT, max_new_tokens=4)
        yield made
        assert made.stats()["running"] == 0
        assert made.complete(PROMPT, max_new_tokens=4) == before


def refusal(work: Any) -> CError:
    with pytest.raises(CError) as caught:
        work()
    return caught.value


# Handles


def functions_of_a(kind: str) -> list[str]:
    """The functions that take a handle of this kind."""
    found = [name for name in FUNCTIONS if name.startswith(f"onward_{kind}_")]
    made_of_a_model = ["onward_engine_open"] if kind == "model" else []
    return [n for n in found if not n.endswith(("_init_sized", "_open"))] + made_of_a_model


@pytest.mark.parametrize("kind", ["engine", "model"])
def test_invalid_handles_are_refused(core, kind):
    """Null, garbage, closed, and of the other kind: every function reports it and reads no other
    argument."""
    engine = CEngine.of(core)
    model = engine.model()
    closed, other = CEngine.of(core), engine.handle.value
    if kind == "engine":
        closed_value, other = closed.handle.value, model.handle.value
        closed.close()
    else:
        gone = engine.model()
        closed_value = gone.handle.value
        gone.close()
        closed.close()
    here = ctypes.create_string_buffer(64)
    garbage = [1, 7, 4096, 2**64 - 1, 2**63, ctypes.addressof(here), id(core)]
    names = functions_of_a(kind)
    assert len(names) >= 5
    for value in [None, closed_value, other, *garbage]:
        for name in names:
            arguments = [ctypes.c_void_p()] * 6
            first = ctypes.c_void_p(value)
            status = getattr(lib, name)(first, *arguments)
            assert status == 2, (name, value)
            if name != "onward_engine_interrupt":
                reported = lib.onward_last_error().decode()
                expected = "null" if value is None else "closed, or none"
                assert reported == f"{kind}: the handle is {expected}, expected an open {kind}"
    assert engine.stats()["running"] == 0 and model.info().vocab_size == VOCAB
    engine.close()
    model.close()


def test_a_second_close_is_an_error(core):
    engine = CEngine.of(core)
    model = engine.model()
    for handle in (engine, model):
        handle.close()
        assert refusal(handle.close).status == "ONWARD_CLOSED"


def test_the_last_error_belongs_to_its_thread(engine):
    assert refusal(lambda: engine.submit([])).message.startswith("prompt:")
    reported = []
    thread = threading.Thread(target=lambda: reported.append(lib.onward_last_error()))
    thread.start()
    thread.join()
    assert reported == [b""]
    engine.stats()
    assert lib.onward_last_error().decode().startswith("prompt:"), "of the last call that failed"


# Numbers

SAMPLING = [
    *[("temperature", value) for value in (-0.1, NAN, INF)],
    *[("top_k", value) for value in (-1, INT64[0])],
    *[(name, value) for name in ("top_p", "min_p") for value in (-0.1, 1.1, NAN, INF)],
    *[("typical_p", value) for value in (0.0, 1.1, NAN)],
    *[("top_n_sigma", value) for value in (-1.0, NAN, INF)],
    *[(name, v) for name in ("epsilon_cutoff", "eta_cutoff") for v in (-0.1, 1.1, NAN)],
    *[(name, v) for name in ("xtc_probability", "xtc_threshold") for v in (-0.1, 1.1, NAN)],
    *[(name, v) for name in ("dynatemp_range", "dynatemp_exponent") for v in (-1.0, NAN, INF)],
    *[("smoothing_factor", value) for value in (-0.1, NAN, INF)],
    *[("smoothing_curve", value) for value in (0.9, NAN, INF)],
    *[("mirostat", value) for value in (-1, 1, 3, INT64[1])],
    *[(name, v) for name in ("mirostat_tau", "mirostat_eta") for v in (-1.0, NAN, INF)],
    *[("repetition_penalty", value) for value in (0.0, -1.0, NAN, INF)],
    *[(name, v) for name in ("presence_penalty", "frequency_penalty") for v in (NAN, INF)],
    *[("dry_multiplier", value) for value in (-1.0, NAN, INF)],
    *[("dry_base", value) for value in (0.9, NAN, INF)],
    *[("dry_allowed_length", value) for value in (0, INT64[0])],
    *[("no_repeat_ngram_size", value) for value in (-1, INT64[0])],
    *[("suppress_tokens", [5, value]) for value in (-1, VOCAB, 2**31 - 1, -(2**31))],
    *[("allowed_token_ids", [5, value]) for value in (-1, VOCAB)],
    *[("logit_bias", {value: 1.0}) for value in (-1, VOCAB)],
    *[("logit_bias", {5: value}) for value in (NAN, INF)],
]


@pytest.mark.parametrize("name, value", SAMPLING)
def test_impossible_sampling_options_are_refused(engine, name, value):
    error = refusal(lambda: engine.submit(PROMPT, sampling={name: value}))
    assert error.status == "ONWARD_INVALID_ARGUMENT"
    assert error.message.startswith(f"{name}: found") and "expected" in error.message


REQUESTS = [
    *[("max_new_tokens", value) for value in (-1, INT64[0])],
    *[("min_new_tokens", value) for value in (-1, INT64[0])],
    *[("num_sequences", value) for value in (0, -1, 257, *INT64)],
    *[("lookup_tokens", value) for value in (-1, INT64[0])],
    *[("logprobs", value) for value in (-2, INT64[0])],
    *[("priority", value) for value in (1000001, *INT64)],
    *[(name, value) for name in ("cache", "ignore_eos") for value in (-1, 2, 2**31 - 1)],
    *[("stop_token_ids", [value]) for value in (-1, VOCAB)],
]


@pytest.mark.parametrize("name, value", REQUESTS)
def test_impossible_request_options_are_refused(engine, name, value):
    error = refusal(lambda: engine.submit(PROMPT, **{name: value}))
    assert error.status == "ONWARD_INVALID_ARGUMENT"
    assert error.message.startswith(f"{name}: found") and "expected" in error.message


@pytest.mark.parametrize("name", ["max_new_tokens", "min_new_tokens", "lookup_tokens", "logprobs"])
def test_unused_numbers_may_have_any_size(engine, name):
    values = {"max_new_tokens": 2, **({"lookup_tokens": 0} if name != "lookup_tokens" else {})}
    values[name] = INT64[1]
    request = engine.submit(PROMPT, **values)
    assert engine.step(1)[0].token >= 0
    engine.cancel(request)


def test_sampling_numbers_of_any_size(engine):
    large = {"top_k": INT64[1], "dry_allowed_length": INT64[1], "no_repeat_ngram_size": INT64[1]}
    sampling = {**large, "temperature": 1.0, "dry_multiplier": 1.0, "seed": 2**64 - 1}
    assert len(engine.complete(PROMPT, max_new_tokens=3, sampling=sampling)[0]) == 3


@pytest.mark.parametrize(
    "beams, named",
    [
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": 257}, "num_beams"),
        ({"num_beams": INT64[1]}, "num_beams"),
        ({"num_beams": 4, "num_beam_groups": 3}, "num_beam_groups"),
        ({"num_beams": 4, "num_beam_groups": INT64[0]}, "num_beam_groups"),
        ({"num_beams": 4, "num_return_sequences": 5}, "num_return_sequences"),
        ({"num_beams": 4, "diversity_penalty": NAN}, "diversity_penalty"),
        ({"num_beams": 4, "length_penalty": NAN}, "length_penalty"),
        ({"num_beams": 4, "early_stopping": 3}, "early_stopping"),
        ({"num_beams": 4, "early_stopping": -1}, "early_stopping"),
    ],
)
def test_impossible_beams_are_refused(engine, beams, named):
    error = refusal(lambda: engine.submit(PROMPT, beams=beams))
    assert error.status == "ONWARD_INVALID_ARGUMENT"
    assert error.message.startswith(f"{named}: found")


def test_beams_with_several_sequences_are_refused(engine):
    error = refusal(lambda: engine.submit(PROMPT, num_sequences=2, beams={"num_beams": 2}))
    assert error.message == "num_sequences: found 2, expected 1 with beams"


@pytest.mark.parametrize("token", [-1, VOCAB, 2**31 - 1, -(2**31)])
def test_ids_outside_the_vocabulary_are_refused(engine, token):
    bad = [1, token, 2]
    for work in (
        lambda: engine.submit(bad),
        lambda: engine.score(bad),
        lambda: engine.logits(bad, VOCAB),
    ):
        error = refusal(work)
        assert error.status == "ONWARD_INVALID_ARGUMENT"
        assert f"token id {token} is outside the vocabulary" in error.message


def test_an_empty_prompt_is_refused(engine):
    for work in (lambda: engine.submit([]), lambda: engine.score([]), lambda: engine.logits([], 1)):
        assert "no token ids" in refusal(work).message


def test_counts_beyond_all_memory_are_refused_before_they_are_read(engine):
    """More ids than the engine accepts are refused before the pointer is read."""
    most = 2**64 - 1
    request = request_of(PROMPT)
    request.prompt_tokens = most
    error = refusal(lambda: engine.submit_struct(request))
    assert error.message == f"prompt: has {most} token ids, expected at most 4096"
    ids = ids_of([1])
    request = request_of(PROMPT)
    request.stop_token_ids, request.num_stop_token_ids = ctypes.addressof(ids), most
    assert refusal(lambda: engine.submit_struct(request)).message.startswith("stop_token_ids: has")
    for name in ("suppress_tokens", "allowed_token_ids", "logit_bias"):
        request = request_of(PROMPT, sampling={name: ids, f"num_{name}": most})
        error = refusal(lambda made=request: engine.submit_struct(made))
        assert error.message.startswith(f"{name}: has {most}")
    for name in ("onward_engine_score", "onward_engine_logits"):
        assert getattr(lib, name)(engine.handle, ids_of([1]), ctypes.c_size_t(most), None) == 1
        assert lib.onward_last_error().decode().startswith("ids: has")


# Pointers


def test_null_pointers_with_counts_are_refused(engine):
    request = request_of(PROMPT)
    request.prompt = None
    assert refusal(lambda: engine.submit_struct(request)).message == (
        "prompt: is null, expected 12 token ids"
    )
    request = request_of(PROMPT, num_stop_token_ids=3)
    assert "stop_token_ids: is null" in refusal(lambda: engine.submit_struct(request)).message
    for name in ("suppress_tokens", "allowed_token_ids", "logit_bias"):
        request = request_of(PROMPT, sampling={f"num_{name}": 2})
        error = refusal(lambda made=request: engine.submit_struct(made))
        assert error.message.startswith(f"{name}: is null")


def test_an_empty_list_of_allowed_tokens_is_refused(engine):
    error = refusal(lambda: engine.submit(PROMPT, sampling={"allowed_token_ids": []}))
    assert error.message.startswith("allowed_token_ids: found an empty list")


def test_a_token_with_two_biases_is_refused(engine):
    pair = STRUCTS["onward_logit_bias"]
    sampling = {"logit_bias": (pair * 2)(pair(5, 1.0), pair(5, 2.0)), "num_logit_bias": 2}
    error = refusal(lambda: engine.submit(PROMPT, sampling=sampling))
    assert error.message == "logit_bias: names token 5 twice, expected once"


def test_null_pointers_for_results_are_refused(engine):
    handle, none = engine.handle, ctypes.c_void_p()
    size, event = ctypes.c_size_t, STRUCTS["onward_event"]
    count, one = ctypes.c_size_t(77), event()
    request, id_ = request_of(PROMPT), ctypes.c_int64(77)
    with engine.model() as model:
        calls = {
            "id": lambda: lib.onward_engine_submit(handle, ctypes.byref(request), none),
            "request": lambda: lib.onward_engine_submit(handle, none, ctypes.byref(id_)),
            "events": lambda: lib.onward_engine_step(
                handle, none, size(ctypes.sizeof(event)), size(1), ctypes.byref(count)
            ),
            "count": lambda: lib.onward_engine_step(
                handle, ctypes.byref(one), size(ctypes.sizeof(event)), size(1), none
            ),
            "stats": lambda: lib.onward_engine_stats(handle, none),
            "logprobs": lambda: lib.onward_engine_score(handle, ids_of([1, 2]), size(2), none),
            "logits": lambda: lib.onward_engine_logits(handle, ids_of([1, 2]), size(2), none),
            "model": lambda: lib.onward_engine_model(handle, none),
            "other": lambda: lib.onward_engine_share(handle, none),
            "engine": lambda: lib.onward_engine_open(model.handle, none, none),
            "info": lambda: lib.onward_model_get_info(model.handle, none),
            "key": lambda: lib.onward_model_metadata(
                model.handle, none, none, size(0), ctypes.byref(count)
            ),
            "ids": lambda: lib.onward_model_eos_token_ids(
                model.handle, none, size(1), ctypes.byref(count)
            ),
            "path": lambda: lib.onward_model_open(none, none, ctypes.byref(none)),
        }
        for name, work in calls.items():
            assert work() == 1, name
            assert lib.onward_last_error().decode() == f"{name}: is null, expected a pointer"
    assert (count.value, id_.value) == (77, 77), "results are left alone"


def test_init_of_a_null_struct():
    for name in FUNCTIONS:
        if name.endswith("_init_sized"):
            getattr(lib, name)(None, ctypes.c_size_t(64))
            tiny = ctypes.create_string_buffer(b"\x55" * 8, 8)
            getattr(lib, name)(tiny, ctypes.c_size_t(7))
            assert tiny.raw == b"\x55" * 8, name


def test_an_array_without_space_for_events_is_refused(engine):
    request = engine.submit(PROMPT, max_new_tokens=1)
    assert refusal(lambda: engine.step(0)).message == "capacity: found 0, expected at least 1"
    assert engine.stats()["decode_tokens"] >= 0
    assert [event.request for event in engine.step()] == [request]


def test_an_unknown_key_is_refused(engine):
    with engine.model() as model:
        count = ctypes.c_size_t(5)
        arguments = (b"tokenizer.json", None, ctypes.c_size_t(0), ctypes.byref(count))
        assert lib.onward_model_metadata(model.handle, *arguments) == 1
        assert lib.onward_last_error().decode() == (
            'key: the model has no "tokenizer.json", expected one of none at all'
        )
        assert count.value == 5


# Engines

ENGINES = [
    *[("threads", value) for value in (-1, 1025, 2**31 - 1)],
    *[("prefill_chunk_tokens", value) for value in (0, -1, 2**31, *INT64)],
    *[("max_sequences", value) for value in (0, -1, 2**31, *INT64)],
    *[("max_context", value) for value in (-1, 2**31, *INT64)],
    *[("kv_keys", value) for value in (b"", b"float", b"EXACT")],
    *[("kv_values", value) for value in (b"f32",)],
    *[("kv_window_tokens", value) for value in (-1, 2**31, *INT64)],
    *[(name, value) for name in ("kv_sinks", "prefix_cache") for value in (-1, 2)],
    *[("attention_window", value) for value in (-1, 2**31, *INT64)],
    *[("kv_cache_bytes", value) for value in (-1, *INT64)],
    *[("prefix_cache_bytes", value) for value in (-2, *INT64)],
]


@pytest.mark.parametrize("name, value", ENGINES)
def test_impossible_engine_options_are_refused(engine, name, value):
    with engine.model() as model:
        error = refusal(lambda: model.engine(**{name: value}))
    assert error.status == "ONWARD_INVALID_ARGUMENT"
    assert error.message.startswith(f"{name}: found") and "expected" in error.message


def test_a_request_that_can_never_fit_is_refused(engine):
    with engine.model() as model, model.engine(threads=1, kv_cache_bytes=1000) as small:
        error = refusal(lambda: small.submit(PROMPT))
        assert error.message.startswith("kv_cache_bytes: 1 x (12 + 256) tokens")
    with engine.model() as model, model.engine(threads=1, max_context=8) as short:
        error = refusal(lambda: short.submit(PROMPT))
        assert error.message == "prompt: has 12 token ids, expected at most 8"


@pytest.mark.parametrize("path", [b"", b"/nowhere/at/all.onward", b"."])
def test_a_model_that_cannot_be_opened_is_an_error(path):
    value = ctypes.c_void_p(77)
    status = lib.onward_model_open(path, None, ctypes.byref(value))
    assert status in (3, 4)
    assert value.value == 77
    assert lib.onward_last_error()


def test_impossible_model_options_are_refused(tmp_path):
    for name, wrong in {"threads": -1, "verify": 2, "copy": -1}.items():
        options = struct("model_options", **{name: wrong})
        found = ctypes.c_void_p()
        path = str(tmp_path / "none").encode()
        assert lib.onward_model_open(path, ctypes.byref(options), ctypes.byref(found)) == 1
        assert lib.onward_last_error().decode().startswith(f"{name}: found {wrong}")
