"""Requests of every kind share one engine, and each gets the output that it gets alone, bit for
bit.

Greedy choice and sampling, several samples of a prompt, beam searches, grammars, guesses, rules,
some given up and some failing, in any order, at any chunk size, on one thread or two. The expected
events of a request are its events in a new engine without other requests and without guesses.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, note, settings

from builders.crowds import Crowd, Heard, Plan, alone, crowds

MOST_STEPS = 50_000
EXAMPLES, MANY_EXAMPLES = 50, 1000
common = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def run(crowd: Crowd) -> list[Heard]:
    """Run steps until all requests have ended. Returns the events of each plan's request."""
    engine = crowd.engine()
    to_come = sorted(enumerate(crowd.plans), key=lambda numbered: numbered[1].comes)
    to_give_up: dict[int, tuple[int, Plan]] = {}
    heard = [Heard() for _ in crowd.plans]
    requests: dict[int, int] = {}
    last_comes = max(plan.comes for plan in crowd.plans)
    steps = 0
    while to_come or engine.stats()["running"] or steps <= last_comes:
        while to_come and to_come[0][1].comes <= steps:
            index, plan = to_come.pop(0)
            request = plan.wish.submit(engine)
            requests[request] = index
            if plan.given_up is not None:
                to_give_up[request] = (steps + plan.given_up, plan)
        for request, (when, plan) in list(to_give_up.items()):
            if when == steps:
                del to_give_up[request]
                engine.cancel(request, plan.sequence)
                heard[requests[request]].give_up(plan.sequence)
        for event in engine.step():
            heard[requests[event.request]].take(event)
        steps += 1
        assert steps < MOST_STEPS, "somebody waits for ever"
    stats = engine.stats()
    left = {name: stats[name] for name in ("running", "waiting", "cache_blocks_in_use")}
    assert left == dict.fromkeys(left, 0)
    return heard


def check(plan: Plan, heard: Heard, expected: Heard) -> None:
    if expected.error is not None:
        # The progress of the sequences before one of them fails depends on their turns.
        assert heard.error == expected.error or (heard.error is None and plan.given_up is not None)
        for index, reported in heard.sequences.items():
            other = expected.sequences.get(index, [])
            assert reported[: len(other)] == other[: len(reported)]
        return
    assert heard.error is None
    for index, reported in expected.sequences.items():
        found = heard.sequences.get(index, [])
        whole = plan.given_up is None or plan.sequence not in (None, index)
        assert found == (reported if whole else reported[: len(found)])
    assert heard.sequences.keys() <= expected.sequences.keys()
    if plan.given_up is None:
        assert heard.ended
        assert heard.prompt_logprobs == expected.prompt_logprobs
    else:
        assert heard.prompt_logprobs in ([], expected.prompt_logprobs)


def everyone_gets_what_they_get_alone(crowd: Crowd) -> None:
    for index, (plan, heard) in enumerate(zip(crowd.plans, run(crowd), strict=True)):
        note(f"request {index}")
        check(plan, heard, alone(crowd.dtype, plan.wish))


@pytest.mark.timeout(900)  # finding the smallest crowd that fails takes time
@settings(common, max_examples=EXAMPLES)
@given(crowds())
def test_every_request_gets_the_output_that_it_gets_alone(crowd):
    everyone_gets_what_they_get_alone(crowd)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(common, max_examples=MANY_EXAMPLES)
@given(crowds())
def test_every_request_gets_the_output_that_it_gets_alone_many_times(crowd):
    everyone_gets_what_they_get_alone(crowd)
