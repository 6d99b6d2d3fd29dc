"""The C interface agrees with Python: the same ids for the same options, and every event once.

Refusals and shared engines are tested in test_c_api_damage.py and test_shared_engine.py.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess

import numpy as np
import pytest

from builders.c_interface import (
    END_RULE,
    HEADER,
    SCORE_RULE,
    STATUSES,
    STRUCTS,
    TRACE,
    CEngine,
    CError,
    lib,
    request_of,
)
from builders.core_engine import Shape, drain_all, new_engine, random_prompt, seeded_model, submit
from onward import _core

PROMPT = random_prompt(20, seed=3)
SHAPE = Shape(num_layers=2)


@pytest.fixture(scope="module")
def model():
    return seeded_model("f32", SHAPE)


@pytest.fixture
def core(model):
    return new_engine(model)


@pytest.fixture
def engine(core):
    with CEngine.of(core) as made:
        yield made


def python_tokens(model, prompt, **options):
    """The ids of every sequence, by the extension module and a separate engine."""
    engine = new_engine(model)
    request = submit(engine, prompt, **options)
    return [output.tokens for output in drain_all(engine, [request])[request]]


SAMPLING = {
    "greedy": {},
    "seed": {"temperature": 1.0, "seed": 11},
    "stream": {"temperature": 1.0, "seed": 11, "stream": 4},
    "top": {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "seed": 5},
    "typical": {"temperature": 1.0, "typical_p": 0.7, "seed": 5},
    "cutoffs": {"temperature": 1.0, "epsilon_cutoff": 0.002, "eta_cutoff": 0.003, "seed": 6},
    "sigma": {"temperature": 1.2, "top_n_sigma": 1.5, "seed": 7},
    "xtc": {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.05, "seed": 8},
    "dynatemp": {"temperature": 1.0, "dynatemp_range": 0.5, "dynatemp_exponent": 1.3, "seed": 9},
    "smoothing": {"temperature": 1.0, "smoothing_factor": 0.3, "smoothing_curve": 1.8, "seed": 3},
    "mirostat": {"temperature": 1.0, "mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.2},
    "penalties": {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2},
    "dry": {"dry_multiplier": 2.0, "dry_base": 1.5, "dry_allowed_length": 1},
    "ngram": {"no_repeat_ngram_size": 2},
    "bias": {"logit_bias": {5: 40.0, 6: -3.0}, "temperature": 1.0},
    "suppress": {"suppress_tokens": list(range(100))},
    "allowed": {"allowed_token_ids": [7, 8, 9], "temperature": 1.0},
}


@pytest.mark.parametrize("name", SAMPLING)
def test_the_same_ids_as_python(model, engine, name):
    options = SAMPLING[name]
    found = engine.complete(PROMPT, max_new_tokens=24, sampling=options)
    assert found == python_tokens(model, PROMPT, max_new_tokens=24, **options)
    assert len(found[0]) == 24
    if name != "greedy":
        assert found != engine.complete(PROMPT, max_new_tokens=24), "the option did nothing"


@pytest.mark.parametrize("order", ["hf", "vllm", "llama.cpp"])
def test_orders_of_the_sampler_chain(model, engine, order):
    options = {"temperature": 1.5, "top_p": 0.5, "top_k": 30, "seed": 2}
    found = engine.complete(PROMPT, sampling={**options, "order": order.encode()})
    expected = python_tokens(model, PROMPT, max_new_tokens=256, sampling_order=order, **options)
    assert found == expected


def test_no_sampling_struct_is_greedy_and_256_tokens(model, engine):
    assert engine.complete(PROMPT) == python_tokens(model, PROMPT, max_new_tokens=256)


def test_several_sequences(model, engine):
    found = engine.complete(
        PROMPT, max_new_tokens=12, num_sequences=3, sampling={"temperature": 1.0, "seed": 4}
    )
    expected = python_tokens(
        model, PROMPT, max_new_tokens=12, num_sequences=3, temperature=1.0, seed=4
    )
    assert found == expected
    assert len({tuple(tokens) for tokens in found}) == 3


@pytest.mark.parametrize("stopping, python", [(0, False), (1, True), (2, "never")])
def test_beams(model, engine, stopping, python):
    beams = _core.BeamOptions()
    values = {"num_beams": 4, "num_beam_groups": 2, "num_return_sequences": 3}
    values |= {"diversity_penalty": 0.5, "length_penalty": 0.7}
    for name, value in {**values, "early_stopping": python}.items():
        setattr(beams, name, value)
    request = engine.submit(
        PROMPT, max_new_tokens=10, beams={**values, "early_stopping": stopping}, stop_token_ids=[9]
    )
    found = engine.drain([request])[request]
    expected = python_tokens(
        model, PROMPT, max_new_tokens=10, beams=beams, stop_token_ids=[9], num_sequences=1
    )
    assert [output.tokens for output in found] == expected
    assert len(found) == 3
    scores = [output.events[-1].score for output in found]
    assert scores == sorted(scores, reverse=True) and not math.isnan(scores[0])


def test_logprobs(model, engine):
    options = {"temperature": 0.9, "top_k": 5, "seed": 1}
    request = engine.submit(PROMPT, max_new_tokens=6, logprobs=3, sampling=options)
    events = engine.drain([request])[request][0].events
    python = new_engine(model)
    other = submit(python, PROMPT, max_new_tokens=6, logprobs=3, **options)
    expected = drain_all(python, [other])[other][0].logprobs
    assert [(e.logprob, e.chain_logprob, e.top) for e in events] == [
        (of.raw, of.chain, of.raw_top) for of in expected
    ]
    assert len(events) == 6 and all(len(e.top) == 3 for e in events)


def test_no_logprobs_without_a_request_for_them(engine):
    request = engine.submit(PROMPT, max_new_tokens=2)
    for event in engine.drain([request])[request][0].events:
        assert math.isnan(event.logprob) and math.isnan(event.chain_logprob)
        assert math.isnan(event.score) and event.top == []
        assert event.status == "ONWARD_OK" and event.message == ""


def test_stop_tokens_and_the_models_own(model, core, engine):
    (tokens,) = python_tokens(model, PROMPT, max_new_tokens=20)
    stop, eos = tokens[5], tokens[4]
    assert tokens.index(stop) == 5 and tokens.index(eos) == 4
    assert engine.complete(PROMPT, stop_token_ids=[stop]) == [tokens[:6]]
    with CEngine.of(core, eos=[eos]) as knowing:
        request = knowing.submit(PROMPT, stop_token_ids=[stop])
        output = knowing.drain([request])[request][0]
        assert (output.tokens, output.finish) == (tokens[:5], "stop")
        assert knowing.complete(PROMPT, stop_token_ids=[stop], ignore_eos=1) == [tokens[:6]]
        request = knowing.submit(PROMPT, ignore_eos=1, max_new_tokens=9)
        output = knowing.drain([request])[request][0]
        assert (output.tokens, output.finish) == (tokens[:9], "length")


def test_min_new_tokens_delays_the_end_tokens(model, core):
    (tokens,) = python_tokens(model, PROMPT, max_new_tokens=20)
    with CEngine.of(core, eos=[tokens[4]]) as knowing:
        found = knowing.complete(PROMPT, min_new_tokens=10, max_new_tokens=15)
    assert found == python_tokens(
        model, PROMPT, max_new_tokens=15, min_new_tokens=10, stop_token_ids=[tokens[4]]
    )
    assert len(found[0]) >= 10 and found != [tokens[:15]]


def test_guesses_by_lookup_change_no_token(model, engine):
    prompt = np.tile(random_prompt(8, seed=1), 4)
    assert engine.complete(prompt, lookup_tokens=4, max_new_tokens=40) == python_tokens(
        model, prompt, max_new_tokens=40
    )


def test_without_cache(model, engine):
    before = engine.stats()["kv_computations"]
    assert engine.complete(PROMPT, cache=0, max_new_tokens=5) == python_tokens(
        model, PROMPT, max_new_tokens=5
    )
    assert engine.stats()["kv_computations"] - before == sum(len(PROMPT) + i for i in range(5))


def test_a_rule_can_change_scores(engine):
    seen = []

    @SCORE_RULE
    def only_seven(context, tokens, num_tokens, scores, vocab_size):
        seen.append((context, tokens[:num_tokens], vocab_size))
        for token in range(vocab_size):
            if token != 7:
                scores[token] = -math.inf
        return 0

    found = engine.complete(
        [1, 2], max_new_tokens=3, score_rule=only_seven, score_rule_context=0xABC
    )
    assert found == [[7, 7, 7]]
    assert seen == [(0xABC, [1, 2] + [7] * n, SHAPE.vocab_size) for n in range(3)]


def test_a_rule_can_end_a_request(engine):
    (tokens,) = engine.complete(PROMPT, max_new_tokens=9)

    @END_RULE
    def after_four(context, seen, num_tokens):
        return int(num_tokens == len(PROMPT) + 4)

    request = engine.submit(PROMPT, max_new_tokens=9, end_rule=after_four)
    output = engine.drain([request])[request][0]
    assert (output.tokens, output.finish) == (tokens[:4], "stop")


@pytest.mark.parametrize("capacity", [1, 2, 3, 5])
def test_no_event_is_lost_in_a_small_array(model, engine, capacity):
    requests = [
        engine.submit(
            PROMPT, max_new_tokens=7, num_sequences=4, sampling={"temperature": 1.0, "seed": seed}
        )
        for seed in range(2)
    ]
    outputs = engine.drain(requests, capacity)
    for seed, request in enumerate(requests):
        assert [output.tokens for output in outputs[request]] == python_tokens(
            model, PROMPT, max_new_tokens=7, num_sequences=4, temperature=1.0, seed=seed
        )


def test_cached_tokens_are_reported_once(engine):
    prompt = random_prompt(64, seed=9)
    engine.complete(prompt, max_new_tokens=1)
    request = engine.submit(prompt, max_new_tokens=3)
    reported = [event.cached_tokens for event in engine.drain([request])[request][0].events]
    assert reported == [63, -1, -1]  # all tokens except the one whose logits are requested


def test_score_and_logits(model, engine):
    python = new_engine(model)
    assert np.array_equal(engine.score(PROMPT), python.score(PROMPT))
    assert np.array_equal(engine.logits(PROMPT, SHAPE.vocab_size), python.logits(PROMPT))
    assert engine.score([5]).shape == (0,)


def test_a_cancelled_request_has_no_further_events(engine):
    keep = engine.submit(PROMPT, max_new_tokens=6)
    drop = engine.submit(PROMPT, max_new_tokens=6)
    engine.step(1)  # the other event stays in the mailbox
    engine.cancel(drop)
    engine.cancel(drop)
    engine.cancel(10**9)
    events = [event for _ in range(10) for event in engine.step()]
    assert {event.request for event in events} == {keep}
    assert engine.stats()["running"] == 0


def test_a_cancelled_sequence_does_not_affect_the_others(model, engine):
    request = engine.submit(
        PROMPT, max_new_tokens=6, num_sequences=3, sampling={"temperature": 1.0, "seed": 3}
    )
    engine.step(1)  # of sequence 0; the events of 1 and 2 stay in the mailbox
    engine.cancel(request, 1)
    found: dict[int, list[int]] = {}
    ended = False
    while not ended:
        for event in engine.step():
            found.setdefault(event.sequence, []).append(event.token)
            ended = event.ends_request
    expected = python_tokens(
        model, PROMPT, max_new_tokens=6, num_sequences=3, temperature=1.0, seed=3
    )
    assert found == {0: expected[0][1:], 2: expected[2]}
    request = engine.submit(PROMPT, num_sequences=2, sampling={"temperature": 1.0})
    engine.cancel(request, 0)
    engine.cancel(request, 1)
    assert engine.step() == [] and engine.stats()["running"] == 0


def test_the_end_of_a_request_is_passed_on_to_its_last_sequence(engine):
    """Both ends are in the mailbox. The event that reports the end of the request is discarded."""
    other = engine.submit(PROMPT, max_new_tokens=1)
    request = engine.submit(PROMPT[::-1], max_new_tokens=1, num_sequences=2)
    (first,) = engine.step(1)
    assert (first.request, first.ends_request) == (other, True)
    engine.cancel(request, 1)
    (last,) = engine.step()
    assert (last.request, last.sequence, last.ends_request) == (request, 0, True)


def test_a_model_and_an_engine_made_through_the_c_interface(model, engine):
    with engine.model() as handle:
        info = handle.info()
        assert (info.vocab_size, info.num_layers, info.hidden_size) == (300, 2, 96)
        assert info.max_context == SHAPE.max_context
        assert info.weight_bytes == model.weight_bytes
        assert (info.bos_token_id, info.pad_token_id, info.num_eos_token_ids) == (-1, -1, 0)
        own = handle.engine(threads=1, prefill_chunk_tokens=7)
    with own:
        assert len(own.complete(PROMPT, max_new_tokens=5)[0]) == 5
        assert (own.stats()["prefill_tokens"], own.stats()["steps"]) == (len(PROMPT), 3 + 4)
        assert engine.stats()["steps"] == 0, "they are two engines"


def test_the_options_of_an_engine_are_the_same_as_in_python():
    """Coded keys and values, which change the output: the same ids as Python's engine."""
    model = seeded_model("f32", Shape(num_layers=2, head_dim=32))
    codes = {"kv_keys": "turbo2", "kv_values": "q4_0", "kv_window_tokens": 0, "kv_sinks": False}
    python = _core.Engine(model, threads=1, prefill_chunk_tokens=64, **codes)
    prompt = random_prompt(100, seed=2)
    with CEngine.of(new_engine(model)) as exact, exact.model() as handle:
        options = {**codes, "kv_sinks": 0, "kv_keys": b"turbo2", "kv_values": b"q4_0"}
        with handle.engine(threads=1, prefill_chunk_tokens=64, **options) as coded:
            found = coded.complete(prompt, max_new_tokens=30)
            request = submit(python, prompt, max_new_tokens=30)
            assert found == [drain_all(python, [request])[request][0].tokens]
            assert found != exact.complete(prompt, max_new_tokens=30)


def test_the_end_tokens_of_the_model(core):
    with CEngine.of(core, eos=[4, 5, 6]) as knowing, knowing.model() as model:
        assert model.info().num_eos_token_ids == 3
        for capacity in (0, 2, 3, 8):
            ids, count = (ctypes.c_int32 * 8)(*[-7] * 8), ctypes.c_size_t()
            where = ids if capacity else None
            size = ctypes.c_size_t(capacity)
            assert (
                lib.onward_model_eos_token_ids(model.handle, where, size, ctypes.byref(count)) == 0
            )
            assert count.value == 3
            assert list(ids) == ([4, 5, 6][:capacity] + [-7] * 8)[:8]


def test_an_engine_outlives_the_handles_of_its_model_and_of_python(model):
    core = new_engine(model)
    engine = CEngine.of(core)
    with engine.model() as handle:
        own = handle.engine(threads=1)
    expected = python_tokens(model, PROMPT, max_new_tokens=5)
    del core
    for each in (engine, own):
        assert each.complete(PROMPT, max_new_tokens=5) == expected
        each.close()


def test_traces_add_up_to_the_counters(engine, core):
    steps = []

    @TRACE
    def trace(context, step):
        assert step[0].size == ctypes.sizeof(STRUCTS["onward_step_trace"])
        steps.append({name: getattr(step[0], name) for name, _ in step[0]._fields_})

    engine.set_trace(trace)
    engine.submit(PROMPT, max_new_tokens=4)
    events = sum(len(engine.step()) for _ in range(6))
    submit(
        core, PROMPT[::-1], max_new_tokens=3
    )  # a request of another handle, whose steps are traced too
    while core.stats()["running"]:
        events += len(core.step())
    stats = engine.stats()
    assert stats["steps"] == len(steps) == steps[-1]["step"] == 7
    for name in ("prefill_tokens", "decode_tokens"):
        assert sum(step[name] for step in steps) == stats[name] > 0
    assert sum(step["events"] for step in steps) == events == 7
    assert [step["running"] for step in steps] == [1, 1, 1, 0, 1, 1, 0]
    assert all(step["seconds"] > 0 for step in steps)
    begins = [step["begin"] for step in steps]
    assert begins == sorted(begins)
    engine.set_trace(None)
    engine.complete(PROMPT, max_new_tokens=2)
    assert len(steps) == 7


def test_an_interrupt_changes_and_loses_no_token(model, engine):
    expected = python_tokens(model, PROMPT, max_new_tokens=6)
    request = engine.submit(PROMPT, max_new_tokens=6)
    first = engine.step()
    engine.interrupt()
    before = engine.stats()
    with pytest.raises(CError, match="interrupted by the caller") as caught:
        engine.step()
    assert caught.value.status == "ONWARD_INTERRUPTED"
    assert engine.stats() == before
    rest = engine.drain([request])[request][0].tokens
    assert [first[0].token, *rest] == expected[0]


def test_an_interrupt_from_a_rule_is_reported_once_and_loses_no_token(model, engine):
    """The rule interrupts while a step runs."""

    @SCORE_RULE
    def rule(context, tokens, num_tokens, scores, vocab_size):
        if num_tokens == len(PROMPT) + 1:
            engine.interrupt()
        return 0

    request = engine.submit(PROMPT, max_new_tokens=4, score_rule=rule)
    tokens, interrupts = [], 0
    while len(tokens) < 4:
        try:
            tokens += [event.token for event in engine.step() if event.request == request]
        except CError as error:
            interrupts += error.status == "ONWARD_INTERRUPTED"
    assert interrupts == 1
    assert [tokens] == python_tokens(model, PROMPT, max_new_tokens=4)


def test_statuses_have_names():
    for value, name in STATUSES.items():
        assert lib.onward_status_name(value).decode() == name
    assert lib.onward_status_name(-1) == lib.onward_status_name(99) == b"an unknown status"
    assert lib.onward_version().decode() == _core.__version__


@pytest.mark.parametrize("compiler", ["cc", "c++"])
def test_the_header_compiles_as_c_and_cpp_with_the_expected_struct_sizes(tmp_path, compiler):
    """As C99 and as C++11. The sizes of structs in ctypes equal the compiler's sizes."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} here")
    lines = []
    for name, kind in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [
            f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));'
            for field, _ in kind._fields_
        ]
    source = tmp_path / ("sizes.c" if compiler == "cc" else "sizes.cpp")
    source.write_text(
        "#include <onward/onward_c.h>\n#include <stdio.h>\n"
        f"int main(void) {{ {' '.join(lines)} return 0; }}\n"
    )
    standard = "-std=c99" if compiler == "cc" else "-std=c++11"
    flags = [standard, "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    binary = tmp_path / "sizes"
    subprocess.run(
        [compiler, *flags, "-I", HEADER.parents[1], source, "-o", binary], check=True, timeout=60
    )
    reported = subprocess.run(
        [binary], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    found = dict(line.split() for line in reported.splitlines())
    assert len(found) > 100
    for name, kind in STRUCTS.items():
        assert int(found[name]) == ctypes.sizeof(kind), name
        for field, _ in kind._fields_:
            assert int(found[f"{name}.{field}"]) == getattr(kind, field).offset, (name, field)


def test_sizes_of_structs_are_multiples_of_eight():
    """New fields begin at a multiple of 8, so that no padding of an older caller is read."""
    for name, kind in STRUCTS.items():
        assert ctypes.sizeof(kind) % 8 == 0, name


def test_the_memory_of_a_request_may_be_freed_after_submit(model, engine):
    made = request_of(PROMPT, max_new_tokens=5, sampling={"suppress_tokens": [1, 2, 3]})
    request = engine.submit_struct(made)
    for array in made.kept:
        if isinstance(array, ctypes.Array | ctypes.Structure):
            ctypes.memset(ctypes.byref(array), 0xFF, ctypes.sizeof(array))
    found = engine.drain([request])[request][0].tokens
    assert [found] == python_tokens(model, PROMPT, max_new_tokens=5, suppress_tokens=[1, 2, 3])
