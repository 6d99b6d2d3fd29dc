"""The memory and open files of a process, read from /proc."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import pytest

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
PEAK_INTERVAL_S = 0.002


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def peak_growth(work: Callable[[], object]) -> int:
    """The number of bytes by which the resident memory exceeded its present size during work()."""
    before = resident_bytes()
    highest = before
    done = threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.is_set():
            highest = max(highest, resident_bytes())
            time.sleep(PEAK_INTERVAL_S)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return max(highest, resident_bytes()) - before
