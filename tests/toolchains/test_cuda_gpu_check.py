"""scripts/gpu_check.sh without a GPU: each step runs and is in the summary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builders.cuda_host import needs_cuda_host
from conftest import search_path

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.sh"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": search_path()},
        check=False,
    )


@needs_cuda_host()
def test_on_the_processor(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    done = run(
        *("--no-build", "--device", "cuda-host", "--python", sys.executable, "--results", folder)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((folder / "results.json").read_text())
    ended = {step["name"]: step["status"] for step in results["steps"]}
    assert ended["doctor"] == ended["tests"] == ended["bench-tiny"] == "0"
    assert ended["memcheck"] == "skipped: no GPU"
    assert results["doctor"]["devices"]["cuda-host"]["ready"]
    (report,) = results["bench"].values()
    assert [line["what"] for line in report["lines"]] == ["prefill", "decode"]
    text = (folder / "summary.md").read_text()
    assert "| llama-default | f32 | decode 0 |" in text
    assert "cuda-host at most: read GB/s" in text


@pytest.mark.parametrize("arguments", [["--what"], ["--results"]])
def test_unknown_arguments_are_refused(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "scripts/gpu_check.sh [--wheelhouse FOLDER]" in done.stderr
