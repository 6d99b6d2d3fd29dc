"""Checks the structure of the code by every #include and import: which room may use which.

Floors of the core. A file includes only files of its own floor and of lower floors:

    6 bindings, capi   5 engine   4 sampling   3 model, cache, pack, device   2 cpu, cuda
    1 backend, formats   0 base

Only the bindings and the C interface open devices. cpu and cuda do not include each other.

Floors of the package. A module imports only its own floor and lower floors. No two modules import
each other, directly or through other modules:

    10 __main__  9 cli  8 lab  7 llm, default_llm, engine_options, text_calls  6 sessions
    5 calls, quantization  4 load  3 text  2 options  1 files, machine
    0 errors, message_text, spec
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import onward

ROOT = Path(__file__).parents[2]
CORE, PACKAGE = ROOT / "csrc", ROOT / "python" / "onward"
LINES_AT_MOST = 500
FLOORS = {
    "base": 0,
    "backend": 1,
    "formats": 1,
    "cpu": 2,
    "cuda": 2,
    "device": 3,
    "model": 3,
    "pack": 3,
    "cache": 3,
    "sampling": 4,
    "engine": 5,
    "bindings": 6,
    "capi": 6,
}
PACKAGE_FLOORS = {
    "errors": 0,
    "message_text": 0,
    "spec": 0,
    "_core": 0,
    "files": 1,
    "machine": 1,
    "options": 2,
    "text": 3,
    "load": 4,
    "calls": 5,
    "quantization": 5,
    "sessions": 6,
    "engine_options": 7,
    "text_calls": 7,
    "llm": 7,
    "default_llm": 7,
    "lab": 8,
    "cli": 9,
    "__main__": 10,
}
MODULES_AT_THE_TOP = 8  # besides __init__ and __main__
NAMELESS_ROOMS = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
CODE = {".py", ".pyi", ".cpp", ".h", ".inl", ".cu", ".cuh", ".cmake"}
TEXT = CODE | {".md", ".toml", ".yml", ".yaml", ".txt", ".sh", ".jinja"}
NOT_OURS = {"build", "dist", "__pycache__", "node_modules"}


def files(suffixes: set[str], root: Path = ROOT) -> Iterator[Path]:
    """Files of the repository with one of ``suffixes``, and files without a suffix in the root."""
    for path in sorted(root.iterdir()):
        if path.name in NOT_OURS or (path.name.startswith(".") and path.name != ".ci"):
            continue
        if path.is_dir():
            yield from files(suffixes, path)
        elif path.suffix in suffixes:
            yield path


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def includes(path: Path) -> list[tuple[str, bool]]:
    """(included file, whether in quotes) of each #include."""
    found = re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', path.read_text(), re.MULTILINE)
    return [(name, quote == '"') for quote, name in found]


def core_files() -> list[Path]:
    return list(files({".cpp", ".h", ".inl", ".cu"}, CORE))


class TestCore:
    def test_every_room_has_a_floor(self):
        rooms = {path.relative_to(CORE).parts[0] for path in core_files()}
        assert len(rooms) >= 8
        assert rooms <= {*FLOORS, "include"}, "a new room: give it a floor here"

    def test_no_include_goes_up(self):
        edges = 0
        for path in core_files():
            room = path.relative_to(CORE).parts[0]
            for name, quoted in includes(path):
                target = name.split("/")[0]
                if not quoted or target not in FLOORS:
                    continue
                edges += 1
                assert room != "include", f"{relative(path)} includes {name}"
                assert FLOORS[target] <= FLOORS[room], f"{relative(path)} includes {name}"
        assert edges > 50

    def test_quoted_includes_are_files_of_the_project_named_from_the_root(self):
        for path in core_files():
            for name, quoted in includes(path):
                if quoted:
                    found = (CORE / name).is_file() or (CORE / "include" / name).is_file()
                    assert found, f"{relative(path)} includes {name}"

    def test_the_public_headers_need_only_the_standard_library(self):
        for path in files({".h"}, CORE / "include"):
            for name, quoted in includes(path):
                own = name.startswith("onward/")
                standard = not quoted and "/" not in name and not name.endswith(".h")
                if path.name.endswith("_c.h"):
                    standard = name in ("stddef.h", "stdint.h")
                assert own or standard, f"{relative(path)} includes {name}"

    def test_only_the_bindings_and_the_c_interface_open_devices(self):
        for path in core_files():
            room = path.relative_to(CORE).parts[0]
            own = {"cpu/": ("cpu", "device", "bindings"), "cuda/": ("cuda",)}
            own["device/"] = ("device", "bindings", "capi")
            for target, rooms in own.items():
                named = [name for name, _ in includes(path) if name.startswith(target)]
                assert room in rooms or not named, f"{relative(path)} includes {named}"

    def test_only_the_pack_uses_the_json_library(self):
        naming = {
            relative(path)
            for path in core_files()
            for name, _ in includes(path)
            if name.startswith("nlohmann")
        }
        assert naming == {"csrc/pack/json_text.h"}
        for path in core_files():
            if path.relative_to(CORE).parts[0] != "pack":
                assert ("pack/json_text.h", True) not in includes(path), relative(path)

    def test_only_the_bindings_use_python(self):
        for path in core_files():
            if path.relative_to(CORE).parts[0] != "bindings":
                text = path.read_text()
                assert "pybind11" not in text, relative(path)
                assert "Python.h" not in text, relative(path)

    def test_instruction_set_files_share_no_bodies(self):
        """The linker keeps one copy of a shared inline function, perhaps that of an AVX-512 file.
        The generic files have the same compiler flags as other code, and may share functions."""
        for path in files({".cpp", ".inl", ".h"}, CORE / "cpu" / "isa"):
            if path.parent.name == "generic":
                continue
            ours = {name for name, quoted in includes(path) if quoted}
            others = {n for n in ours if n != "cpu/kernels.h" and not n.startswith("cpu/isa/")}
            assert not others, f"{relative(path)} includes {others}"

    def test_intrinsics_stay_in_their_room(self):
        for path in core_files():
            if "immintrin.h" in path.read_text() and "cpu/isa" not in relative(path):
                # The pool's pause instruction is the one exception.
                assert relative(path) == "csrc/base/thread_pool.cpp"
                assert re.findall(r"_mm\w*", path.read_text()) == ["_mm_pause"]


def module_of(path: Path) -> str:
    """Room of a module: its first name below the package."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def name_of(path: Path) -> str:
    """Dotted name of a module, ``onward`` for the package itself."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in files({".py"}, PACKAGE)}


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Dotted names of all imports from the package in a syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            if module.split(".")[0] == "onward":
                for alias in node.names:
                    longer = f"{module}.{alias.name}"
                    yield longer if longer in MODULES or module == "onward" else module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("onward."))


def imported_rooms(path: Path) -> set[str]:
    """Rooms of the package that a module imports."""
    return {name.split(".")[1] for name in imported_modules(ast.parse(path.read_text()))}


class TestPackage:
    def test_every_room_has_a_floor(self):
        assert {module_of(path) for path in MODULES.values()} - {"__init__"} <= {*PACKAGE_FLOORS}

    def test_no_import_goes_up(self):
        edges = 0
        for path in MODULES.values():
            room = module_of(path)
            if room == "__init__":
                continue  # it names the public classes and functions of all rooms
            for target in imported_rooms(path) - {*onward.__all__} | {"errors"}:
                edges += 1
                lower = PACKAGE_FLOORS[target] <= PACKAGE_FLOORS[room]
                assert lower, f"{relative(path)} imports {target}"
        assert edges > 50

    def test_no_modules_import_each_other(self):
        """Imports inside functions and for type checking count too."""
        imports = {
            name: {n for n in imported_modules(ast.parse(path.read_text())) if n in MODULES}
            for name, path in MODULES.items()
            if name != "onward"
        }
        order = TopologicalSorter(imports)
        order.prepare()  # CycleError names the modules

    def test_few_modules_lie_at_the_top(self):
        top = {p.stem for p in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
        assert len(top) <= MODULES_AT_THE_TOP, top

    def test_families_use_only_configs(self):
        for path in files({".py"}, PACKAGE / "load" / "architectures"):
            for name in imported_modules(ast.parse(path.read_text())):
                rooms = ("onward.load.architectures", "onward.errors", "onward.message_text")
                assert name.startswith((*rooms, "onward.spec")), f"{relative(path)} imports {name}"

    def test_python_does_no_arithmetic_with_torch(self):
        for path in MODULES.values():
            for node in ast.walk(ast.parse(path.read_text())):
                modules = []
                if isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    modules = [node.module or ""]
                roots = {module.split(".")[0] for module in modules}
                assert not roots & {"torch", "transformers", "tensorflow", "jax"}, relative(path)

    def test_few_rooms_use_the_core(self):
        users = {module_of(p) for p in MODULES.values() if "_core" in imported_rooms(p)}
        rooms = {"machine", "options", "load", "calls", "quantization", "llm", "lab", "cli"}
        assert users <= {"__init__"} | rooms


class TestFiles:
    def test_no_source_file_is_long(self):
        lengths = {relative(p): len(p.read_text().splitlines()) for p in files(CODE)}
        assert len(lengths) > 80
        assert {name: n for name, n in lengths.items() if n > LINES_AT_MOST} == {}

    def test_no_room_has_a_vague_name(self):
        for path in files(CODE):
            parts = path.relative_to(ROOT).with_suffix("").parts
            stems = {word for part in parts for word in part.lower().split("_")}
            assert not stems & NAMELESS_ROOMS, relative(path)

    @pytest.mark.parametrize("place", ["/work", "/root", "/home", "/Users", "/mnt"])
    def test_no_file_names_a_path_of_a_developers_machine(self, place):
        pattern = re.compile(rf"(?<![\w.]){place}/\w")
        for path in [*files(TEXT), ROOT / "Makefile", ROOT / ".ci" / "run"]:
            if path != Path(__file__):
                found = pattern.search(path.read_text(errors="replace"))
                assert not found, f"{relative(path)}: {found}"

    def test_every_file_opens_with_its_purpose(self):
        """A module has a docstring. A header, or a C++ file without a header, has a comment at the
        top."""
        for path in files({".py"}, PACKAGE):
            text = path.read_text()
            assert not text.strip() or ast.get_docstring(ast.parse(text)), relative(path)
        for path in core_files():
            has_header = path.suffix == ".cpp" and path.with_suffix(".h").exists()
            comment = path.read_text().startswith(("//", "/*"))
            assert has_header or comment, relative(path)
