"""What the drivers of this process must know when it forks and when it exits.

A forked child gets the parent's engines between two steps and none of its requests. At exit, the
threads that Python does not wait for (daemons) are kept out of the C++ core: the interpreter may be
gone when they come back from it. Knows nothing of what a driver does.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import Protocol

FORK_PATIENCE_S = 2.0
EXIT_PATIENCE_S = 2.0


class Watched(Protocol):
    """What forks and exits ask of a driver."""

    def before_fork(self, deadline: float) -> None: ...
    def after_fork_in_parent(self) -> None: ...
    def after_fork_in_child(self) -> None: ...
    def wait_until_idle(self, deadline: float) -> None: ...


_watched: weakref.WeakSet[Watched] = weakref.WeakSet()
_exiting = False


def watch(driver: Watched) -> None:
    """Tell ``driver`` of every fork and of the exit, for as long as it lives."""
    _watched.add(driver)


def may_run(thread: int) -> bool:
    """Whether this thread may enter the core: at exit, only the one that Python waits for."""
    return not _exiting or thread == threading.main_thread().ident


def _before_fork() -> None:
    deadline = time.monotonic() + FORK_PATIENCE_S
    for driver in list(_watched):
        driver.before_fork(deadline)


def _after_fork_in_parent() -> None:
    for driver in list(_watched):
        driver.after_fork_in_parent()


def _after_fork_in_child() -> None:
    for driver in list(_watched):
        driver.after_fork_in_child()


def _at_exit() -> None:
    global _exiting
    _exiting = True
    deadline = time.monotonic() + EXIT_PATIENCE_S
    for driver in list(_watched):
        driver.wait_until_idle(deadline)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
atexit.register(_at_exit)
