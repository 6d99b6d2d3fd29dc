"""How much of the processors other processes have, while something is measured.

An engine whose threads meet at a barrier after every product slows down far more than its share
when one of its processors is taken away, so on a busy machine even ratios lie. Linux only:
elsewhere nothing is known, and nobody waits. Knows no engine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

QUIET = 0.1  # of all processors
STAT = Path("/proc/stat")


class Neighbours:
    """Those of one process, this one where none is named; counts from its creation."""

    def __init__(self, process: int | None = None) -> None:
        self._process = os.getpid() if process is None else process
        self._wall, self._others = time.perf_counter(), _others_seconds(self._process)

    def share(self) -> float:
        """The fraction of all processors' time that others took; 0 where that is unknown."""
        wall = time.perf_counter() - self._wall
        return max(
            0.0, (_others_seconds(self._process) - self._others) / (wall * (os.cpu_count() or 1))
        )


def wait_for_quiet(patience_s: float) -> None:
    """Return once a second has passed with little else running, or when patience ends."""
    end = time.perf_counter() + patience_s
    while time.perf_counter() < end:
        neighbours = Neighbours()
        time.sleep(1)
        if neighbours.share() < QUIET:
            return


def _others_seconds(process: int) -> float:
    """Processor time of all other processes since some moment, stolen time included."""
    if not STAT.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, STAT.read_text().split()[1:9])
    # After the name, which may hold spaces, the 12th and 13th fields are user and system time.
    own = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    ticks = user + nice + system + irq + softirq + steal - sum(map(int, own))
    return ticks / os.sysconf("SC_CLK_TCK")
