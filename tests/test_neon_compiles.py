"""The NEON kernels compile for aarch64 from here, without a warning.

They need a cross compiler (Debian's g++-aarch64-linux-gnu); .ci/run installs it where it can.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parent.parent / "csrc"
COMPILER = shutil.which("aarch64-linux-gnu-g++")
FLAGS = ["-std=c++20", "-O3", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]


@pytest.mark.skipif(COMPILER is None, reason="no aarch64-linux-gnu-g++ on this machine")
def test_the_neon_kernels_compile(tmp_path: Path) -> None:
    """And are really there, not an empty stub: the object holds fused multiply-adds in number."""
    assert COMPILER is not None
    target = tmp_path / "neon.o"
    run = subprocess.run(
        [COMPILER, *FLAGS, f"-I{CSRC}", "-c", str(CSRC / "cpu/isa/neon.cpp"), "-o", str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    listing = subprocess.run(
        ["aarch64-linux-gnu-objdump", "-d", str(target)], capture_output=True, text=True, check=True
    ).stdout
    assert listing.count("fmla") > 100
    assert "neon_kernels" in listing


@pytest.mark.skipif(COMPILER is None, reason="no aarch64-linux-gnu-g++ on this machine")
@pytest.mark.parametrize(
    "source", ["generic", "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16"]
)
def test_the_other_kernels_compile_for_aarch64_too(source: str, tmp_path: Path) -> None:
    """The x86 files become accessors that return null."""
    assert COMPILER is not None
    path = CSRC / f"cpu/isa/{source}.cpp"
    run = subprocess.run(
        [COMPILER, *FLAGS, f"-I{CSRC}", "-c", str(path), "-o", str(tmp_path / "kernels.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
