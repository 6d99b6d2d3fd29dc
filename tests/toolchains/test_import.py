"""``import onward``: fast, lazy, quiet."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

import onward

Run = Callable[..., "subprocess.CompletedProcess[str]"]

PROBE = """
import json, sys, threading, time
started = time.perf_counter()
import onward
seconds = time.perf_counter() - started
with open("/proc/self/status") as status:
    threads = next(int(line.split()[1]) for line in status if line.startswith("Threads:"))
print(json.dumps({"seconds": seconds, "threads": threads, "python": threading.active_count(),
                  "modules": sorted(sys.modules)}))
"""


def test_import_is_fast_and_starts_no_thread(run_python: Run) -> None:
    runs = []
    for _ in range(3):
        done = run_python(PROBE)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        runs.append(json.loads(done.stdout))
    assert min(run["seconds"] for run in runs) < 0.2
    assert {run["threads"] for run in runs} == {1}
    loaded = set(runs[0]["modules"])
    heavy = {"numpy", "tokenizers", "jinja2", "safetensors", "gguf", "huggingface_hub"}
    assert not heavy & loaded
    assert "onward._core" not in loaded


def test_every_exported_name_exists() -> None:
    for name in onward.__all__:
        assert getattr(onward, name) is not None
        assert name in dir(onward)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'generat'"):
        _ = onward.generat


def test_version_and_cache_bytes_come_from_the_core() -> None:
    assert onward.__version__.count(".") == 2
    assert onward.kv_cache_bytes(32, 8, 128, 1, 2) == 131072


@pytest.mark.parametrize(
    "first",
    [
        "import onward",
        "import onward.llm",
        "from onward.llm import LLM",
        "import onward.text.template.template",
    ],
)
def test_onward_chat_is_the_function_whatever_was_imported_first(
    run_python: Run, first: str
) -> None:
    done = run_python(f"{first}\nimport onward\nonward.generate\nprint(callable(onward.chat))")
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_errors_are_where_they_are_expected() -> None:
    assert issubclass(onward.errors.ModelNotFound, onward.Error)
    assert onward.Error is onward.errors.Error
