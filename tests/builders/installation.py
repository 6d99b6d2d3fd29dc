"""An installed onward for native programs: the tested one, or a wheel that is built here.

If the tests run on a source tree, a wheel is built once, without isolation if this Python has the
build requirements. The wheel is unpacked into a folder, and this Python is not changed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import onward
from onward.errors import NativeFilesNotFound

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Installation:
    """The folders of the native files, and the environment in which ``import onward`` finds
    them."""

    include: Path
    lib: Path
    cmake: Path
    environment: dict[str, str]

    def onward(self, *arguments: str) -> str:
        """The stdout of an onward command."""
        return run([sys.executable, "-m", "onward", *arguments], self.environment)


def of(environment: dict[str, str]) -> Installation:
    """The installation that a Python of that environment imports."""
    command = [sys.executable, "-m", "onward", "--include-dir", "--lib-dir", "--cmake-dir"]
    include, lib, cmake = map(Path, run(command, environment).split("\n")[:3])
    return Installation(include, lib, cmake, environment)


def installed(folder: Path) -> Installation:
    """The installation of this process; otherwise one below ``folder``."""
    try:
        onward.get_cmake_dir()
        onward.get_include()
        environment = dict(os.environ)
        tools = Path(sys.executable).parent
    except NativeFilesNotFound:
        site = unpacked_wheel(folder)
        environment = {**os.environ, "PYTHONPATH": str(site)}
        tools = site / "bin"
    places = [str(tools), str(Path(sys.executable).parent), environment.get("PATH", "")]
    return of({**environment, "PATH": os.pathsep.join(places)})


def unpacked_wheel(folder: Path) -> Path:
    """A folder for the path of Python, with a wheel of the source tree in it."""
    site = folder / "site"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    has_tools = all(map(importlib.util.find_spec, ("scikit_build_core", "pybind11")))
    isolation = ["--no-build-isolation"] if has_tools else []
    run([*pip, "install", "--no-deps", *isolation, "--target", str(site), str(ROOT)])
    return site


def run(
    command: list[str], environment: dict[str, str] | None = None, timeout: float = 1200
) -> str:
    """The stdout of a command that must succeed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        check=False,
        cwd=Path(
            __file__
        ).anchor,  # a folder where Python does not find the package of the source tree
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout
