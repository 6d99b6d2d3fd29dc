"""The CUDA kernels compiled for the processor, for the tests that run them without a GPU.

Where nobody has said where that library is (ONWARD_CUDA_HOST_LIBRARY) and none lies beside
libonward, it is built once, by the standalone project csrc/cuda against the onward that the tests
run with, and kept in build/: the next session compiles what has changed. Processes that test side
by side wait for the one that builds. Knows no kernel.
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
    """Makes the device "cuda-host" known to this process and its children; else why it cannot."""
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
    """``pytestmark = needs_cuda_host()``: skips, with the reason, where it cannot be had."""
    reason = why_not()
    return pytest.mark.skipif(bool(reason), reason=reason)


def native_package() -> Path:
    """The folder of onwardConfig.cmake; as for CMake, the variable onward_DIR comes first."""
    named = os.environ.get(CMAKE_VARIABLE)
    return Path(named) if named else Path(onward.get_cmake_dir())


def tool_path() -> str:
    """PATH with what pip has put beside this Python: cmake and ninja."""
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
    """Its output; the test session ends where it fails, with what the tool said."""
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
