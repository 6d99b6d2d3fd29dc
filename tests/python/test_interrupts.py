"""The tests with interrupts also work if the parent of pytest ignores SIGINT, as shells do."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

import conftest


@pytest.mark.skipif(sys.platform == "win32", reason="signals are ignored another way")
def test_an_ignored_interrupt_is_restored_here_and_in_children(
    request: pytest.FixtureRequest,
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        conftest.pytest_configure(request.config)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        child = "import signal; print(signal.getsignal(signal.SIGINT) is not signal.SIG_IGN)"
        command = [sys.executable, "-c", child]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert found.stdout == "True\n"
    finally:
        signal.signal(signal.SIGINT, before)
