"""onward through its public API: one call for each request, many calls at once.

Requests with different options need separate calls, from threads or coroutines. ``prepare`` tries
both and keeps the faster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onward
from engines.contest import Clock, Request, Timed


class Onward:
    """One ``LLM`` and two ways to call it."""

    serial = False

    def __init__(self, path: Path, dtype: str, threads: int) -> None:
        # Rounds repeat the same prompts and must read them again.
        self._llm = onward.LLM(path, dtype=dtype, threads=threads, prefix_cache=False)
        self._pool = ThreadPoolExecutor(256)
        self._ways: dict[str, Callable[[Sequence[Request]], list[list[int]]]] = {
            "threads": self._from_threads,
            "asyncio": lambda requests: asyncio.run(self._from_coroutines(requests)),
        }
        self._chosen: dict[tuple[Request, ...], str] = {}
        self.name = f"onward {self._llm.dtype}"
        isa = onward._core.kernels.selected()
        self.setting = f"onward {onward.__version__}, {self._llm.dtype}, {isa}"

    @property
    def vocab_size(self) -> int:
        return self._llm.spec.vocab_size

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(self._llm.tokenize(text))

    def prepare(self, requests: Sequence[Request], clock: Clock) -> str:
        self._from_threads(requests[:4])  # warm-up
        seconds: dict[str, float] = {}
        for way, run in self._ways.items():
            started = clock()
            run(requests)
            seconds[way] = clock() - started
        way = min(seconds, key=lambda way: seconds[way])
        self._chosen[tuple(requests)] = way
        other = max(seconds, key=lambda way: seconds[way])
        return f"{way} ({other}: {seconds[other] / seconds[way]:.2f} of its time)"

    def run(self, requests: Sequence[Request]) -> list[list[int]]:
        return self._ways[self._chosen.get(tuple(requests), "threads")](requests)

    def follow(self, request: Request) -> Timed:
        """The whole call is timed here. Only the time from the first token to the last is taken
        from the result."""
        started = time.perf_counter()
        result = self._llm.generate(
            list(request.prompt),
            max_new_tokens=request.new_tokens,
            ignore_eos=True,
            temperature=0.0,
        )
        last = time.perf_counter() - started
        a_token = result.timings.time_per_output_token_s or 0.0
        tokens = list(result.token_ids)
        return Timed(tokens, last - a_token * (len(tokens) - 1), last)

    def close(self) -> None:
        self._pool.shutdown()
        self._llm.close()

    def _from_threads(self, requests: Sequence[Request]) -> list[list[int]]:
        def one(request: Request) -> list[int]:
            result = self._llm.generate(
                list(request.prompt),
                max_new_tokens=request.new_tokens,
                ignore_eos=True,
                temperature=0.0,
            )
            return list(result.token_ids)

        return list(self._pool.map(one, requests))

    async def _from_coroutines(self, requests: Sequence[Request]) -> list[list[int]]:
        calls = [
            self._llm.agenerate(
                list(request.prompt),
                max_new_tokens=request.new_tokens,
                ignore_eos=True,
                temperature=0.0,
            )
            for request in requests
        ]
        return [list(result.token_ids) for result in await asyncio.gather(*calls)]
