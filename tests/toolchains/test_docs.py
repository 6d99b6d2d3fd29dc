"""The documents are correct: links lead to files and headings, options are explained, named tests
exist.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from onward.options.table import OPTIONS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#:]+)\)", text)  # except the lambdas of C++
    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_headings(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", text)
    missing = [
        (file, heading)
        for file, heading in links
        if heading not in _headings(document.parent / file if file else document)
    ]
    assert missing == []


def _headings(document: Path) -> set[str]:
    """The anchors of a document, in the spelling of GitHub."""
    text = re.sub(r"(?ms)^```.*?^```", "", document.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_option_is_explained() -> None:
    text = (ROOT / "docs/generation.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", text, re.MULTILINE)
    rows = re.findall(r"\w+", " ".join(first_cells))
    assert set(rows) >= {option.name for option in OPTIONS}


def test_the_python_of_the_readme_runs() -> None:
    """The block runs unchanged, without any extra."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    absent = "import sys; sys.modules.update(huggingface_hub=None, llguidance=None, gguf=None)\n"
    source = absent + source
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "gravity" in run.stdout.lower()


@pytest.mark.parametrize("name", ["command_line_doc.py", "families_doc.py"])
def test_a_written_page_is_up_to_date(name: str) -> None:
    """The flags equal the parser's, and the families the files'; a script writes the page."""
    script = ROOT / "scripts" / name
    run = subprocess.run(
        [sys.executable, str(script), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, ""), f"python scripts/{name}"


def test_the_page_on_faults_names_tests_that_exist() -> None:
    text = (ROOT / "docs/faults.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!input \|).*\|$", text, re.MULTILINE)
    named = [re.findall(r"`(tests/\w+/\w+\.py(?:::\w+)*)`", row) for row in rows]
    assert [row for row, tests in zip(rows, named, strict=True) if not tests] == []
    tests = {test for row in named for test in row}
    assert len(rows) > 50 and {test for test in tests if test not in _tests_of(test)} == set()


def _tests_of(test: str) -> set[str]:
    """The names of pytest in the file of `test`: the file, its classes and its tests."""
    path = test.partition("::")[0]
    if not (ROOT / path).is_file():
        return set()
    found = {path}
    pending: list[tuple[str, ast.AST]] = [(path, ast.parse((ROOT / path).read_bytes()))]
    while pending:
        where, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef) and child.name.startswith("Test"):
                found.add(f"{where}::{child.name}")
                pending.append((f"{where}::{child.name}", child))
            elif isinstance(child, ast.FunctionDef) and child.name.startswith("test_"):
                found.add(f"{where}::{child.name}")
    return found
