"""Compiles the real CUDA library with nvcc against the tested onward, and reads the resources of
its kernels from the output of ptxas. It needs no GPU.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from builders.cuda_host import ROOT, native_package, run, tool_path
from onward.errors import NativeFilesNotFound

NVCC = shutil.which(os.environ.get("CUDACXX", "nvcc"))


@dataclass(frozen=True)
class Kernel:
    """The resources of one kernel on one architecture, from the output of ptxas."""

    name: str
    architecture: str
    registers: int
    spilled_bytes: int
    stack_bytes: int
    shared_bytes: int


def why_not() -> str:
    """The reason why it cannot be built here; empty: it can."""
    if NVCC is None:
        return "no nvcc on this machine"
    missing = [
        n for n in ("cmake", "ninja", "c++filt") if shutil.which(n, path=tool_path()) is None
    ]
    if missing:
        return f"no {' and no '.join(missing)} on this machine"
    try:
        native_package()
    except NativeFilesNotFound as error:
        return f"no installed onward to build against: {error}"
    return ""


def build(folder: Path, architectures: str) -> tuple[Path, list[Kernel]]:
    """Build libonward_cuda.so for these architectures; returns its kernels. Takes half a minute."""
    tree = folder / "cuda"
    configure = ["cmake", "-S", str(ROOT / "csrc" / "cuda"), "-B", str(tree), "-G", "Ninja"]
    options = ["-DONWARD_CUDA=ON", "-DONWARD_CUDA_HOST=OFF", "-DONWARD_CUDA_RESOURCES=ON"]
    options += [f"-DCMAKE_CUDA_COMPILER={NVCC}", f"-Donward_DIR={native_package()}"]
    if architectures:
        options.append(f"-DCMAKE_CUDA_ARCHITECTURES={architectures}")
    run([*configure, *options], tool_path())
    said = run(["cmake", "--build", str(tree)], tool_path())
    return tree / "gpu" / "real" / "libonward_cuda.so", kernels(said)


def kernels(said: str) -> list[Kernel]:
    """Read the output of `ptxas -v`: four lines for each kernel, in any order."""
    found = []
    for part in re.split(r"(?=Compiling entry function)", said)[1:]:
        heading = re.match(r"Compiling entry function '(\w+)' for '(\w+)'", part)
        assert heading is not None, part

        def count(pattern: str, text: str = part) -> int:
            match = re.search(rf"(\d+) {pattern}", text)
            return int(match[1]) if match else 0

        found.append(
            Kernel(
                name=heading[1],
                architecture=heading[2],
                registers=count("registers"),
                spilled_bytes=count("bytes spill stores") + count("bytes spill loads"),
                stack_bytes=count("bytes stack frame"),
                shared_bytes=count("bytes smem"),
            )
        )
    names = [kernel.name for kernel in found]
    plain = run(["c++filt", "-p", *names], tool_path()).splitlines() if names else []
    return [
        Kernel(short(name), *list(vars(kernel).values())[1:])
        for name, kernel in zip(plain, found, strict=True)
    ]


def short(name: str) -> str:
    """The name without namespaces: multiply_chains<4>, prepare_rows<Rows 3>."""
    name = re.sub(r"\(anonymous namespace\)::|onward::cuda::|_GLOBAL__N_\w+::", "", name)
    return re.sub(r"^void ", "", re.sub(r"\((\w+)\)", r"\1 ", name))


def table(found: list[Kernel]) -> str:
    rows = [("kernel", "arch", "registers", "spilled", "stack", "shared")]
    rows += [tuple(map(str, vars(kernel).values())) for kernel in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
