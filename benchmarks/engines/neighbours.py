"""Measures the share of the cores that other processes take during a measurement.

An engine whose threads wait at a barrier after every product slows down far more than its share
when it loses one core, so on a busy machine even ratios are wrong. This works only on Linux; on
other systems the share is unknown, and no measurement waits.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

QUIET = 0.1  # share of all cores
STAT = Path("/proc/stat")


class Neighbours:
    """The CPU time of one process (default: this one) since the creation of this object."""

    def __init__(self, process: int | None = None) -> None:
        self._process = os.getpid() if process is None else process
        self._wall, self._others = time.perf_counter(), _others_seconds(self._process)

    def share(self) -> float:
        """The share of all CPU time that other processes took; 0 if unknown."""
        wall = time.perf_counter() - self._wall
        return max(
            0.0, (_others_seconds(self._process) - self._others) / (wall * (os.cpu_count() or 1))
        )


def wait_for_quiet(patience_s: float) -> None:
    """Return after one second in which other processes do little, or when the patience ends."""
    end = time.perf_counter() + patience_s
    while time.perf_counter() < end:
        neighbours = Neighbours()
        time.sleep(1)
        if neighbours.share() < QUIET:
            return


def _others_seconds(process: int) -> float:
    """CPU time of all other processes since a moment, including stolen time."""
    if not STAT.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, STAT.read_text().split()[1:9])
    # After the name, which may contain spaces, fields 12 and 13 are user and system time.
    own = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    ticks = user + nice + system + irq + softirq + steal - sum(map(int, own))
    return ticks / os.sysconf("SC_CLK_TCK")
