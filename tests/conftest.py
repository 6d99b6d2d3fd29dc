"""Common fixtures of the tests: models that are closed after a test, Python in a child process, and
the devices that some tests need.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
LONGEST_FILES = (
    *("test_smollm2.py", "test_cuda_engine.py", "test_examples.py", "test_hub_server.py"),
    *("test_kv_check.py", "test_docs.py", "test_chat_terminal.py", "test_neon_compiles.py"),
    *("test_cuda_codes.py", "test_quantize_models.py", "test_memory.py"),
)
"""They run first, so that no process has one of them left at the end."""


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C raise KeyboardInterrupt here and in children, even if the parent of pytest ignores
    it. A shell starts background jobs in this way, and ``nohup`` may do so."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collect_file(file_path: Path) -> None:
    """Build the CUDA kernels for the CPU first (builders/cuda_host.py), because files named
    test_cuda_* may check for them when they are imported."""
    if file_path.name.startswith("test_cuda_") and "cuda-host" in file_path.read_text("utf-8"):
        from builders import cuda_host

        cuda_host.why_not()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the longest files to the front. Skip tests marked ``cuda`` with the reason if there is
    no GPU."""
    items.sort(key=lambda item: item.path.name not in LONGEST_FILES)
    marked = [item for item in items if item.get_closest_marker("cuda") is not None]
    if not marked:
        return
    import onward

    found = [device for device in onward.devices() if device.name.startswith("cuda:")]
    if any(device.ready for device in found):
        return
    reason = found[0].why_not if found else "this build has no CUDA"
    for item in marked:
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def open_llm() -> Iterator[Callable[..., Any]]:
    """Opens an ``onward.LLM`` (float32 by default) and closes it after the test."""
    from onward import LLM

    opened: list[LLM] = []

    def open_(model: Any, **options: Any) -> LLM:
        opened.append(LLM(model, **{"dtype": "f32", **options}))
        return opened[-1]

    yield open_
    for llm in opened:
        llm.close()


@pytest.fixture(scope="session")
def counter_model() -> Any:
    """A model of the core whose token after i is i + 1."""
    from builders.counting_engine import counting_model

    return counting_model()


@pytest.fixture
def counter_engine(counter_model: Any) -> Iterator[Any]:
    """An engine of this model, which is closed after the test."""
    from builders.counting_engine import counting_engine

    engine = counting_engine(counter_model)
    yield engine
    engine.close()


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python source in a child process that can import the modules of tests/.

    The child may take ``timeout`` seconds; its output is text. ``environment`` is added to the
    present one.
    """

    def run(
        source: str, *arguments: object, timeout: float = 60, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", source, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "PYTHONPATH": search_path(), **environment},
            check=False,
        )

    return run


def search_path() -> str:
    """Return PYTHONPATH for children: tests/ and its rooms first, then the inherited value."""
    rooms = sorted({str(path.parent) for path in HERE.glob("*/test_*.py")})
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(HERE), *rooms, *([inherited] if inherited else [])])


@pytest.fixture
def child_environment() -> dict[str, str]:
    """The environment for children that a test starts itself."""
    return {**os.environ, "PYTHONPATH": search_path()}
