"""The stubs in ``_core`` and the built module have the same names and parameters."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import onward_kernels
import pytest

import onward
from onward import _core

FOLDER = Path(onward.__file__).with_name("_core")
KERNELS = Path(__file__).parents[1] / "kernel_module" / "onward_kernels.pyi"
MODULES = {"__init__": _core, "kernels": _core.kernels, "onward_kernels": onward_kernels}
# Names that pybind11 and Python add to every module or class.
BORN_WITH = re.compile(r"__(?!init__|version__).*__|_pybind11_conduit_v1_")

ATTRIBUTES_OF_TABLES = {
    name: [row["name"] for table in tables for row in _core.generation_options()[table]]
    for name, tables in {
        "SamplingOptions": ("draw", "scores", "others"),
        "BeamOptions": ("beams",),
    }.items()
}

each_module = pytest.mark.parametrize("name", MODULES)


def parsed(name: str) -> ast.Module:
    path = KERNELS if name == "onward_kernels" else FOLDER / f"{name}.pyi"
    return ast.parse(path.read_text(encoding="utf-8"))


def test_every_module_has_a_stub() -> None:
    stubs = {path.stem for path in (*FOLDER.glob("*.pyi"), KERNELS)}
    assert stubs == set(MODULES)


def parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    names = [argument.arg for argument in arguments.args]
    if arguments.kwonlyargs:
        names += ["*", *(argument.arg for argument in arguments.kwonlyargs)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return [name for name in names if name != "self"]


def built_parameters(doc: str) -> list[str]:
    """Parameter names from the first line of a docstring that pybind11 wrote."""
    inside = re.search(r"\((.*)\)", doc.splitlines()[0])
    assert inside is not None, doc
    text = inside[1]
    while "[" in text:  # types in brackets hold commas of their own
        text = re.sub(r"\[[^\[\]]*\]", "", text)
    names = [part.partition(":")[0].strip() for part in text.split(",") if part.strip()]
    return [name for name in names if name != "self"]


def members(owner: object) -> dict[str, object]:
    return {name: value for name, value in vars(owner).items() if not BORN_WITH.fullmatch(name)}


@each_module
def test_the_module_has_the_names_of_the_stub(name: str) -> None:
    names = set()
    for node in parsed(name).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.asname == alias.name}
    assert names == set(members(MODULES[name]))


@each_module
def test_functions_have_the_parameters_of_the_stub(name: str) -> None:
    for node in parsed(name).body:
        if isinstance(node, ast.FunctionDef):
            built = built_parameters(getattr(MODULES[name], node.name).__doc__)
            assert parameters(node) == built, node.name


def test_classes_have_the_members_and_parameters_of_the_stub() -> None:
    for node in parsed("__init__").body:
        if not isinstance(node, ast.ClassDef):
            continue
        owner = getattr(_core, node.name)
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
        built = members(owner)
        fields = [ast.unparse(i.target) for i in node.body if isinstance(i, ast.AnnAssign)]
        if "NamedTuple" in map(ast.unparse, node.bases):
            assert tuple(fields) == owner.__match_args__, node.name
            built = {name: built[name] for name in built if callable(built[name])}
            fields = []
        if "__getattr__" in {method.name for method in methods}:  # attributes are rows of a table
            methods = [m for m in methods if m.name not in ("__getattr__", "__setattr__")]
            fields += ATTRIBUTES_OF_TABLES[node.name]
        for field in fields:
            assert isinstance(built.pop(field), property), f"{node.name}.{field}"
        if "__init__" not in {method.name for method in methods}:
            built.pop("__init__", None)
        assert {method.name for method in methods} == set(built), node.name
        for method in methods:
            where = f"{node.name}.{method.name}"
            if any(ast.unparse(d).endswith(("property", ".setter")) for d in method.decorator_list):
                assert isinstance(built[method.name], property), where
            else:
                doc = getattr(owner, method.name).__doc__
                assert parameters(method) == built_parameters(doc), where
