"""``python -m onward``, and the installed ``onward`` command."""

from __future__ import annotations

import sys


def run() -> int:
    """Run the command line of this process; returns the exit code."""
    try:
        from onward.cli import main

        return main()
    except KeyboardInterrupt:  # Ctrl-C while the modules were imported
        return 130


if __name__ == "__main__":
    sys.exit(run())
