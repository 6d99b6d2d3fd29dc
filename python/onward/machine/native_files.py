"""Where the headers, ``libonward.so`` and the CMake package of this installation are.

An installed wheel has them beside the Python files of the package. A source tree that is only on
the path has none of them, or only the library: then these functions raise an error instead of
returning a path that does not exist. Nothing heavy is imported, because build tools call this.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from onward.errors import NativeFilesNotFound


def get_include() -> str:
    """The folder for ``-I``: it holds ``onward/onward.h`` (C++) and ``onward/onward_c.h`` (C)."""
    return _found("get_include", "include", "onward/onward_c.h")


def get_lib_dir() -> str:
    """The folder for ``-L`` and ``-Wl,-rpath``: it holds ``libonward.so``."""
    name = "libonward.dylib" if sys.platform == "darwin" else "libonward.so"
    return _found("get_lib_dir", "lib", name)


def get_cmake_dir() -> str:
    """The folder for CMake's ``onward_DIR``: it holds ``onwardConfig.cmake``."""
    return _found("get_cmake_dir", "lib/cmake/onward", "onwardConfig.cmake")


def _found(where: str, folder: str, file: str) -> str:
    places = _places()
    for place in places:
        if (place / folder / file).is_file():
            return str(place / folder)
    missing = " or ".join(str(place / folder / file) for place in places)
    raise NativeFilesNotFound(
        f"onward.{where}: no {missing}, found a package that was not installed; expected one that "
        "pip has built (pip install .)"
    )


def _places() -> list[Path]:
    """The folder of the package; in an editable installation also the folder of the extension
    module."""
    places = [Path(__file__).parent.parent]
    core = find_spec("onward._core")
    if core is not None and core.origin is not None:
        place = Path(core.origin).parent
        if place not in places:
            places.append(place)
    return places
