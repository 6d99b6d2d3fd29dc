"""Damaged files of every format end in success or in an onward.Error, quickly and without growing
memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from builders.file_fuzz import KINDS

PROGRAM = Path(__file__).parents[1] / "builders" / "file_fuzz.py"
SEED, MOST_SECONDS = 20240229, 240
FILES, MANY_FILES = 40, 300
# transformers also ignores values of these files that make no sense.
TOLERANT = {"special-tokens", "added-tokens"}


def fuzzed(kinds: list[str], files: int) -> list[int]:
    """The number of files of each kind that were opened or refused."""
    command = [
        sys.executable,
        str(PROGRAM),
        ",".join(kinds),
        str(MOST_SECONDS),
        str(SEED),
        str(files),
    ]
    limit = 60 + len(kinds) * files
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    assert done.returncode == 0, (
        f"exit {done.returncode} (negative: signal), in the kind after\n{done.stdout}{done.stderr}"
    )
    counts = []
    for line in done.stdout.splitlines():
        kind, opened, refused, slowest, grown_kb = json.loads(line)
        if kind not in TOLERANT:
            assert refused > opened / 50, kind  # the damage reaches the checked fields
        assert slowest < 2.5, kind
        assert grown_kb < 50_000, kind
        counts.append(opened + refused)
    assert len(counts) == len(kinds)
    return counts


def test_damaged_files_are_refused_cleanly() -> None:
    assert fuzzed([*KINDS], FILES) == [FILES] * len(KINDS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_damaged_files() -> None:
    """18 formats of 300 files each: 5,400 files."""
    assert fuzzed([*KINDS], MANY_FILES) == [MANY_FILES] * len(KINDS)
