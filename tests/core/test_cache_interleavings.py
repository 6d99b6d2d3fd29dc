"""For every sequence of calls on one engine, each request gets the bits of a new engine that keeps
nothing.

Conversations are continued, cut, changed in the middle and forked; cancelled at any step; stored,
restored, forgotten and evicted by tiny memory limits; with every codec, window and sink. The engine
that gives the expected bits has no prefix cache and no limit.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, note, settings

from builders.conversations import Story, Telling, stories

EXAMPLES, MANY_EXAMPLES = 60, 5000
common = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def everyone_gets_what_they_get_alone(story: Story) -> None:
    telling = Telling(story)
    telling.tell()
    note(f"{telling.steps} steps, {telling.preempted} preempted, {telling.refused} refused")
    telling.check()


@settings(common, max_examples=EXAMPLES)
@given(stories())
def test_every_request_gets_the_bits_of_a_fresh_engine(story):
    everyone_gets_what_they_get_alone(story)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # finding the smallest story that fails takes time
@settings(common, max_examples=MANY_EXAMPLES)
@given(stories())
def test_every_request_gets_the_bits_of_a_fresh_engine_many_times(story):
    everyone_gets_what_they_get_alone(story)
