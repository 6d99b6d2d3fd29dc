"""Damaged model files of every kind end in success or in an onward.Error, quickly and in place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "builders" / "loader_fuzz.py"
SECONDS = 3.0
KINDS = ["safetensors", "safetensors-header", "gguf", "gguf-blocks", "config", "index"]


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_are_refused_cleanly(kind: str) -> None:
    command = [sys.executable, str(PROGRAM), kind, str(SECONDS), "20240229"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"exit {done.returncode} (negative: signal)\n{done.stderr}"
    opened, refused, slowest, grown_kb = json.loads(done.stdout)
    assert opened + refused > 100
    assert refused > opened / 10  # the damage does reach what is checked
    assert slowest < 1
    assert grown_kb < 50_000
