"""The NEON kernels compile for aarch64 with a cross compiler, without a warning.

The compiler is Debian's g++-aarch64-linux-gnu. .ci/run installs it if possible.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
COMPILER = shutil.which("aarch64-linux-gnu-g++")
# -O1 is enough to test the front end and the intrinsics; -O3 takes three times as long.
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
    ("source", "flags", "instruction"),
    [
        ("floats", [], "fmla"),
        ("widening_bytes", [], "sadalp"),
        pytest.param("dot_bytes", [DOT_FLAG], "sdot", marks=pytest.mark.slow),
    ],
)
def test_the_neon_kernels_compile(
    source: str, flags: list[str], instruction: str, tmp_path: Path
) -> None:
    """The object has many instructions of the kernels, so it is not an empty stub. It has dot
    products only for a processor with them."""
    listing = compiled(f"isa/neon/{source}.cpp", tmp_path, *flags)
    assert listing.count(instruction) > 100
    assert ("sdot" in listing) == (source == "dot_bytes")


def test_the_build_gives_the_dot_products_their_flag() -> None:
    assert DOT_FLAG in (CSRC.parent / "cmake" / "cpu_isa.cmake").read_text()


def test_no_dot_products_without_the_flag(tmp_path: Path) -> None:
    listing = compiled("isa/neon/dot_bytes.cpp", tmp_path)
    assert "dot_byte_kernels" in listing
    assert "fmla" not in listing


@pytest.mark.parametrize(
    "source",
    [
        "select.cpp",
        "isa/avx2/floats.cpp",
        *(
            pytest.param(source, marks=pytest.mark.slow)
            for source in sorted(
                path.relative_to(CSRC / "cpu").as_posix()
                for family in ("generic", "avx2", "avx512")
                for path in (CSRC / "cpu" / "isa" / family).glob("*.cpp")
            )
            if source != "isa/avx2/floats.cpp"
        ),
    ],
)
def test_the_other_sources_compile_for_aarch64_too(source: str, tmp_path: Path) -> None:
    """The x86 files become accessors that return null."""
    listing = compiled(source, tmp_path)
    assert source == "select.cpp" or "_kernels" in listing
