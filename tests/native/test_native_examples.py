"""examples/native/ with an installation of onward: each is configured, built and run as a user
would, and gives the ids that Python gives for the same pack."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import onward
from builders.installation import ROOT, Installation, installed, run
from builders.packs import pack, tiny_pack
from builders.seeded_folder import write_seeded

EXAMPLES = ROOT / "examples" / "native"
PROMPTS = [[5, 17, 200], [9], [42] * 40, [7, 8, 9, 10]]
COUNT = 20

# The first test builds a wheel if none is installed.
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return installed(tmp_path_factory.mktemp("installation"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with a tokenizer and a template."""
    return tiny_pack(tmp_path_factory.mktemp("pack"))


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of a model that never ends an output."""
    folder = tmp_path_factory.mktemp("endless")
    pack(write_seeded(folder / "model"), folder / "endless.onward")
    return folder / "endless.onward"


Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(native: Installation, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The folder where an example is built, once for each set of options."""
    built: dict[tuple[str, ...], Path] = {}

    def build_(example: str, *options: str) -> Path:
        key = (example, *options)
        if key not in built:
            folder = tmp_path_factory.mktemp(example)
            source = ["-S", str(EXAMPLES / example), "-B", str(folder)]
            place = f"-Donward_DIR={native.cmake}"
            run(["cmake", *source, place, *options], native.environment)
            run(["cmake", "--build", str(folder)], native.environment)
            built[key] = folder
        return built[key]

    return build_


def words(ids: list[int]) -> list[str]:
    return [str(i) for i in ids]


def expected(model: Path, prompt: list[int], count: int = COUNT) -> list[int]:
    """The ids of a greedy run in Python, alone."""
    with onward.LLM(model, threads=2) as llm:
        return list(llm.generate(prompt, max_new_tokens=count, temperature=0).token_ids)


def from_lines(output: str) -> list[int]:
    return [int(line) for line in output.split("\n")[:-1]]


def by_prompt(output: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for line in output.split("\n")[:-1]:
        place, token = map(int, line.split(" "))
        found.setdefault(place, []).append(token)
    return found


class TestFinding:
    def test_the_files_are_where_python_says(self, native: Installation) -> None:
        assert (native.include / "onward" / "onward.h").is_file()
        assert (native.include / "onward" / "onward_c.h").is_file()
        assert (native.lib / "libonward.so").is_file()
        assert (native.cmake / "onwardConfig.cmake").is_file()
        assert native.include.parent == native.lib.parent

    def test_the_headers_are_those_of_the_source(self, native: Installation) -> None:
        source = ROOT / "csrc" / "include" / "onward"
        ours = {path.name: path.read_text() for path in source.iterdir()}
        assert {p.name: p.read_text() for p in (native.include / "onward").iterdir()} == ours

    def test_the_package_may_be_moved(self, native: Installation, tmp_path: Path) -> None:
        """No file for finding the package contains the folder of its installation."""
        for path in [*native.cmake.iterdir(), native.lib / "pkgconfig" / "onward.pc"]:
            assert str(native.lib.parent) not in path.read_text(), path
        moved = tmp_path / "moved"
        for part in (native.include, native.lib):
            shutil.copytree(part, moved / part.name)
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.20)\nproject(finder LANGUAGES C)\n"
            "find_package(onward 0.1 REQUIRED)\n"
            "get_target_property(place onward::onward INTERFACE_INCLUDE_DIRECTORIES)\n"
            'message(STATUS "found ${onward_VERSION} at ${place}")\n'
        )
        prefix = f"-DCMAKE_PREFIX_PATH={moved}"
        source = ["-S", str(tmp_path), "-B", str(tmp_path / "build")]
        said = run(["cmake", *source, prefix], native.environment)
        assert f"found {onward.__version__} at {moved}/include" in said

    def test_a_newer_major_version_is_not_found(self, native: Installation, tmp_path: Path) -> None:
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.20)\nproject(finder LANGUAGES C)\n"
            f"find_package(onward 9 QUIET PATHS {native.cmake} NO_DEFAULT_PATH)\n"
            'message(STATUS "found: ${onward_FOUND}")\n'
        )
        command = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build")]
        assert "found: 0" in run(command, native.environment)


class TestC:
    @pytest.mark.parametrize("prompt", PROMPTS, ids=len)
    def test_it_gives_the_ids_of_python(self, build: Build, model: Path, prompt: list[int]) -> None:
        command = [str(build("c") / "generate"), str(model), "-n", str(COUNT), *words(prompt)]
        assert from_lines(run(command)) == expected(model, prompt)

    def test_an_empty_text_begins_with_bos(self, build: Build, model: Path) -> None:
        with onward.LLM(model) as llm:
            bos = llm.tokenizer.bos_token_id
        assert bos is not None
        output = run([str(build("c") / "generate"), str(model), "-n", "5"])
        assert from_lines(output) == expected(model, [bos], 5)

    def test_a_file_that_is_not_a_pack_is_an_error(self, build: Build, tmp_path: Path) -> None:
        (tmp_path / "x.onward").write_bytes(b"\x00" * 100)
        command = [str(build("c") / "generate"), str(tmp_path / "x.onward")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "ONWARD_PACK_ERROR" in done.stderr

    @pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config here")
    def test_pkg_config_finds_what_it_needs(
        self, native: Installation, model: Path, tmp_path: Path
    ) -> None:
        places = {**native.environment, "PKG_CONFIG_PATH": str(native.lib / "pkgconfig")}
        asked = run(["pkg-config", "--cflags", "--libs", "onward"], places).split()
        assert run(["pkg-config", "--modversion", "onward"], places).strip() == onward.__version__
        libdir = run(["pkg-config", "--variable=libdir", "onward"], places).strip()
        program = str(tmp_path / "generate")
        source = str(EXAMPLES / "c" / "generate.c")
        run(["cc", "-std=c99", source, "-o", program, *asked, f"-Wl,-rpath,{libdir}"])
        output = run([program, str(model), "-n", str(COUNT), *words(PROMPTS[0])])
        assert from_lines(output) == expected(model, PROMPTS[0])


class TestCpp:
    def test_several_prompts_at_once_give_the_ids_of_each_alone(
        self, build: Build, model: Path
    ) -> None:
        prompts = [" ".join(words(prompt)) for prompt in PROMPTS]
        output = run([str(build("cpp") / "generate"), str(model), "-n", str(COUNT), *prompts])
        assert by_prompt(output) == {i: expected(model, p) for i, p in enumerate(PROMPTS)}

    def test_ctrl_c_ends_it(self, build: Build, endless: Path) -> None:
        command = [str(build("cpp") / "generate"), str(endless), "-n", "100000", "5", "6 7"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            first = child.stdout.readline()
            child.send_signal(signal.SIGINT)
            rest = child.stdout.read()
        assert child.returncode == 130
        found = by_prompt(first + rest)
        assert found
        for place, ids in found.items():
            assert ids == expected(endless, [[5], [6, 7]][place], len(ids))

    def test_errors_are_reported(self, build: Build, model: Path) -> None:
        command = [str(build("cpp") / "generate"), str(model), "5 999999"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "999999" in done.stderr

    @pytest.mark.slow
    def test_address_sanitizer_finds_nothing(self, build: Build, model: Path) -> None:
        """No error in the headers and the example, and no leak of memory of the library."""
        folder = build("cpp", "-DCMAKE_CXX_FLAGS=-fsanitize=address,undefined -g")
        output = run([str(folder / "generate"), str(model), "-n", "5", "5 17 200"])
        assert by_prompt(output) == {0: expected(model, PROMPTS[0], 5)}


class TestText:
    def test_an_answer_equals_python(self, native: Installation, build: Build, model: Path) -> None:
        done = subprocess.run(
            [str(build("text") / "chat"), str(model)],
            input="hello there\nand\n",
            capture_output=True,
            text=True,
            env=native.environment,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        with onward.LLM(model) as llm:
            options = {"max_new_tokens": 256, "temperature": 0}
            answers = [llm.chat(q, **options).text for q in ("hello there", "and")]
        assert done.stdout == "".join(answer + "\n" for answer in answers)


EXTENSION = """
import sys, threading, time
import onward, shared_engine
llm = onward.LLM(sys.argv[1])
prompt, options = [5, 17, 200], {"max_new_tokens": 400, "temperature": 0}
ticks, over = [0], threading.Event()
def tick():
    while not over.wait(0.001):
        ticks[0] += 1
beside = threading.Thread(target=tick)
beside.start()
ours = []
asking = threading.Thread(target=lambda: ours.append(llm.generate(prompt, **options)))
asking.start()
theirs = shared_engine.generate(llm.engine_handle(), prompt, 400)
seen = ticks[0]
asking.join(); over.set(); beside.join()
assert seen > 3, seen  # the interpreter lock was free
assert theirs == list(ours[0].token_ids) and len(theirs) == 400
assert list(llm.generate(prompt, **options).token_ids) == theirs
try:
    shared_engine.generate(llm.engine_handle(), [999999], 3)
except RuntimeError as error:
    assert "999999" in str(error)
else:
    raise AssertionError("expected an error")
try:
    shared_engine.generate(0, prompt, 3)
except RuntimeError as error:
    print(error)
"""


@pytest.fixture(scope="session")
def extension(native: Installation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the installed extension. The build is not given the path of onward."""
    folder = tmp_path_factory.mktemp("extension")
    # pip leaves a build folder in the source.
    source = shutil.copytree(EXAMPLES / "extension", folder / "source")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    flags = ["--no-build-isolation", "--no-deps", "--target", str(folder / "site")]
    run([*pip, *flags, str(source)], native.environment)
    return folder / "site"


@pytest.mark.slow
def test_an_extension_generates_on_the_engine_of_python(
    native: Installation, extension: Path, endless: Path
) -> None:
    path = f"{extension}:{native.environment.get('PYTHONPATH', '')}".rstrip(":")
    environment = {**native.environment, "PYTHONPATH": path}
    said = run([sys.executable, "-c", EXTENSION, str(endless)], environment)
    assert "null" in said


def test_ctypes_gives_the_ids_of_python(native: Installation, model: Path) -> None:
    script = str(EXAMPLES / "ctypes_caller.py")
    command = [sys.executable, script, str(model), *words(PROMPTS[0])]
    assert from_lines(run(command, native.environment)) == expected(model, PROMPTS[0], 32)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="no valgrind on this machine")
@pytest.mark.parametrize("example", ["c", "cpp"])
def test_valgrind_finds_nothing(
    native: Installation, build: Build, model: Path, example: str
) -> None:
    """The library too has no read of uninitialised or invalid memory, and no leak."""
    command = [
        str(build(example) / "generate"),
        str(model),
        "-n",
        "5",
        "5 17 200" if example == "cpp" else "5",
    ]
    flags = ["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite", "-q"]
    output = run(["valgrind", *flags, *command], {**native.environment, "ONWARD_CPU_ISA": "avx2"})
    ids = from_lines(output) if example == "c" else by_prompt(output)[0]
    assert ids == expected(model, [5] if example == "c" else PROMPTS[0], 5)


@pytest.mark.slow
def test_the_library_installs_without_python(model: Path, tmp_path: Path) -> None:
    """As a Linux distribution would build it, in the folders of the distribution."""
    prefix, tree = tmp_path / "usr", str(tmp_path / "build")
    run(["cmake", "-S", str(ROOT), "-B", tree, "-DCMAKE_INSTALL_LIBDIR=lib/multiarch"])
    run(["cmake", "--build", tree, "--parallel", str(os.cpu_count() or 1)])
    run(["cmake", "--install", tree, "--prefix", str(prefix)])
    files = {path.relative_to(prefix).as_posix() for path in prefix.rglob("*") if path.is_file()}
    assert {"include/onward/onward.h", "lib/multiarch/libonward.so"} <= files
    assert not [name for name in files if "_core" in name or name.endswith(".py")]
    example = str(tmp_path / "example")
    found = f"-Donward_DIR={prefix / 'lib' / 'multiarch' / 'cmake' / 'onward'}"
    run(["cmake", "-S", str(EXAMPLES / "c"), "-B", example, found])
    run(["cmake", "--build", example])
    output = run([f"{example}/generate", str(model), "-n", "5", *words(PROMPTS[0])])
    assert from_lines(output) == expected(model, PROMPTS[0], 5)
    pc = prefix / "lib" / "multiarch" / "pkgconfig" / "onward.pc"
    if shutil.which("pkg-config") is not None:
        asked = run(["pkg-config", "--cflags", str(pc)]).strip().removeprefix("-I")
        assert Path(asked).resolve() == prefix / "include"


def test_the_list_of_examples_is_complete() -> None:
    readme = (ROOT / "examples" / "README.md").read_text()
    names = [path.name for path in EXAMPLES.iterdir() if not path.name.startswith("__")]
    assert [name for name in names if f"(native/{name}" not in readme] == []
