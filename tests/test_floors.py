"""The shape of the house, read from every #include and import: who may know whom.

Floors of the core, lowest first. A file includes its own floor and lower ones:

    6 bindings, capi   5 engine   4 sampling   3 model, cache, pack, device   2 cpu, cuda
    1 backend, formats   0 base

and devices are opened by the bindings and the C interface alone; cpu and cuda know nothing of each
other. In the package, a
foundation is under the pieces, the pieces under ``LLM``, and that under the command line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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
FOUNDATION = {"errors", "spec", "message_text", "json_file", "file_contents"}
FACES = {
    "llm": 2,
    "default_llm": 3,
    "compare": 3,
    "cli": 4,
    "__main__": 5,
}  # 1: all other modules, the pieces
NAMELESS_ROOMS = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
CODE = {".py", ".pyi", ".cpp", ".h", ".inl", ".cu", ".cuh", ".cmake"}
TEXT = CODE | {".md", ".toml", ".yml", ".yaml", ".txt", ".sh", ".jinja"}
NOT_OURS = {"build", "dist", "__pycache__", "node_modules"}


def files(suffixes: set[str], root: Path = ROOT) -> Iterator[Path]:
    """Files of the repository with those suffixes, and those without any beside the root."""
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
    """(what is included, whether in quotes)."""
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

    def test_quoted_includes_are_files_of_ours_named_from_the_root(self):
        for path in core_files():
            for name, quoted in includes(path):
                if quoted:
                    found = (CORE / name).is_file() or (CORE / "include" / name).is_file()
                    assert found, f"{relative(path)} includes {name}"

    def test_the_public_headers_need_the_standard_library_only(self):
        for path in files({".h"}, CORE / "include"):
            for name, quoted in includes(path):
                own = name.startswith("onward/")
                standard = not quoted and "/" not in name and not name.endswith(".h")
                if path.name.endswith("_c.h"):
                    standard = name in ("stddef.h", "stdint.h")
                assert own or standard, f"{relative(path)} includes {name}"

    def test_only_the_top_names_a_device(self):
        for path in core_files():
            room = path.relative_to(CORE).parts[0]
            own = {"cpu/": ("cpu", "device", "bindings"), "cuda/": ("cuda",)}
            own["device/"] = ("device", "bindings", "capi")
            for target, rooms in own.items():
                named = [name for name, _ in includes(path) if name.startswith(target)]
                assert room in rooms or not named, f"{relative(path)} includes {named}"

    def test_only_the_pack_knows_the_json_library(self):
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

    def test_only_the_bindings_know_python(self):
        for path in core_files():
            if path.relative_to(CORE).parts[0] != "bindings":
                text = path.read_text()
                assert "pybind11" not in text, relative(path)
                assert "Python.h" not in text, relative(path)

    def test_instruction_set_files_share_no_bodies(self):
        """A shared inline function that one of them compiles with AVX-512 may survive the link. The
        generic one is compiled as everything else is, and may share."""
        for path in files({".cpp", ".inl"}, CORE / "cpu" / "isa"):
            if path.name == "generic.cpp":
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


def floor(room: str) -> int:
    return 0 if room in FOUNDATION else FACES.get(room, 1)


def imported_rooms(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Rooms of the package that a syntax tree imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            parts = (node.module or "").split(".")
            if parts[0] == "onward":
                yield from ((n, node) for n in ([parts[1]] if parts[1:] else names(node)))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("onward."):
                    yield alias.name.split(".")[1], node


def names(node: ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names]


class TestPackage:
    def test_no_import_goes_up(self):
        edges = 0
        for path in files({".py"}, PACKAGE):
            room = module_of(path)
            if room == "__init__":
                continue  # the door: it names what is behind it
            for target, _ in imported_rooms(ast.parse(path.read_text())):
                edges += 1
                assert floor(target) <= floor(room), f"{relative(path)} imports {target}"
        assert edges > 50

    def test_families_know_configs_and_nothing_else(self):
        for path in files({".py"}, PACKAGE / "architectures"):
            rooms = {room for room, _ in imported_rooms(ast.parse(path.read_text()))}
            assert rooms <= {"architectures", "errors", "spec", "message_text"}, relative(path)

    def test_python_does_no_arithmetic_with_torch(self):
        for path in files({".py"}, PACKAGE):
            for node in ast.walk(ast.parse(path.read_text())):
                modules = []
                if isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    modules = [node.module or ""]
                roots = {module.split(".")[0] for module in modules}
                assert not roots & {"torch", "transformers", "tensorflow", "jax"}, relative(path)

    def test_few_touch_the_core(self):
        touching = {
            module_of(path)
            for path in files({".py"}, PACKAGE)
            for room, _ in imported_rooms(ast.parse(path.read_text()))
            if room == "_core"
        }
        known = {"__init__", "llm", "loading", "driver", "generation", "engine_options"}
        known |= {"device_list"}
        assert touching <= known | {"cli", "bench", "compare", "quantization"}


class TestFiles:
    def test_no_source_file_is_long(self):
        lengths = {relative(p): len(p.read_text().splitlines()) for p in files(CODE)}
        assert len(lengths) > 80
        assert {name: n for name, n in lengths.items() if n > LINES_AT_MOST} == {}

    def test_every_room_has_a_name_of_its_own(self):
        for path in files(CODE):
            parts = path.relative_to(ROOT).with_suffix("").parts
            stems = {word for part in parts for word in part.lower().split("_")}
            assert not stems & NAMELESS_ROOMS, relative(path)

    @pytest.mark.parametrize("place", ["/work", "/root", "/home", "/Users", "/mnt"])
    def test_no_file_names_a_place_on_somebodys_machine(self, place):
        pattern = re.compile(rf"(?<![\w.]){place}/\w")
        for path in [*files(TEXT), ROOT / "Makefile", ROOT / ".ci" / "run"]:
            if path != Path(__file__):
                found = pattern.search(path.read_text(errors="replace"))
                assert not found, f"{relative(path)}: {found}"

    def test_code_opens_with_what_it_is_for(self):
        """A module's docstring; a comment at the top of a header, or of a C++ file without one."""
        for path in files({".py"}, PACKAGE):
            text = path.read_text()
            assert not text.strip() or ast.get_docstring(ast.parse(text)), relative(path)
        for path in core_files():
            has_header = path.suffix == ".cpp" and path.with_suffix(".h").exists()
            comment = path.read_text().startswith(("//", "/*"))
            assert has_header or comment, relative(path)
