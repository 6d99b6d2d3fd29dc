"""Thousands of requests of every kind through one LLM: memory does not grow, and nothing remains.

Threads and coroutines run at once; a tenth of the requests is cancelled early and a tenth fails.
The test runs in a child process, where nothing else changes the figures.
"""

from __future__ import annotations

import json

import pytest

from builders.resources import needs_proc
from builders.seeded_folder import write_seeded
from closed_form import write_pieces_tokenizer

pytestmark = needs_proc
MIB = 2**20
MOST_GROWTH = 4 * MIB

SOAK = """
import asyncio, gc, json, os, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import onward
from builders.resources import open_files, resident_bytes

THREADS, ROUND = 6, 100  # requests of a round: 90 from threads, 10 awaited

def raising(token_ids, scores):
    if len(token_ids) > 5:
        raise ArithmeticError("the rule's own")

def banning(token_ids, scores):
    if len(token_ids) > 5:
        scores[:] = -np.inf

def not_a_number(token_ids, scores):
    scores[3] = np.nan

OPTIONS = [
    {}, {"temperature": 0.9, "top_p": 0.9}, {"num_beams": 3, "num_return_sequences": 2},
    {"temperature": 1.0, "num_return_sequences": 3}, {"prompt_lookup_num_tokens": 4},
    {"stop": ["<20"], "repetition_penalty": 1.2}, {"logprobs": 3, "prompt_logprobs": 2},
    {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5, "stop": ["<20"]},
    {"stopping_criteria": lambda token_ids: len(token_ids) > 14}, {"best_of": 3, "temperature": 1},
]
FAILING = [
    ({"logits_processor": raising}, ArithmeticError), ({"logits_processor": banning}, ValueError),
    ({"logits_processor": not_a_number}, ValueError), ({"temperature": -1}, ValueError),
    ({"logits_processor": raising, "num_beams": 3}, ArithmeticError),
]

def prompt(i):
    return [1 + (i * 7 + k * k) % 200 for k in range(2 + i % 40)]

def fails(call, kinds):
    try:
        call()
    except kinds as error:
        kept[:] = [error]  # of a caller who keeps it: nothing of the engine's may hang on it
        return
    raise AssertionError("it did not fail")

def from_a_thread(i):
    options = {"max_new_tokens": 4 + i % 13, "priority": i % 3 - 1, "seed": i}
    if i % 9 == 3:
        if i % 2:
            return fails(lambda: broken.generate(prompt(i), **options), onward.errors.NumericsError)
        added, kind = FAILING[i // 18 % len(FAILING)]
        return fails(lambda: llm.generate([5, 6, 7], **{**options, **added}), kind)
    if i % 18 == 5:
        stream = llm.stream(prompt(i), **options)
        next(stream)
        if i % 4 == 1:
            stream.close()  # else it is let go of
        return
    if i % 9 == 1:
        return sum(map(len, llm.stream(prompt(i), **options)))
    result = llm.generate(prompt(i), **options, **OPTIONS[i % len(OPTIONS)])
    assert result.token_ids

async def awaited(first):
    calls = [llm.agenerate(prompt(first + k), max_new_tokens=40 + 40 * (k % 2)) for k in range(10)]
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0.01)
    for task in tasks[1::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(len(result.token_ids) == 40 for result in results[::2]), results
    return sum(isinstance(result, asyncio.CancelledError) for result in results)

def measure():
    gc.collect()
    while llm.stats()["running"]:
        time.sleep(0.001)
    stats = llm.stats()
    left = [stats[name] for name in ("running", "waiting", "cache_blocks_in_use")]
    return {"bytes": resident_bytes(), "files": open_files(), "left": left}

def tasks():
    return len(os.listdir("/proc/self/task"))

with onward.LLM(sys.argv[1]) as first:  # starts what others' libraries keep for themselves
    first.generate("<5><6>", max_new_tokens=4)
threads_before, tasks_before = threading.enumerate(), tasks()
# The cache keeps prefixes of finished requests up to its limit, which is reached early here.
llm = onward.LLM(sys.argv[1], dtype="f32", threads=2, prefill_chunk_tokens=32, max_sequences=16,
                 kv_cache_bytes=2 << 20)
broken = onward.LLM(sys.argv[2], dtype="f32", threads=1)
after, requests = int(sys.argv[3]), int(sys.argv[4])
measured, cancelled, kept = [], 0, []
started = time.time()
with ThreadPoolExecutor(THREADS) as pool:
    for first in range(0, requests, ROUND):
        calls = [pool.submit(from_a_thread, first + i) for i in range(ROUND - 10)]
        cancelled += asyncio.run(awaited(first))
        for call in calls:
            call.result()
        if (first + ROUND) % max(after // 2, ROUND) == 0:
            measured.append({"requests": first + ROUND, **measure()})
seconds = time.time() - started
steps = llm.stats()["steps"]
llm.close(), broken.close()
deadline = time.time() + 10
while (tasks(), threading.enumerate()) != (tasks_before, threads_before) and time.time() < deadline:
    time.sleep(0.01)
threads = [[t.name for t in threading.enumerate()], [t.name for t in threads_before]]
print(json.dumps({"measured": measured, "cancelled": cancelled, "threads": threads, "steps": steps,
                  "tasks": [tasks(), tasks_before], "seconds": seconds}))
"""


@pytest.fixture
def folders(tmp_path):
    """A small model with text, and a model whose logits are NaN."""
    for name in ("model", "broken"):
        write_seeded(tmp_path / name, hidden_size=32, intermediate_size=48, num_layers=1)
        write_pieces_tokenizer(tmp_path / name, [f"<{token}>" for token in range(256)])
    path = tmp_path / "broken" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-400:] = b"\xff" * 400  # NaN, in the last tensor
    path.write_bytes(bytes(content))
    return tmp_path / "model", tmp_path / "broken"


@pytest.mark.parametrize(
    ("after", "requests"),
    [(200, 500), pytest.param(2000, 10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])],
)
def test_thousands_of_requests_do_not_grow_the_memory(after, requests, folders, run_python):
    child = run_python(SOAK, *folders, after, requests, timeout=1700)
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    print(json.dumps(found))
    start = next(each for each in found["measured"] if each["requests"] == after)
    for each in found["measured"]:
        assert each["left"] == [0, 0, 0]
        assert each["files"] == start["files"]
    # Measured from half of the first part on: memory that threads use for the first time is no
    # leak.
    assert found["measured"][-1]["bytes"] - start["bytes"] < MOST_GROWTH
    assert found["cancelled"] > 0
    assert found["threads"][0] == found["threads"][1]
    assert found["tasks"][0] == found["tasks"][1]
