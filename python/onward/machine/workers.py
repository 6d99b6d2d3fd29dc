"""Threads that run blocking calls for coroutines. None is started before the first such call."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

T = TypeVar("T")
# Each awaited generation keeps one thread, which sleeps except in the steps that it runs itself.
# Further generations wait until a thread is free.
MAX_WORKERS = 256


class Workers:
    """A pool of threads. It is created when first used, and again in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """The result of the function. If the await is cancelled, the function continues to run."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor(), partial(function, *arguments))

    def close(self) -> None:
        """Let the threads end when their present calls have ended."""
        pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            pool.shutdown(wait=False)

    def _executor(self) -> ThreadPoolExecutor:
        # The threads, and the owner of the lock, belonged to the parent.
        if self._process != os.getpid():
            self._lock, self._pool, self._process = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="onward")
            return self._pool
