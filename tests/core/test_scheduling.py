"""The order of service: turns in the budget of a step, priorities, and places for sequences.

The bounds are documented in csrc/engine/scheduler.h and are asserted step by step.
"""

from __future__ import annotations

import functools

import pytest

from builders.core_engine import Shape, random_prompt, seeded_model, submit
from onward import _core

PRIORITY_STEPS = 16
"""Steps that a level of priority is worth: kPrioritySteps of the scheduler."""
LONG = 2000


@functools.cache
def model() -> _core.Model:
    return seeded_model("f32", Shape(num_layers=1, vocab_size=50, hidden_size=32))


def engine_of(chunk: int = 16, max_sequences: int = 256) -> _core.Engine:
    """An engine without shared prefixes, which test_prefix_reuse.py tests."""
    return _core.Engine(
        model(),
        threads=1,
        prefill_chunk_tokens=chunk,
        max_sequences=max_sequences,
        prefix_cache=False,
    )


def beams(count: int) -> _core.BeamOptions:
    options = _core.BeamOptions()
    options.num_beams = options.num_return_sequences = count
    return options


def steps_until(engine: _core.Engine, request: int, most: int) -> int:
    """Run steps until the first event of the request, at most this number."""
    for steps in range(1, most + 1):
        if any(event.request == request for event in engine.step()):
            return steps
    raise AssertionError(f"not heard of within {most} steps")


def decoding(engine: _core.Engine, count: int, **options: int) -> list[int]:
    """Submit this number of requests and run their prompts."""
    requests = [submit(engine, [1 + i], max_new_tokens=LONG, **options) for i in range(count)]
    silent = set(requests)
    while silent:
        silent -= {event.request for event in engine.step()}
    return requests


def order_of_ends(engine: _core.Engine) -> list[int]:
    """Run all requests to their ends. Returns them in the order of their ends."""
    ended = []
    while engine.stats()["running"]:
        ended += [event.request for event in engine.step() if event.ends_request]
    return ended


class TestTurns:
    """S sequences that decode, B tokens a step."""

    @pytest.mark.parametrize(
        ("sequences", "budget"), [(1, 1), (5, 1), (5, 2), (7, 3), (8, 4), (9, 4), (20, 6), (3, 16)]
    )
    @pytest.mark.parametrize("company", ["none", "a long prompt", "newcomers", "guesses"])
    def test_each_is_served_within_its_turn(self, sequences, budget, company):
        """Within S / B + 1 steps, whatever other requests arrive."""
        engine = engine_of(budget, sequences + 3)
        requests = decoding(engine, sequences)
        if company == "a long prompt":
            submit(engine, random_prompt(LONG, 50), max_new_tokens=1)
        if company == "guesses":
            speculation = _core.SpeculationOptions()
            speculation.lookup_tokens = 5
            submit(engine, [7, 7, 7], speculation=speculation, max_new_tokens=LONG)
        others = {"none": 0, "a long prompt": 0, "newcomers": 3, "guesses": 1}[company]
        waited = dict.fromkeys(requests, 0)
        for step in range(20 + 4 * sequences):
            if company == "newcomers":
                for _ in range(2):
                    submit(engine, [3, 4][: 1 + step % 2], max_new_tokens=1)
            heard = {event.request for event in engine.step()}
            for request in requests:
                waited[request] = 0 if request in heard else waited[request] + 1
                assert waited[request] < (sequences + others) // budget + 1
        assert engine.stats()["running"] >= sequences

    @pytest.mark.parametrize("budget", [1, 2, 4])
    def test_the_queue_of_prompts_takes_turns_with_sequences(self, budget):
        """The queue takes a turn like one more sequence, so 40 prompt tokens take at most 40
        turns."""
        engine, sequences = engine_of(budget), 6
        decoding(engine, sequences)
        late = submit(engine, random_prompt(40, 50), max_new_tokens=1)
        steps_until(engine, late, 40 * (sequences // budget + 1))

    def test_samples_of_a_prompt_take_turns_like_requests(self):
        engine = engine_of(4)
        submit(engine, [5], num_sequences=9, temperature=1.0, max_new_tokens=LONG)
        engine.step()
        counts = dict.fromkeys(range(9), 0)
        for _ in range(90):
            for event in engine.step():
                counts[event.sequence] += 1
        assert set(counts.values()) == {40}

    def test_a_request_without_a_cache_is_not_starved_by_newcomers(self):
        """It computes its whole text again for every token, and waits in the queue like a
        prompt."""
        engine = engine_of(8)
        request = submit(engine, random_prompt(20, 50), max_new_tokens=10, cache=False)
        heard = 0
        for _ in range(300):
            submit(engine, random_prompt(8, 50), max_new_tokens=1)
            heard += sum(event.request == request for event in engine.step())
        assert heard == 10


class TestPriority:
    def test_a_higher_priority_overtakes_a_queue_of_prompts(self):
        engine = engine_of(16)
        for i in range(20):
            submit(engine, random_prompt(64, 50, i), max_new_tokens=1)
        engine.step()
        urgent = submit(engine, random_prompt(32, 50), max_new_tokens=1, priority=1)
        assert steps_until(engine, urgent, 10) == 2

    @pytest.mark.parametrize("levels", [1, 2, 3])
    def test_a_prompt_of_low_priority_is_not_starved_by_newcomers(self, levels):
        """One newcomer in each step fills the step. Newcomers of the first levels * PRIORITY_STEPS
        steps go first, and no later ones."""
        engine = engine_of(16)
        low = submit(engine, random_prompt(16, 50), max_new_tokens=1, priority=-levels)
        waited = 0
        while True:
            submit(engine, random_prompt(16, 50), max_new_tokens=1, priority=0)
            waited += 1
            if any(event.request == low for event in engine.step()):
                break
            assert waited <= levels * PRIORITY_STEPS + 1
        assert waited >= levels * PRIORITY_STEPS

    @pytest.mark.parametrize("levels", [1, 2])
    def test_a_sequence_of_low_priority_is_not_starved(self, levels):
        """Four sequences of a higher level take every place of a step of two."""
        engine = engine_of(2)
        [low] = decoding(engine, 1, priority=-levels)
        decoding(engine, 4)
        for _ in range(10):
            waited = steps_until(engine, low, levels * PRIORITY_STEPS + 4 // 2 + 1)
            assert waited > 5 // 2 + 1  # it has a lower priority

    def test_a_higher_priority_comes_first_after_equal_waiting(self):
        engine = engine_of(2)
        requests = decoding(engine, 2, priority=0) + decoding(engine, 2, priority=1)
        counts = dict.fromkeys(requests, 0)
        for _ in range(200):
            for event in engine.step():
                counts[event.request] += 1
        assert min(counts[request] for request in requests[2:]) > 150
        assert min(counts[request] for request in requests[:2]) >= 200 // (PRIORITY_STEPS + 3)

    def test_places_are_given_by_priority_then_arrival(self):
        engine = engine_of(max_sequences=1)
        submit(engine, [1], max_new_tokens=3)
        engine.step()
        for priority in (0, 0, 2, 1, 0):
            submit(engine, [1], max_new_tokens=3, priority=priority)
        assert order_of_ends(engine) == [0, 3, 4, 1, 2, 5]


class TestPlaces:
    """``max_sequences``: each sequence of these requests has one block of the cache."""

    @pytest.mark.parametrize("places", [1, 2, 5])
    def test_max_sequences_have_a_place_and_the_rest_waits_in_order(self, places):
        engine = engine_of(64, places)
        requests = [submit(engine, [1 + i], max_new_tokens=5) for i in range(12)]
        ended: list[int] = []
        while True:
            events = engine.step()
            stats = engine.stats()
            if not stats["running"]:
                break
            assert stats["cache_blocks_in_use"] <= places
            assert stats["running"] - stats["waiting"] <= places
            assert {event.request for event in events} <= set(requests[len(ended) :][:places])
            ended += [event.request for event in events if event.ends_request]
        assert ended + [event.request for event in events if event.ends_request] == requests

    def test_each_sample_and_each_beam_takes_a_place(self):
        engine = engine_of(64, 6)
        submit(engine, [1], max_new_tokens=5, num_sequences=4, temperature=1.0)
        submit(engine, [2], max_new_tokens=5, beams=beams(3))
        submit(engine, [3], max_new_tokens=5)
        engine.step()
        engine.step()
        stats = engine.stats()
        # The beams wait for three places, and the request behind them does not overtake.
        assert (stats["running"], stats["waiting"], stats["cache_blocks_in_use"]) == (3, 2, 4)
        assert order_of_ends(engine) == [0, 1, 2]

    def test_a_request_for_many_places_is_not_overtaken_for_ever(self):
        """Newcomers of a higher priority take every place, until they may not overtake any more."""
        engine = engine_of(64, 4)
        for _ in range(4):
            submit(engine, [1], max_new_tokens=4, priority=1)
        wide = submit(engine, [2], max_new_tokens=3, beams=beams(4))
        waited = 0
        while not any(event.request == wide for event in engine.step()):
            submit(engine, [1], max_new_tokens=4, priority=1)
            waited += 1
            # One newcomer a step, four places, four steps each: a queue of the first 16 and 4 more.
            assert waited <= PRIORITY_STEPS + 4 + 4
        assert waited > PRIORITY_STEPS

    @pytest.mark.parametrize("width", [5, 100])
    def test_a_request_for_more_than_all_places_is_refused(self, width):
        engine = engine_of(max_sequences=4)
        expected = f"found {width}, expected at most max_sequences, which is 4"
        with pytest.raises(ValueError, match=f"num_sequences: {expected}"):
            submit(engine, [1], num_sequences=width, temperature=1.0)
        with pytest.raises(ValueError, match=f"num_beams: {expected}"):
            submit(engine, [1], beams=beams(width))
        assert engine.stats()["running"] == 0
        submit(engine, [1], num_sequences=4, temperature=1.0)
        assert order_of_ends(engine) == [0]


class TestCancelling:
    def test_a_waiting_request_can_be_cancelled(self):
        engine = engine_of(max_sequences=1)
        requests = [submit(engine, [1], max_new_tokens=3) for _ in range(4)]
        engine.step()
        engine.cancel(requests[1])
        assert engine.stats()["waiting"] == 2
        assert order_of_ends(engine) == [requests[0], requests[2], requests[3]]

    def test_cancelling_the_first_in_the_queue_lets_the_others_start(self):
        engine = engine_of(max_sequences=2)
        submit(engine, [1], max_new_tokens=50)
        wide = submit(engine, [1], max_new_tokens=3, beams=beams(2))
        behind = submit(engine, [1], max_new_tokens=1)
        engine.step()
        assert engine.stats()["waiting"] == 2
        engine.cancel(wide)
        assert steps_until(engine, behind, 1) == 1

    @pytest.mark.parametrize("before", [0, 1, 5])
    @pytest.mark.parametrize("index", [0, 1, 2])
    def test_one_sequence_of_several_can_be_cancelled(self, before, index):
        """The others end as without the cancellation. The block of the sequence is free at once,
        except for the first sequence during the prompt."""
        engine = engine_of(4)
        options = {"num_sequences": 3, "temperature": 1.0, "max_new_tokens": 8, "seed": 3}
        request = submit(engine, random_prompt(10, 50), **options)
        for _ in range(before):
            engine.step()
        engine.cancel(request, index)
        reported = []
        while engine.stats()["running"]:
            reported += engine.step()
        assert {event.sequence for event in reported} == {0, 1, 2} - {index}
        assert [event.ends_request for event in reported] == [False] * (len(reported) - 1) + [True]
        ends = {event.sequence for event in reported if event.finish_reason == "length"}
        assert ends == {0, 1, 2} - {index}
        assert engine.stats()["cache_blocks_in_use"] == 0

    def test_all_sequences_can_be_cancelled_one_by_one(self):
        engine = engine_of()
        request = submit(engine, [1], num_sequences=3, temperature=1.0, max_new_tokens=LONG)
        for index in range(3):
            engine.step()
            engine.cancel(request, index)
        assert engine.stats()["running"] == engine.stats()["cache_blocks_in_use"] == 0
        assert engine.step() == []

    @pytest.mark.parametrize("sequence", [None, 0])
    def test_a_cancelled_request_that_ended_on_submit_has_no_event(self, sequence):
        engine = engine_of()
        request = submit(engine, [1], max_new_tokens=0)
        other = submit(engine, [1], max_new_tokens=0, num_sequences=2, temperature=1.0)
        engine.cancel(request, sequence)
        events = [(event.request, event.ends_request) for event in engine.step()]
        assert events == [(other, False), (other, True)]
        assert engine.stats()["running"] == 0


def test_beams_without_new_tokens_give_empty_outputs():
    engine = engine_of()
    submit(engine, [1], max_new_tokens=0, beams=beams(3))
    events = engine.step()
    assert [(event.sequence, event.finish_reason) for event in events] == [
        (0, "length"),
        (1, "length"),
        (2, "length"),
    ]
    assert [event.ends_request for event in events] == [False, False, True]
