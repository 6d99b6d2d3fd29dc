"""The public headers: each compiles by itself, in each of its languages, without a warning, and
defines no other macro."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

INCLUDE = Path(__file__).parents[2] / "csrc" / "include"
HEADERS = sorted(path.name for path in (INCLUDE / "onward").glob("*.h"))
CXX = os.environ.get("CXX", "c++")
WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wshadow",
    "-Werror",
]


def run(source: str, compiler: str, language: str, *flags: str) -> str:
    """The stdout of the compiler. Fails the test if the compiler reports anything."""
    done = subprocess.run(
        [compiler, "-x", language, f"-I{INCLUDE}", *flags, "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def macros(source: str) -> set[str]:
    text = run(source, CXX, "c++", "-std=c++17", "-dM", "-E")
    return set(re.findall(r"^#define (\w+)", text, re.MULTILINE))


def test_the_list_of_headers_is_not_empty() -> None:
    assert {"onward.h", "onward_c.h", "model.h", "engine.h", "request.h", "error.h"} <= {*HEADERS}


@pytest.mark.parametrize("standard", ["c++17", pytest.param("c++20", marks=pytest.mark.slow)])
@pytest.mark.parametrize("header", HEADERS)
def test_each_compiles_alone(header: str, standard: str) -> None:
    source = f"#include <onward/{header}>\n#include <onward/{header}>\n"
    run(source, CXX, "c++", f"-std={standard}", "-fsyntax-only", *WARNINGS)


@pytest.mark.skipif(shutil.which("clang++") is None, reason="no clang++ on this machine")
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_clang_gives_no_warning(standard: str) -> None:
    source = "#include <onward/onward.h>\n"
    run(source, "clang++", "c++", f"-std={standard}", "-fsyntax-only", *WARNINGS)


def test_the_c_interface_is_c99() -> None:
    flags = ["-std=c99", "-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Wstrict-prototypes"]
    source = "#include <onward/onward_c.h>\nint main(void) { return (int)ONWARD_OK; }\n"
    run(source, CXX, "c", *flags, "-Werror")


def test_all_macros_have_the_prefix_of_the_project() -> None:
    """The C header has a macro for visibility and its guard. The C++ headers have none."""
    standard = re.findall(
        r"#include <(\w+)>", "".join((INCLUDE / "onward" / h).read_text() for h in HEADERS)
    )
    plain = "".join(f"#include <{name}>\n" for name in {*standard})
    plain += "#include <stddef.h>\n#include <stdint.h>\n"
    ours = macros(plain + "#include <onward/onward.h>\n") - macros(plain)
    assert ours == {"ONWARD_C_H", "ONWARD_API"}


@pytest.mark.parametrize("standard", [pytest.param("c++17", marks=pytest.mark.slow), "c++20"])
def test_two_files_of_one_program_may_include_them(standard: str, tmp_path: Path) -> None:
    """Nothing is defined twice, and only the C interface needs linking."""
    objects = []
    for name in ("one", "two"):
        objects.append(tmp_path / f"{name}.o")
        source = f"""
            #include <onward/onward.h>
            int {name}(std::uintptr_t handle) {{
              auto engine = onward::Engine::from_handle(handle);
              engine.submit(onward::Request({{1, 2}})
                  .max_new_tokens(3)
                  .score_rule([](auto tokens, auto scores) {{ scores[tokens.size()] = 0; }})
                  .end_rule([](auto tokens) {{ return tokens.size() > 5; }}));
              engine.run([](const onward::Event& event) {{ event.throw_if_failed(); }});
              engine.set_trace([](const onward::StepTrace&) {{}});
              return static_cast<int>(engine.score({{1}}).size() + engine.logits({{1}}).size());
            }}
        """
        run(source, CXX, "c++", f"-std={standard}", "-c", "-o", str(objects[-1]), *WARNINGS)
    joined = tmp_path / "joined.o"
    subprocess.run([CXX, "-r", "-nostdlib", *objects, "-o", joined], check=True)
    names = subprocess.run(
        ["nm", "--undefined-only", "--format=posix", joined],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    needed = {line.split()[0] for line in names.splitlines()}
    onwards = {name for name in needed if "onward" in name}
    assert {"onward_engine_step", "onward_engine_close", "onward_last_error"} <= onwards
    assert onwards <= declared()


def declared() -> set[str]:
    """Functions of the C header."""
    text = (INCLUDE / "onward" / "onward_c.h").read_text()
    return set(re.findall(r"\b(onward_\w+)\(", text))


def test_std_span_accepts_a_span() -> None:
    source = """
        #include <onward/span.h>
        #include <span>
        int first(std::span<const int> values) { return values[0]; }
        int main() {
          int values[] = {7, 8};
          onward::Span<const int> span(values, 2);
          return first(span) + static_cast<int>(span.size());
        }
    """
    run(source, CXX, "c++", "-std=c++20", "-fsyntax-only", *WARNINGS)


@pytest.mark.parametrize("document", ["README.md", "docs/native.md"])
def test_the_cpp_of_the_documents_compiles(document: str) -> None:
    """Statements go into a function, after the names that a reader would define."""
    text = (INCLUDE.parent.parent / document).read_text(encoding="utf-8")
    blocks = re.findall(r"```cpp\n(.*?)```", text, re.DOTALL)
    blocks = [block for block in blocks if "PYBIND11" not in block]
    assert blocks
    for block in blocks:
        lines = block.split("\n")
        includes = [line for line in lines if line.startswith("#include")]
        body = [line for line in lines if line not in includes]
        source = "\n".join(
            [
                *includes,
                "#include <onward/onward.h>",
                "static std::vector<std::int32_t> ids;",
                "static void print(std::int32_t) {}",
                "int main() { (void)ids; (void)print;",
                *body,
                "}",
            ]
        )
        run(source, CXX, "c++", "-std=c++17", "-fsyntax-only", "-Wall", "-Werror")
