"""A thousand chats with one system prompt and one message each, in little memory for keys and
values.

They are submitted as one list. A random sample is also computed alone, one after another in an LLM
that reuses nothing, and must give the same tokens. Every chat must return, have ended, and have the
right prompt length. While they run, a second thread samples the size of the cache.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from dataclasses import dataclass

import onward
from kv_runs.printing import say, show

MIB = 1 << 20
RULE = "Answer briefly, in plain words, and never mention rule {}. "
TOPICS = ("rivers", "bees", "iron", "maps", "clouds", "bread", "clocks", "whales", "glass", "salt")
ASKED = ("Why are there", "Who studies", "What is the oldest of", "Name a use of", "Tell me about")
LOOK_S = 0.05


@dataclass(frozen=True)
class Line:
    """The result of one run."""

    kv_dtype: str
    chats: int
    prompt_tokens: int
    """Prompt tokens of all chats."""
    system_tokens: int
    """The number of tokens that all chats begin with."""
    seconds: float
    seconds_alone: float
    """The seconds for all chats, extrapolated from the chats that were computed alone."""
    seconds_together: float
    """The same, from a list of these chats that was submitted at once, without reuse."""
    hit_rate: float
    computed_tokens: int
    evictions: int
    preemptions: int
    limit_bytes: int
    peak_bytes: int
    compared: int
    differing: int
    lost: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=None, help="default: SmolLM2")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--kv-dtype", nargs="+", default=["auto", "turbo4"])
    parser.add_argument("--chats", type=int, default=1000)
    parser.add_argument("--system-tokens", type=int, default=1000)
    parser.add_argument("--new", type=int, default=8, help="tokens of an answer at most")
    parser.add_argument("--memory", type=int, default=200, help="MiB of keys and values")
    parser.add_argument("--alone", type=int, default=20, help="chats that are compared")


class Peak:
    """The largest number of bytes in the cache, sampled by a separate thread."""

    def __init__(self, llm: onward.LLM) -> None:
        self._llm, self._ended = llm, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.bytes = 0

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.bytes = max(self.bytes, self._llm.stats()["cache_bytes"])


def make_prompts(llm: onward.LLM, count: int, system_tokens: int) -> list[list[int]]:
    """Token ids of chats with a system prompt of at least `tokens` tokens."""
    rules = 1
    while len(llm.tokenize(system := "".join(map(RULE.format, range(rules))))) < system_tokens:
        rules += 1
    chance = random.Random(1)
    return [
        llm.chat_token_ids(
            [
                {"role": "system", "content": system},
                {
                    "role": "user",
                    "content": f"{chance.choice(ASKED)} {chance.choice(TOPICS)}, number {index}?",
                },
            ]
        )
        for index in range(count)
    ]


def shared_length(prompts: list[list[int]]) -> int:
    """The number of tokens at the beginning that all chats have in common."""
    first, last = min(prompts), max(prompts)
    return next(k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)


def measure(arguments: argparse.Namespace, kv_dtype: str) -> Line:
    options = {"max_new_tokens": arguments.new, "temperature": 0.0}
    common = {
        "dtype": arguments.dtype,
        "threads": arguments.threads,
        "kv_dtype": kv_dtype,
        "kv_cache_bytes": arguments.memory * MIB,
    }
    with onward.LLM(arguments.model, **common) as llm:
        prompts = make_prompts(llm, arguments.chats, arguments.system_tokens)
        before = llm.stats()["kv_computations"]
        began = time.perf_counter()
        with Peak(llm) as peak:
            results = llm.generate(prompts, **options)
        seconds = time.perf_counter() - began
        figures, computed = llm.cache.stats(), llm.stats()["kv_computations"] - before
        name = llm.kv_dtype
    say(f"{name}: {arguments.chats} chats in {seconds:.1f} s")
    lost = arguments.chats - sum(
        result.finish_reason in ("stop", "length")
        and result.usage.prompt_tokens == len(prompt)
        and 0 < result.usage.completion_tokens <= arguments.new
        for result, prompt in zip(results, prompts, strict=True)
    )
    chosen = random.Random(2).sample(range(arguments.chats), min(arguments.alone, arguments.chats))
    differing = 0
    with onward.LLM(arguments.model, prefix_cache=False, **common) as llm:
        began = time.perf_counter()
        for index in chosen:
            alone = llm.generate(prompts[index], **options)
            same = (alone.token_ids, alone.text, alone.finish_reason) == (
                results[index].token_ids,
                results[index].text,
                results[index].finish_reason,
            )
            differing += not same
        alone_s = (time.perf_counter() - began) / len(chosen)
        began = time.perf_counter()
        llm.generate([prompts[index] for index in chosen], **options)
        together_s = (time.perf_counter() - began) / len(chosen)
    return Line(
        kv_dtype=name,
        chats=arguments.chats,
        prompt_tokens=sum(map(len, prompts)),
        system_tokens=shared_length(prompts),
        seconds=seconds,
        seconds_alone=alone_s * arguments.chats,
        seconds_together=together_s * arguments.chats,
        hit_rate=figures.hit_rate,
        computed_tokens=computed,
        evictions=figures.evictions,
        preemptions=figures.preemptions,
        limit_bytes=figures.limit_bytes,
        peak_bytes=peak.bytes,
        compared=len(chosen),
        differing=differing,
        lost=lost,
    )


def run(arguments: argparse.Namespace) -> int:
    lines = [measure(arguments, kv_dtype) for kv_dtype in arguments.kv_dtype]
    rows: list[tuple[str, ...]] = [("", *(line.kv_dtype for line in lines))]
    columns = {
        "chats": lambda line: f"{line.chats:,}",
        "tokens of prompts": lambda line: f"{line.prompt_tokens:,}",
        "that all begin with": lambda line: f"{line.system_tokens:,}",
        "tokens computed": lambda line: f"{line.computed_tokens:,}",
        "hit rate": lambda line: f"{line.hit_rate:.1%}",
        "seconds": lambda line: f"{line.seconds:.1f}",
        "nothing reused, at once*": lambda line: f"{line.seconds_together:.0f}",
        "nothing reused, in turn*": lambda line: f"{line.seconds_alone:.0f}",
        "evictions": lambda line: f"{line.evictions:,}",
        "preemptions": lambda line: f"{line.preemptions:,}",
        "MiB of cache at most": lambda line: (
            f"{line.peak_bytes / MIB:.1f} of {line.limit_bytes / MIB:.0f}"
        ),
        "other than alone": lambda line: f"{line.differing} of {line.compared}",
        "lost": lambda line: f"{line.lost}",
    }
    for name, cell in columns.items():
        rows.append((name, *map(cell, lines)))
    show(
        {"sampling": "greedy", "tokens of an answer": arguments.new}, lines, rows, arguments.output
    )
    if arguments.output != "json":
        print(f"\n* from {lines[0].compared} of them")
    return int(any(line.differing or line.lost for line in lines))
