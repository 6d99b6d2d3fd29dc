"""Builds the CUDA kernels for the CPU, for tests without a GPU.

If ONWARD_CUDA_HOST_LIBRARY is not set and there is no such library next to libonward, the
standalone project csrc/cuda is built once against the tested onward. The build is kept in build/,
so the next session compiles only changes. Parallel test processes wait for the one that builds.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import onward
from onward.errors import NativeFilesNotFound

ROOT = Path(__file__).parent.parent.parent
VARIABLE = "ONWARD_CUDA_HOST_LIBRARY"
CMAKE_VARIABLE = "onward_DIR"
NAME = "libonward_cuda_host.so"


@functools.cache
def why_not() -> str:
    """Make the device "cuda-host" available to this process and its children; returns the reason if
    this is impossible."""
    named = os.environ.get(VARIABLE)
    if named:
        return "" if Path(named).is_file() else f"{VARIABLE}: {named} is not there"
    if not sys.platform.startswith("linux"):
        return "the CUDA kernels are built for the processor on Linux alone"
    if any(device.name == "cuda-host" and device.ready for device in onward.devices()):
        return ""
    try:
        package = native_package()
    except NativeFilesNotFound as error:
        return f"no installed onward to build the CUDA kernels against: {error}"
    tools = tool_path()
    missing = [name for name in ("cmake", "c++") if shutil.which(name, path=tools) is None]
    if missing:
        return f"no {' and no '.join(missing)} on this machine"
    os.environ[VARIABLE] = str(built(package, tools))
    return ""


def needs_cuda_host() -> pytest.MarkDecorator:
    """``pytestmark = needs_cuda_host()``: skips the tests with the reason if it is not
    available."""
    reason = why_not()
    return pytest.mark.skipif(bool(reason), reason=reason)


def native_package() -> Path:
    """The folder of onwardConfig.cmake. As in CMake, the variable onward_DIR has priority."""
    named = os.environ.get(CMAKE_VARIABLE)
    return Path(named) if named else Path(onward.get_cmake_dir())


def tool_path() -> str:
    """PATH with the folder of this Python, where pip has installed cmake and ninja."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def built(package: Path, tools: str) -> Path:
    folder = ROOT / "build" / "cuda_host_tests"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tree = folder / "tree"
        against = (package / "onwardTargets.cmake").stat()
        key = f"{package} {against.st_mtime_ns} {against.st_size}"
        stamp = folder / "against"
        if not stamp.is_file() or stamp.read_text() != key:
            shutil.rmtree(tree, ignore_errors=True)
            make = ["-G", "Ninja"] if shutil.which("ninja", path=tools) else []
            configure = ["cmake", "-S", str(ROOT / "csrc" / "cuda"), "-B", str(tree), *make]
            options = ["-DONWARD_CUDA=OFF", "-DONWARD_CUDA_HOST=ON", f"-Donward_DIR={package}"]
            run([*configure, *options, "-DCMAKE_BUILD_TYPE=Release"], tools)
            stamp.write_text(key)
        run(["cmake", "--build", str(tree), "--parallel", str(os.cpu_count() or 1)], tools)
        return tree / "gpu" / "host" / NAME


def run(command: list[str], tools: str) -> str:
    """Run a command and return its output. If it fails, the test session ends with its output."""
    inherited = {k: v for k, v in os.environ.items() if k != "ONWARD_CUDA"}
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**inherited, "PATH": tools},
        timeout=1200,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-8000:]}")
    return done.stdout
