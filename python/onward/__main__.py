"""``python -m onward``: the same as the ``onward`` command."""

from __future__ import annotations

import sys

from onward.cli import main

if __name__ == "__main__":
    sys.exit(main())
