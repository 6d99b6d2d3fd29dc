"""A progress bar for loading and for long prompts, on stderr, for a person who has waited more than a second.

Nothing is written when stderr is not a terminal, and never anything to stdout.
"""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType

PATIENCE_S = 1.0
REDRAW_S = 0.1


class ProgressBar:
    """``with ProgressBar("loading x") as progress: work(progress)``; called with (done, total).

    It goes away at the total, or at the end of the block where there is one.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._next_draw = time.monotonic() + PATIENCE_S
        self._watched = sys.stderr is not None and sys.stderr.isatty()
        self._drawn = False

    def __call__(self, done: int, total: int) -> None:
        if done >= total:
            return self.erase()
        now = time.monotonic()
        if not self._watched or now < self._next_draw:
            return
        self._next_draw = now + REDRAW_S
        self._drawn = True
        share = min(done / total, 1.0) if total > 0 else 0.0
        room = shutil.get_terminal_size().columns - len(self._title) - 10
        width = max(4, min(40, room))
        bar = ("#" * round(share * width)).ljust(width, ".")
        sys.stderr.write(f"\r{self._title} [{bar}] {share:4.0%}")
        sys.stderr.flush()

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
        """Leave nothing on the line."""
        if self._drawn:
            self._drawn = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
