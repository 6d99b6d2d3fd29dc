"""The exported symbols of libonward.so: the C interface, which is the same in the header, the
version script and the library; the symbols for the extension module; and no others."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import onward_kernels
import pytest

from builders.c_interface import FUNCTIONS, LIBRARY
from onward import _core

MAP = Path(__file__).parents[2] / "cmake" / "libonward.map"
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="symbol versions are ELF's"),
    pytest.mark.skipif(shutil.which("nm") is None, reason="no nm here"),
]


def symbols(library: Path | str, *options: str) -> list[tuple[str, str, str]]:
    """(name, version, type) of each dynamic symbol."""
    run = subprocess.run(
        ["nm", "-D", *options, str(library)], capture_output=True, text=True, check=True, timeout=60
    )
    found = []
    for line in run.stdout.splitlines():
        kind, name = line.split(maxsplit=2)[-2:] if line[0] != " " else line.split(maxsplit=1)
        name, _, version = name.partition("@")
        found.append((name, version.lstrip("@"), kind))
    return found


def exported() -> list[tuple[str, str, str]]:
    """The symbols without the names of versions."""
    return [symbol for symbol in symbols(LIBRARY, "--defined-only") if symbol[2] != "A"]


def demangled(names: list[str]) -> list[str]:
    run = subprocess.run(
        ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True, timeout=60
    )
    return run.stdout.splitlines()


def test_the_header_and_the_version_script_list_the_public_functions() -> None:
    public = sorted(name for name, version, _ in exported() if version == "ONWARD_1")
    node = re.search(r"ONWARD_1 \{(.*?)\};", MAP.read_text(encoding="utf-8"), re.DOTALL)
    assert node is not None
    script = re.findall(r"^\s*(\w+);$", node[1].partition("local:")[0], re.MULTILINE)
    assert public == sorted(FUNCTIONS)
    assert script == public, "in order, one a line"
    assert len(public) > 20
    assert {kind for _, version, kind in exported() if version == "ONWARD_1"} == {"T"}


@pytest.mark.skipif(shutil.which("c++filt") is None, reason="no c++filt here")
def test_all_other_symbols_are_private() -> None:
    others = [(name, version) for name, version, _ in exported() if version != "ONWARD_1"]
    assert {version for _, version in others} == {"ONWARD_PRIVATE"}
    about = r"(typeinfo (name )?for |vtable for |guard variable for |VTT for )?"
    for name in demangled([name for name, _ in others]):
        assert re.match(rf"{about}onward::", name), name


@pytest.mark.parametrize("module", [_core, onward_kernels], ids=lambda module: module.__name__)
def test_extension_modules_use_only_the_exported_symbols(module: ModuleType) -> None:
    taken = {
        (name, version)
        for name, version, kind in symbols(str(module.__file__), "--undefined-only")
        if kind in "UwV" and (version.startswith("ONWARD") or "onward" in name.lower())
    }
    assert len(taken) > 20
    assert taken <= {(name, version) for name, version, _ in exported()}
