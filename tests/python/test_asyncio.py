"""agenerate and astream: the event loop stays responsive, calls share steps, and a cancelled task
frees the engine.

The model is M-SEEN, which repeats the largest id of the prompt.
"""

from __future__ import annotations

import asyncio
import os
import time

import pytest

import onward
from closed_form import write_pieces_tokenizer, write_seen

PIECES = ["<pad>", "<s>", "</s>", "three ", "four ", "five ", "six ", "seven "]
ENDLESS = 60_000


@pytest.fixture
def seen(tmp_path, open_llm):
    folder = write_seen(tmp_path / "seen", max_position_embeddings=100_000)
    write_pieces_tokenizer(folder, PIECES)
    return open_llm(folder)


async def idle(llm) -> int:
    """Wait until the engine has no requests, within the time limit of a test."""
    deadline = time.monotonic() + 20
    while llm.stats()["running"] > 0:
        assert time.monotonic() < deadline, "the request still runs"
        await asyncio.sleep(0.01)
    return llm.stats()["steps"]


def test_calls_that_are_awaited_together_share_steps(seen):
    """40 calls of 50 tokens: far fewer steps than the 2,000 they would take one by one."""

    async def ask():
        return await asyncio.gather(
            *(seen.agenerate([3 + i % 5], max_new_tokens=50) for i in range(40))
        )

    results = asyncio.run(ask())
    assert [r.token_ids for r in results] == [(3 + i % 5,) * 50 for i in range(40)]
    assert seen.stats()["steps"] < 1000


def test_a_list_of_prompts_gives_a_list_of_results(seen):
    results = asyncio.run(seen.agenerate([[3], [4, 7]], max_new_tokens=2))
    assert [r.token_ids for r in results] == [(3, 3), (7, 7)]


def test_streams_of_one_loop_take_turns(seen):
    async def read(token):
        return [piece async for piece in seen.astream([token], max_new_tokens=30)]

    async def both():
        return await asyncio.gather(read(3), read(5))

    three, five = asyncio.run(both())
    assert three == ["three "] * 30
    assert five == ["five "] * 30


def test_the_event_loop_runs_during_a_generation(seen):
    """During a long generation a ticker of 5 ms never waits for 200 ms."""

    async def tick(gaps):
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            gaps.append(time.monotonic() - last)
            last = time.monotonic()

    async def main():
        gaps: list[float] = []
        ticker = asyncio.create_task(tick(gaps))
        await seen.agenerate([3], max_new_tokens=30_000)
        ticker.cancel()
        return gaps

    gaps = asyncio.run(main())
    assert len(gaps) > 10
    assert max(gaps) < 0.2


@pytest.mark.parametrize("way", ["cancel", "break"])
def test_a_cancelled_task_frees_the_engine(seen, way):
    async def main():
        if way == "cancel":
            task = asyncio.create_task(seen.agenerate([3], max_new_tokens=ENDLESS))
            while seen.stats()["steps"] < 5:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            pieces = seen.astream([3], max_new_tokens=ENDLESS)
            async for _ in pieces:
                break
            await pieces.aclose()
        steps = await idle(seen)
        assert steps < ENDLESS
        return (await seen.agenerate([4], max_new_tokens=2)).token_ids

    assert asyncio.run(main()) == (4, 4)
    assert seen.stats()["cache_blocks_in_use"] == 0


def test_a_timeout_ends_a_call(seen):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(seen.agenerate([3], max_new_tokens=ENDLESS), 0.2)
        await idle(seen)

    asyncio.run(main())


def test_errors_reach_the_caller(seen):
    with pytest.raises(ValueError, match="token id 99"):
        asyncio.run(seen.agenerate([99]))
    with pytest.raises(TypeError, match="did you mean max_new_tokens"):
        asyncio.run(seen.agenerate([3], max_new_token=1))
    seen.close()
    with pytest.raises(onward.errors.ClosedError):
        asyncio.run(seen.agenerate([3]))


def test_a_forked_child_has_its_own_threads(seen):
    asyncio.run(seen.agenerate([3], max_new_tokens=1))
    child = os.fork()
    if child == 0:
        try:
            result = asyncio.run(seen.agenerate([6], max_new_tokens=3))
            os._exit(0 if result.token_ids == (6, 6, 6) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
