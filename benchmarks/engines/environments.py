"""Creates a virtual environment for each engine once, because their requirements may conflict.

A complete environment contains the list of its packages. If the list has changed, the environment
is created again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from engines.contest import Absent

SHOWN_LINES = 3  # of a log, after a failure


@dataclass(frozen=True)
class Environment:
    """The packages for pip, and the CMake options for building them."""

    name: str
    packages: tuple[str, ...]
    cmake: str = ""
    unwanted: str = ""
    """A package that the others install, but that does not work with them."""

    @property
    def recipe(self) -> str:
        return "\n".join([*self.packages, self.cmake, self.unwanted])


LLAMA_CPP = ("llama-cpp-python==0.3.36", "gguf==0.19.0")
ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("llama.cpp-native", LLAMA_CPP, "-DGGML_NATIVE=ON"),
        Environment(
            "llama.cpp-avx2",
            LLAMA_CPP,
            "-DGGML_NATIVE=OFF -DGGML_AVX512=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON",
        ),
        Environment("ctranslate2", ("ctranslate2==4.8.5", "gguf==0.19.0")),
        Environment("transformers", ("transformers==5.24.0", "torch==2.13.0")),
        Environment(
            "openvino",
            ("openvino-genai==2026.4.1.0", "optimum-intel==2.2.0", "nncf==3.4.0", "torch==2.13.0"),
            unwanted="torchvision",  # its build must match torch, and it is not needed here
        ),
    )
}


def ensure(environment: Environment, work: Path) -> Path:
    """The Python of the environment. Raises Absent with the error of pip."""
    folder = work / "environments" / environment.name
    python, stamp = folder / "bin" / "python", folder / "made-from.txt"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == environment.recipe:
        return python
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    variables = dict(os.environ)
    install = [str(python), "-m", "pip", "install", *environment.packages]
    if environment.cmake:
        # A ready wheel, or a wheel from an earlier build, may be for other instructions.
        variables["CMAKE_ARGS"] = environment.cmake
        install += ["--no-cache-dir", "--no-binary", environment.packages[0].partition("==")[0]]
    commands = [[sys.executable, "-m", "venv", str(folder)], install]
    if environment.unwanted:
        commands.append([str(python), "-m", "pip", "uninstall", "--yes", environment.unwanted])
    with log.open("w", encoding="utf-8") as out:
        for command in commands:
            status = subprocess.run(
                command, env=variables, stdout=out, stderr=subprocess.STDOUT, check=False
            ).returncode
            if status:
                raise Absent(
                    f"{environment.name}: pip or venv ended with {status}, expected 0: {tail(log)}"
                )
    stamp.write_text(environment.recipe, encoding="utf-8")
    return python


def tail(log: Path) -> str:
    """The last lines of a log that are not empty, joined."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return " / ".join([line.strip() for line in lines if line.strip()][-SHOWN_LINES:])
