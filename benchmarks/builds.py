"""Compares the speed of two builds of onward in one interleaved run.

    python benchmarks/builds.py --old ../onward-old/python [--new python] [--rows decode prefill]
    python benchmarks/builds.py --old ../onward-old/python --against old   # shows the noise

Each folder holds a package with its core. Both builds load the same model, each in a process of its
own, and run the same requests in turns; the waiting process sleeps. A ratio is old time / new time,
so that a figure below 1 means that the new build is slower. The table has the ratio of the best
times and the median ratio of the rounds. Only public calls are used. ``--against old`` runs the old
build twice; its ratios show how far this machine's noise reaches.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHILD = """
import json, sys, time
import numpy as np
import onward
row = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
prompts = [rng.integers(100, 40000, row["prompt"], dtype=np.int32).tolist()
           for _ in range(row["batch"])]
options = {"temperature": 0.0, **row["options"]}
with onward.LLM(row["model"], dtype=row["dtype"], kv_dtype=row["kv_dtype"],
                threads=row["threads"], prefix_cache=False) as llm:
    llm.generate(prompts[0][:64], max_new_tokens=4, ignore_eos=True)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        llm.generate(prompts, max_new_tokens=row["tokens"], ignore_eos=True, **options)
        print(time.perf_counter() - start, flush=True)
"""


@dataclass(frozen=True)
class Row:
    """One kind of request: `batch` prompts of `prompt` tokens, `tokens` new tokens for each."""

    name: str
    dtype: str
    prompt: int
    tokens: int
    batch: int = 1
    kv_dtype: str = "auto"
    threads: int = 2
    options: dict[str, Any] | None = None
    rounds: int = 15


DTYPES = ("f32", "bf16", "int8", "int4")
SAMPLING = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 1}
ROWS = (
    *(Row(f"decode {dtype}", dtype, 8, 96) for dtype in DTYPES),
    *(Row(f"prefill 512 {dtype}", dtype, 512, 1) for dtype in DTYPES),
    *(Row(f"batch of {n} {dtype}", dtype, 8, 48, n) for n in (4, 8) for dtype in ("bf16", "int8")),
    Row("8 prompts of 64, int8", "int8", 64, 1, 8),
    Row("1 thread int8", "int8", 64, 32, threads=1),
    Row("32 threads int8", "int8", 64, 32, threads=32),
    Row("top_k, top_p int8", "int8", 8, 96, options=SAMPLING),
    Row("short answers int8", "int8", 8, 4, rounds=31),
    *(Row(f"4,096 tokens int8, {kv}", "int8", 4096, 32, kv_dtype=kv, rounds=3)
      for kv in ("auto", "f32", "int8", "turbo4")),
)  # fmt: skip


class Build:
    """A process that runs the requests of one row with the package in one folder."""

    def __init__(self, folder: Path, row: Row, model: str | None) -> None:
        task = {**asdict(row), "options": row.options or {}, "model": model}
        self._process = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(task)],
            env={**os.environ, "PYTHONPATH": str(folder.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the child process ended with {self._process.wait()}")
        return line

    def seconds(self) -> float:
        """The wall time of one request."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        self._process.communicate()


def ratios(row: Row, old: Path, new: Path, model: str | None) -> tuple[float, float]:
    """Old time / new time: of the best times, and the median over the rounds."""
    builds = [Build(folder, row, model) for folder in (old, new)]
    times: list[list[float]] = []
    for round_index in range(row.rounds):
        order = (0, 1) if round_index % 2 == 0 else (1, 0)
        seconds = {index: builds[index].seconds() for index in order}
        times.append([seconds[0], seconds[1]])
    for build in builds:
        build.close()
    best_old, best_new = (min(column) for column in zip(*times, strict=True))
    return best_old / best_new, statistics.median(a / b for a, b in times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", type=Path, required=True, help="folder of the old package")
    parser.add_argument("--new", type=Path, default=Path("python"), help="default: %(default)s")
    parser.add_argument("--against", choices=("new", "old"), default="new", help="default: new")
    parser.add_argument("--model", help="default: the default model")
    parser.add_argument("--rows", nargs="*", default=[""], help="beginnings of the names of rows")
    arguments = parser.parse_args()
    new = arguments.old if arguments.against == "old" else arguments.new
    worst = 9.0
    print("| row | best / best | median |\n|---|---|---|")
    for row in ROWS:
        if not row.name.startswith(tuple(arguments.rows)):
            continue
        best, median = ratios(row, arguments.old, new, arguments.model)
        worst = min(worst, best)
        print(f"| {row.name} | {best:.3f} | {median:.3f} |", flush=True)
    print(f"slowest row: {worst:.3f}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
