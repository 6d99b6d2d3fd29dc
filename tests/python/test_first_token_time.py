"""The time to the first token of a request with several outputs is that of the earliest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from builders.fake_events import FakeEvent, Spelled
from onward.calls.generation import Generation
from onward.calls.result import Result
from onward.options.resolution import ModelDefaults, resolve


def finished(options: dict[str, Any], events: list[FakeEvent]) -> Callable[[], Result]:
    generation = Generation("prompt", (1,), resolve(options, ModelDefaults(100)), Spelled)
    generation._started = 0.0
    for event in events:
        generation.push(cast(Any, event))
    return generation.result


SAMPLES = {"num_return_sequences": 3, "temperature": 1.0}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_earliest_of_single_tokens(order: tuple[int, ...]) -> None:
    """The earliest output has its first token at 3 s, the others later. Each ends a second
    later."""
    events = [FakeEvent(1, 5, sequence=s, time=3.0 + at) for at, s in enumerate(order)]
    events += [FakeEvent(1, 6, "length", sequence=s, time=9.0 + s) for s in order]
    timings = finished(SAMPLES, events)().timings
    assert (timings.time_to_first_token_s, timings.total_s) == (3.0, 9.0 + order[-1])


@pytest.mark.parametrize("first", [(4.0, 3.0, 5.0), (3.0, 4.0, 5.0), (5.0, 4.0, 3.0)])
def test_the_earliest_of_gathered_tokens(first: tuple[float, ...]) -> None:
    """The event of each output has the time of its first token."""
    events = []
    for sequence, time in enumerate(first):
        event = FakeEvent(1, -1, "length", sequence=sequence, time=10.0)
        event.gathered = ([5, 6], [], time)  # type: ignore[assignment]
        events.append(event)
    result = finished(SAMPLES, events)()
    assert result.timings.time_to_first_token_s == 3.0
    assert result.usage.completion_tokens == 6
    assert result.timings.time_per_output_token_s == pytest.approx(7.0 / 5)
