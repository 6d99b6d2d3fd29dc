"""Runs ``pip install`` and shows its progress on stderr: the present step and the compiled files.

    python scripts/install_with_progress.py PIP_ARGUMENT...

pip is silent while it compiles, which takes minutes. On a terminal, one line is redrawn; elsewhere
a line is printed every half minute. If pip fails, the end of its output is shown.
"""

from __future__ import annotations

import collections
import os
import queue
import re
import subprocess
import sys
import threading
import time
from typing import TextIO

# Measured: 7.5 minutes for `make demo` as a whole, with gcc 12 on an AMD EPYC.
COMPILE_CPU_MINUTES = 8
STAGES = (
    (r"\[(\d+)/(\d+)\] (?:Building|Linking)", "compiling {0} of {1}"),
    (r"Installing build dependencies", "fetching the build tools"),
    (r"Preparing metadata", "reading the project"),
    (r"Building wheel", "configuring the build"),
    (r"Collecting (\S+)", "fetching {0}"),
    (r"Installing collected packages", "installing"),
)
SILENT_REDRAW_S = 30.0
LAST_LINES = 60


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    minutes = max(1, round(COMPILE_CPU_MINUTES / (os.cpu_count() or 1)))
    print(
        f"onward: compiling the C++ core; about {minutes} minutes with {os.cpu_count()} free "
        "processors",
        file=sys.stderr,
    )
    pip = [sys.executable, "-m", "pip", "install", "-v", "--disable-pip-version-check"]
    with subprocess.Popen(
        [*pip, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        assert child.stdout is not None
        last = follow(child.stdout, began)
        code = child.wait()
    if code != 0:
        sys.stderr.writelines(last)
        print(f"onward: pip failed ({code}); the end of its output is above", file=sys.stderr)
    return code


def follow(lines: TextIO, began: float) -> collections.deque[str]:
    """Show the stages until the output ends; returns the last lines of it."""
    last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
    arrived: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in lines:
            arrived.put(line)
        arrived.put(None)

    threading.Thread(target=read, daemon=True).start()
    watched = sys.stderr.isatty()
    pause = 1.0 if watched else SILENT_REDRAW_S
    stage, drawn = "starting pip", 0.0
    while True:
        try:
            line: str | None = arrived.get(timeout=pause)
        except queue.Empty:
            line = ""
        if line is None:
            break
        if line:
            last.append(line)
        stage = stage_of(line) or stage
        if time.monotonic() - drawn >= pause:
            drawn = time.monotonic()
            show(stage, drawn - began, watched)
    show("done", time.monotonic() - began, watched)
    if watched:
        sys.stderr.write("\n")
    return last


def stage_of(line: str) -> str | None:
    """The progress that a line of pip's output reports, in words, or None."""
    for pattern, words in STAGES:
        if match := re.search(pattern, line):
            return words.format(*match.groups())
    return None


def show(stage: str, seconds: float, watched: bool) -> None:
    """Print the stage and the time since the beginning to stderr."""
    line = f"onward: {int(seconds) // 60}:{int(seconds) % 60:02}  {stage}"
    sys.stderr.write(f"\r\x1b[K{line}" if watched else f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
