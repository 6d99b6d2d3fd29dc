"""The fuzzer of packs (fuzz/pack_fuzzer.cpp) runs for a while and finds nothing.

It needs clang with libFuzzer and the headers of nlohmann/json (on Debian clang-14,
libclang-rt-14-dev, nlohmann-json3-dev), and is skipped if they are missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import search_path

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("clang++") or shutil.which("clang++-14")
TARGET = 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }'


def can_fuzz() -> bool:
    if COMPILER is None or shutil.which("cmake") is None or shutil.which("ninja") is None:
        return False
    compile_ = [COMPILER, "-fsanitize=fuzzer,address", "-x", "c++", "-", "-o", "/dev/null"]
    return subprocess.run(compile_, input=TARGET, text=True, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not can_fuzz():
        pytest.skip("no clang with libFuzzer, cmake and ninja on this machine")
    build = tmp_path_factory.mktemp("fuzzers")
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", "-DONWARD_FUZZ=ON"]
    made = subprocess.run(
        [*configure, f"-DCMAKE_CXX_COMPILER={COMPILER}"], capture_output=True, text=True
    )
    if "nlohmann/json (headers) was not found" in made.stderr:
        pytest.skip("no headers of nlohmann/json outside the package's own build")
    assert made.returncode == 0, made.stderr
    made = subprocess.run(
        ["cmake", "--build", str(build), "--target", "pack_fuzzer"], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stdout + made.stderr
    subprocess.run(
        [sys.executable, str(ROOT / "fuzz" / "make_pack_seeds.py"), str(build / "seeds")],
        check=True,
        env={"PYTHONPATH": search_path()},
    )
    return build / "pack_fuzzer"


def run(fuzzer: Path, seconds: int) -> int:
    """Returns the number of executions. A finding fails the test with the report of the
    sanitizers."""
    corpus = fuzzer.parent / "corpus"
    corpus.mkdir(exist_ok=True)
    limits = ["-rss_limit_mb=1500", "-malloc_limit_mb=256", "-timeout=20"]
    # The peak memory of a process includes the peak of its parent before the fork. A shell as the
    # parent has a small peak.
    through_shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    ran = subprocess.run(
        [
            *through_shell,
            str(fuzzer),
            f"-max_total_time={seconds}",
            *limits,
            f"-artifact_prefix={fuzzer.parent}/found-",
            f"-dict={ROOT / 'fuzz' / 'pack.dict'}",
            "-print_final_stats=1",
            str(corpus),
            str(fuzzer.parent / "seeds"),
        ],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    executed = re.search(r"number_of_executed_units:\s*(\d+)", ran.stderr)
    assert executed is not None
    return int(executed.group(1))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_for_minutes(fuzzer: Path) -> None:
    assert run(fuzzer, 300) > 20_000
