"""Every program in examples/ runs to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_prints(example: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    assert run.stderr == ""


def test_the_list_of_examples_is_complete() -> None:
    readme = (EXAMPLES[0].parent / "README.md").read_text()
    assert [path.name for path in EXAMPLES if f"({path.name})" not in readme] == []
