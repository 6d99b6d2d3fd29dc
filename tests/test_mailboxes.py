"""``Engine.run``: events into mailboxes, steps until there are some, and pauses."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Any

import pytest

from builders.core_engine import Output, drain, new_engine, submit
from builders.shared_engines import PROMPTS, TOKENS, small_model, tokens_alone
from onward import _core
from onward.errors import InvalidArgument

Mailboxes = dict[int, Any]


@pytest.fixture(scope="module")
def model() -> _core.Model:
    return small_model()


@pytest.fixture(scope="module")
def alone(model: _core.Model) -> list[list[int]]:
    return tokens_alone(model)


@pytest.fixture
def core(model: _core.Model) -> _core.Engine:
    return new_engine(model, threads=1)


def tokens_of(mailbox: deque[_core.Event]) -> list[int]:
    output = Output()
    for event in mailbox:
        output.push(event)
    return output.tokens


def test_events_go_to_the_mailbox_of_their_request(
    core: _core.Engine, alone: list[list[int]]
) -> None:
    boxes: list[deque[_core.Event]] = [deque(), deque()]
    requests = [submit(core, prompt, max_new_tokens=TOKENS) for prompt in PROMPTS[:2]]
    mailboxes: Mailboxes = dict(zip(requests, map(weakref.ref, boxes), strict=True))
    turns = 0
    while mailboxes:
        assert core.run(mailboxes)
        turns += 1
    assert turns == TOKENS
    assert [tokens_of(box) for box in boxes] == alone[:2]
    assert all(event.request == requests[0] for event in boxes[0])
    assert not core.run(mailboxes)


def test_one_run_for_all_that_is_gathered(core: _core.Engine, alone: list[list[int]]) -> None:
    box: deque[_core.Event] = deque()
    requests = [submit(core, p, max_new_tokens=TOKENS, gather=True) for p in PROMPTS]
    mailboxes: Mailboxes = dict.fromkeys(requests, weakref.ref(box))
    assert core.run(mailboxes)
    assert (len(box), mailboxes) == (4, {})
    assert [tokens_of(deque([event])) for event in box] == alone


@pytest.mark.parametrize("way", ["none", "dead"])
def test_a_request_that_nobody_reads_is_given_up(
    core: _core.Engine, alone: list[list[int]], way: str
) -> None:
    box: deque[_core.Event] = deque()
    kept, lost = (submit(core, prompt, max_new_tokens=TOKENS) for prompt in PROMPTS[:2])
    mailboxes: Mailboxes = {kept: weakref.ref(box)}
    if way == "dead":
        mailboxes[lost] = weakref.ref(deque[_core.Event]())
    assert core.run(mailboxes)
    assert core.stats()["running"] == 1
    while kept in mailboxes:
        core.run(mailboxes)
    assert tokens_of(box) == alone[0]


def test_events_that_cannot_be_delivered_are_given_back(
    core: _core.Engine, alone: list[list[int]]
) -> None:
    """What fails at the second of three events has lost neither it nor the third."""

    class Full:
        def append(self, event: _core.Event) -> None:
            raise MemoryError("full")

    boxes: list[deque[_core.Event]] = [deque(), deque(), deque()]
    requests = [submit(core, prompt, max_new_tokens=TOKENS) for prompt in PROMPTS[:3]]
    good: Mailboxes = dict(zip(requests, map(weakref.ref, boxes), strict=True))
    mailboxes = dict(good)
    while not all(boxes):  # the first have other prompts to wait for
        core.run(mailboxes)
    for _ in range(3):
        with pytest.raises(MemoryError, match="full"):
            core.run({**mailboxes, requests[1]: lambda: Full()})
    while mailboxes:
        core.run(mailboxes)
    assert [tokens_of(box) for box in boxes] == alone[:3]


def test_a_pause_ends_a_run_with_its_step(core: _core.Engine) -> None:
    box: deque[_core.Event] = deque()
    request = submit(core, PROMPTS[0], max_new_tokens=TOKENS, gather=True)
    mailboxes: Mailboxes = {request: weakref.ref(box)}
    core.pause()
    core.pause()
    assert core.run(mailboxes) and not box, "there will be events"
    assert core.stats()["steps"] == 1
    assert core.run(mailboxes) and box
    assert core.stats()["steps"] == TOKENS


def test_a_pause_from_another_thread(core: _core.Engine) -> None:
    inside = threading.Event()

    def rule(token_ids: Any) -> bool:
        inside.set()
        return False

    box: deque[_core.Event] = deque()
    request = submit(core, PROMPTS[0], max_new_tokens=10**6, gather=True, end_rules=[rule])
    runs: list[bool] = []
    thread = threading.Thread(target=lambda: runs.append(core.run({request: weakref.ref(box)})))
    thread.start()
    assert inside.wait(10)
    core.pause()
    thread.join(10)
    assert runs == [True] and not box
    core.cancel(request)
    assert not core.run({}), "nothing is to come"


def test_a_rule_cannot_run_the_engine_that_calls_it(
    core: _core.Engine, alone: list[list[int]]
) -> None:
    told: list[str] = []

    def rule(token_ids: Any) -> bool:
        try:
            core.run({})
        except InvalidArgument as error:
            told.append(str(error))
        return False

    request = submit(core, PROMPTS[0], max_new_tokens=TOKENS, end_rules=[rule])
    assert drain(core, [request])[request].tokens == alone[0]
    assert len(told) == TOKENS and "its own step" in told[0]
