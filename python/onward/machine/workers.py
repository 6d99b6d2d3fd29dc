"""Threads in which blocking calls run on behalf of coroutines; there are none before the first.

Knows nothing of engines: what is run decides for itself how to share.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

T = TypeVar("T")
# Each awaited generation keeps one thread, asleep but for the steps it runs itself. Beyond this
# many they wait for each other.
MAX_WORKERS = 256


class Workers:
    """A pool of threads that is made when it is first needed, and anew in a forked child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """The function's result; a cancelled await leaves the function running."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor(), partial(function, *arguments))

    def close(self) -> None:
        """Let the threads end when what they run has ended."""
        pool, self._pool = self._pool, None
        if pool is not None and self._process == os.getpid():
            pool.shutdown(wait=False)

    def _executor(self) -> ThreadPoolExecutor:
        if self._process != os.getpid():  # the threads, and who held the lock, were the parent's
            self._lock, self._pool, self._process = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="onward")
            return self._pool
