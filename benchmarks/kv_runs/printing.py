"""Prints progress to stderr, and results as a table or JSON to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engines.tables import aligned, markdown


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(
    setting: dict[str, Any], lines: Sequence[Any], rows: Sequence[Sequence[str]], output: str
) -> None:
    """Print results: ``lines`` are dataclasses for JSON; ``rows`` are a table whose first row is
    the heading."""
    if output == "json":
        print(json.dumps({**setting, "lines": [asdict(line) for line in lines]}, indent=2))
        return
    print(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in setting.items()) + "\n")
    print(markdown(rows) if output == "md" else aligned(rows))
