"""The NEON kernels compile for aarch64 from here, without a warning.

They need a cross compiler (Debian's g++-aarch64-linux-gnu); .ci/run installs it where it can.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
COMPILER = shutil.which("aarch64-linux-gnu-g++")
# -O1: the front end and the intrinsics are what is tested; -O3 takes three times as long.
FLAGS = ["-std=c++20", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
DOT_FLAG = "-march=armv8.2-a+dotprod"

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no aarch64-linux-gnu-g++ on this machine")


def compiled(source: str, folder: Path, *flags: str) -> str:
    """The instructions of a source below csrc/cpu."""
    assert COMPILER is not None
    target = folder / "kernels.o"
    include = [f"-I{CSRC}", f"-I{CSRC / 'include'}"]
    run = subprocess.run(
        [COMPILER, *FLAGS, *flags, *include, "-c", str(CSRC / "cpu" / source), "-o", str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return subprocess.run(
        ["aarch64-linux-gnu-objdump", "-d", str(target)], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("isa", "flags"),
    [("neon", []), pytest.param("neondot", [DOT_FLAG], marks=pytest.mark.slow)],
)
def test_the_neon_kernels_compile(isa: str, flags: list[str], tmp_path: Path) -> None:
    """And are really there, not an empty stub: the object holds fused multiply-adds in number, and
    dot products where the processor is known to have them, nowhere else."""
    listing = compiled(f"isa/{isa}.cpp", tmp_path, *flags)
    assert listing.count("fmla") > 100
    assert f"{isa}_kernels" in listing
    assert (listing.count("sdot") > 100) == (isa == "neondot")
    assert (listing.count("sadalp") > 100) == (isa == "neon")


def test_the_build_gives_the_dot_products_their_flag() -> None:
    assert DOT_FLAG in (CSRC.parent / "cmake" / "cpu_isa.cmake").read_text()


def test_no_dot_products_without_the_flag(tmp_path: Path) -> None:
    listing = compiled("isa/neondot.cpp", tmp_path)
    assert "neondot_kernels" in listing
    assert "fmla" not in listing


@pytest.mark.parametrize(
    "source",
    [
        "select.cpp",
        "isa/avx2.cpp",
        *(
            pytest.param(f"isa/{name}.cpp", marks=pytest.mark.slow)
            for name in ("generic", "avx2vnni", "avx512", "avx512vnni", "avx512bf16")
        ),
    ],
)
def test_the_other_sources_compile_for_aarch64_too(source: str, tmp_path: Path) -> None:
    """The x86 files become accessors that return null."""
    listing = compiled(source, tmp_path)
    assert source == "select.cpp" or f"{Path(source).stem}_kernels" in listing
