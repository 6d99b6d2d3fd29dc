"""Measures decode while other processes are busy: does the speed fall more than the CPU time?

Threads that wait for each other lose more than their share when one of them is suspended. Rounds
alone and rounds with N processes that only count alternate. Each round reports tokens per second,
the CPU time that this process got, and tokens per second of that time.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from onward import _core
from onward.lab.bench.cases import Bench, Decode
from onward.lab.bench.plan import Case
from onward.lab.counts.costs import StepCosts
from onward.load.hub import find_model
from onward.load.loading import load_model
from onward.machine.progress import ProgressBar

COUNTING = "while True: pass"
WARM_S = 0.3


@dataclass(frozen=True)
class Round:
    busy: int
    tokens_per_s: float
    processors: float
    """CPU seconds per second that this process got."""

    @property
    def tokens_per_processor_s(self) -> float:
        return self.tokens_per_s / self.processors


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(engine: Bench, seconds: float, busy: int) -> Round:
    """Decode for `seconds` while `busy` other processes run."""
    others = [subprocess.Popen([sys.executable, "-c", COUNTING]) for _ in range(busy)]
    runs = Decode(engine, Case("decode", 1, 16), 16, watched=False)
    try:
        time.sleep(WARM_S if busy else 0)
        begin, before, tokens = time.perf_counter(), processor_seconds(), 0
        while (elapsed := time.perf_counter() - begin) < seconds:
            tokens += runs.run().tokens
        return Round(busy, tokens / elapsed, (processor_seconds() - before) / elapsed)
    finally:
        runs.close()
        for other in others:
            other.kill()
            other.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="default: SmolLM2-135M")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--busy", type=int, default=4, help="other processes; default: %(default)s")
    parser.add_argument("--threads", type=int, default=_core.default_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a round")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    loaded = load_model(find_model(arguments.model), arguments.dtype, arguments.threads)
    engine = Bench(loaded.core, StepCosts(loaded.spec, loaded.dtypes), arguments.threads, 1)
    rounds: list[Round] = []
    with ProgressBar("measuring") as progress:
        for index in range(arguments.rounds):
            for busy in (0, arguments.busy):
                rounds.append(measure(engine, arguments.seconds, busy))
            progress(index + 1, arguments.rounds)
    if arguments.json:
        print(json.dumps([asdict(each) for each in rounds]))
        return 0
    print(f"{loaded.files.name}, {loaded.dtypes.name}, {arguments.threads} threads, decode")
    print("others  tokens/s  cores it got  tokens per core second")
    for busy in (0, arguments.busy):
        of = [each for each in rounds if each.busy == busy]
        columns = (
            [each.tokens_per_s for each in of],
            [each.processors for each in of],
            [each.tokens_per_processor_s for each in of],
        )
        speed, given, each_second = map(statistics.median, columns)
        print(f"{busy:6}  {speed:8.1f}  {given:10.2f}  {each_second:8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
