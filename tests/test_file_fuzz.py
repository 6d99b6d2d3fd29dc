"""Damaged files of every format end in success or in an onward.Error, quickly and without the
memory growing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from builders.file_fuzz import KINDS

PROGRAM = Path(__file__).parent / "builders" / "file_fuzz.py"
SECONDS, SEED = 0.8, 20240229
MANY_FILES, MANY_SECONDS = 300, 240
# transformers, too, passes over values of these files that make no sense.
TOLERANT = {"special-tokens", "added-tokens"}


def fuzzed(kind: str, seconds: float, files: int) -> int:
    """How many files were opened or refused."""
    command = [sys.executable, str(PROGRAM), kind, str(seconds), str(SEED), str(files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    assert done.returncode == 0, f"exit {done.returncode} (negative: signal)\n{done.stderr}"
    opened, refused, slowest, grown_kb = json.loads(done.stdout)
    if kind not in TOLERANT:
        assert refused > opened / 50  # the damage does reach what is checked
    assert slowest < 2.5
    assert grown_kb < 50_000
    return int(opened + refused)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_cleanly(kind: str) -> None:
    assert fuzzed(kind, SECONDS, 10**9) > 10


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files(kind: str) -> None:
    """18 formats of 300 files each: 5,400 files."""
    assert fuzzed(kind, MANY_SECONDS, MANY_FILES) == MANY_FILES
