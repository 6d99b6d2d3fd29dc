"""A progress bar on stderr for loading, long prompts and batches, shown after one second.

Nothing is written if stderr is not a terminal, and nothing is ever written to stdout.
"""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType

PATIENCE_S = 1.0
REDRAW_S = 0.1


class ProgressBar:
    """``with ProgressBar("loading x") as progress: work(progress)``.

    Call it with (done, total) and an optional note. The bar disappears at the total, or at the end
    of the block. A total of 0 means unknown: then only the note is shown. With a note the bar also
    shows the remaining time.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()
        self._next_draw = self._started + PATIENCE_S
        self._watched = sys.stderr is not None and sys.stderr.isatty()
        self._drawn = False

    def __call__(self, done: int, total: int, note: str = "") -> None:
        if done >= total > 0 or (done >= total and not note):
            return self.erase()
        now = time.monotonic()
        if not self._watched or now < self._next_draw:
            return
        self._next_draw = now + REDRAW_S
        self._drawn = True
        sys.stderr.write("\r" + self._line(done, total, note, now) + "\x1b[K")
        sys.stderr.flush()

    def _line(self, done: int, total: int, note: str, now: float) -> str:
        """The text of the bar. It never reaches the last column, where a terminal would wrap."""
        columns = shutil.get_terminal_size().columns - 1
        if total <= 0:
            return note[:columns]
        share = min(done / total, 1.0)
        after = f" {share:4.0%}"
        if note:
            left = (now - self._started) * (total / done - 1) if done > 0 else 0.0
            after += f"  {note}, {_clock(left)} left"
        room = columns - len(self._title) - len(after) - 3
        width = max(4, min(40, room))
        bar = ("#" * round(share * width)).ljust(width, ".")
        return f"{self._title} [{bar}]{after}"[:columns]

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.erase()

    def erase(self) -> None:
        """Clear the line."""
        if self._drawn:
            self._drawn = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _clock(seconds: float) -> str:
    """Minutes and seconds, or hours and minutes: 0:42, 2 h 05 min."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
