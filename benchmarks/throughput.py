"""Throughput of many requests of mixed length at once, compared with other engines.

Every engine answers the same list of 1, 4, 16 and 64 requests (prompts of 16 to 256 tokens, outputs
of 16 to 128, greedy), in turns, round after round, with the same number of threads. On a shared
machine absolute figures change, so each ratio is taken within a round, and its spread over the
rounds is shown. Before that, all engines must continue a few texts equally in float32.

    python benchmarks/throughput.py [--rounds 5] [--requests 1 4 16 64] [-o text|md|json]

On a machine with other users, ``--patience 60`` waits for a quiet moment before each run, and
``--threads 1 --clock cpu`` counts CPU time, which does not include waiting.

llama-cpp-python and ctranslate2 are used if they are installed; otherwise a message says how to
install them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from engines import ctranslate2, llama_cpp
from engines.contest import Absent, Contestant, Request, mixed_requests
from engines.neighbours import Neighbours, wait_for_quiet
from engines.onward_calls import Onward
from engines.source_model import SourceModel
from engines.tables import aligned
from engines.tables import markdown as markdown_table

from onward import _core
from onward.load.hub import find_model

WORK = Path(__file__).parent / ".peers"
# Threads of an engine that has just finished spin for up to 200 ms.
PAUSE_S = 0.3
SERIAL_REQUESTS = 8
CHECK_TOKENS = 16
CHECK_TEXTS = (
    "The capital of France is",
    "def fibonacci(n):\n",
    "Water boils at",
    "Once upon a time there was a small dragon who",
)

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Rules:
    """The settings of all measurements."""

    rounds: int
    clock: str
    patience_s: float
    make: Callable[[int], list[Request]]
    """Makes the given number of requests."""


@dataclass(frozen=True)
class Line:
    """One engine at one number of requests, over all rounds."""

    requests: int
    engine: str
    way: str
    tokens_per_s: float
    """Output tokens per second, the median; the time includes reading the prompts."""
    tokens_per_s_min: float
    tokens_per_s_max: float
    seconds: float
    """The seconds of all requests, the median."""
    onward_ratio: float
    """The speed of onward in the same round divided by this speed, the median."""
    onward_ratio_min: float
    onward_ratio_max: float
    others_share: float
    """The share of the cores that other processes took, the median."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def output_rate(contestant: Contestant, requests: Sequence[Request], clock: str) -> float:
    """Output tokens per second of one run; every request must get its number of tokens."""
    read = CLOCKS[clock]
    started = read()
    outputs = contestant.run(requests)
    seconds = read() - started
    for request, output in zip(requests, outputs, strict=True):
        if len(output) != request.new_tokens:
            raise RuntimeError(
                f"{contestant.name}: gave {len(output)} tokens, expected {request.new_tokens}"
            )
    return sum(request.new_tokens for request in requests) / seconds


def compete(contestants: Sequence[Contestant], count: int, rules: Rules) -> list[Line]:
    """Measure all contestants in turns, round after round; the first one is onward."""
    # The mean length does not depend on the count, so the rate of a serial engine does not, either.
    lists = [rules.make(min(count, SERIAL_REQUESTS) if c.serial else count) for c in contestants]
    ways = []
    for contestant, requests in zip(contestants, lists, strict=True):
        way = contestant.prepare(requests, CLOCKS[rules.clock])
        ways.append(way if len(requests) == count else f"{way}, {len(requests)} of them")
        say(f"{count} requests: {contestant.name}: {ways[-1]}")
        time.sleep(PAUSE_S)
    rates: list[list[float]] = [[] for _ in contestants]
    others: list[list[float]] = [[] for _ in contestants]
    for index in range(rules.rounds):
        for contestant, requests, past, busy in zip(contestants, lists, rates, others, strict=True):
            wait_for_quiet(rules.patience_s)
            neighbours = Neighbours()
            past.append(output_rate(contestant, requests, rules.clock))
            busy.append(neighbours.share())
            time.sleep(PAUSE_S)
        last = ", ".join(f"{c.name} {r[-1]:.1f}" for c, r in zip(contestants, rates, strict=True))
        say(f"{count} requests: round {index + 1}/{rules.rounds}: {last} tokens/s")
    total = sum(request.new_tokens for request in rules.make(count))
    lines = []
    for contestant, way, past, busy in zip(contestants, ways, rates, others, strict=True):
        ratios = [own / other for own, other in zip(rates[0], past, strict=True)]
        lines.append(
            Line(
                requests=count,
                engine=contestant.name,
                way=way,
                tokens_per_s=statistics.median(past),
                tokens_per_s_min=min(past),
                tokens_per_s_max=max(past),
                seconds=total / statistics.median(past),
                onward_ratio=statistics.median(ratios),
                onward_ratio_min=min(ratios),
                onward_ratio_max=max(ratios),
                others_share=statistics.median(busy),
            )
        )
    return lines


def same_model(
    names: Sequence[str], source: SourceModel, threads: int, context: int
) -> tuple[list[str], list[str]]:
    """Compare the float32 continuations of a few texts with onward's; returns findings and
    warnings."""
    own = Onward(source.path, "f32", threads)
    requests = [Request(own.tokenize(text), CHECK_TOKENS) for text in CHECK_TEXTS]
    expected = own.run(requests)
    own.close()
    makers: dict[str, Callable[[], Contestant]] = {
        "llama.cpp": lambda: llama_cpp.LlamaCpp(source, "F32", threads, context),
        "CTranslate2": lambda: ctranslate2.CTranslate2(source, "float32", threads),
    }
    findings, warnings = [], []
    for name in names:
        try:
            peer = makers[name]()
        except Absent:
            continue
        outputs = peer.run(requests)
        peer.close()
        same = sum(output == own for output, own in zip(outputs, expected, strict=True))
        finding = (
            f"{name} in float32 continues {same} of {len(requests)} texts with the {CHECK_TOKENS} "
            "tokens that onward f32 gives"
        )
        (findings if same == len(requests) else warnings).append(finding)
    return findings, warnings


def llama_cpps(source: SourceModel, threads: int, context: int) -> Iterator[Contestant]:
    for weights in ("BF16", "as shipped"):
        yield llama_cpp.LlamaCpp(source, weights, threads, context)


def ctranslate2s(source: SourceModel, threads: int, context: int) -> Iterator[Contestant]:
    for compute_type in ctranslate2.compute_types():
        yield ctranslate2.CTranslate2(source, compute_type, threads)


PEERS = {"llama.cpp": llama_cpps, "CTranslate2": ctranslate2s}


def find_peers(
    names: Sequence[str], source: SourceModel, threads: int, context: int
) -> tuple[list[Contestant], list[str]]:
    """The installed engines, and a message for each missing one."""
    found: list[Contestant] = []
    absent = []
    for name in names:
        try:
            found += PEERS[name](source, threads, context)
        except Absent as reason:
            absent.append(f"{name} is absent: {reason}")
    return found, absent


def table(lines: Sequence[Line], markdown: bool) -> str:
    """One row per engine and number of requests."""
    rows = [("requests", "engine", "way", "tokens/s", "seconds", "onward / engine", "others")]
    for line in lines:
        ratio = f"{line.onward_ratio:.2f} "
        ratio += f"({line.onward_ratio_min:.2f} to {line.onward_ratio_max:.2f})"
        if line.engine.startswith("onward"):
            ratio = ""
        figures = (
            f"{line.tokens_per_s:.1f}",
            f"{line.seconds:.1f}",
            ratio,
            f"{line.others_share:.0%}",
        )
        rows.append((str(line.requests), line.engine, line.way, *figures))
    return markdown_table(rows) if markdown else aligned(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default=None, help="a .gguf file; default: SmolLM2")
    parser.add_argument(
        "--dtype", default="auto", choices=["auto", "f32", "bf16"], help="dtype of onward"
    )
    parser.add_argument("--threads", type=int, default=_core.default_threads())
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, nargs=2, default=[16, 256], help="tokens, from to")
    parser.add_argument("--new", type=int, nargs=2, default=[16, 128], help="tokens, from to")
    parser.add_argument("--work", type=Path, default=WORK, help="folder for converted weights")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS), help="cpu: one thread")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds")
    parser.add_argument("--no-check", action="store_true", help="do not compare continuations")
    parser.add_argument("-o", "--output", default="text", choices=["text", "md", "json"])
    parser.add_argument("--json", action="store_const", dest="output", const="json")
    arguments = parser.parse_args()

    files = find_model(arguments.model)
    if files.kind != "gguf":
        parser.error(f"--model: {files.path} is a folder, expected a .gguf file")
    if arguments.clock == "cpu" and arguments.threads != 1:
        parser.error("--clock cpu: counts threads that wait as work, expected --threads 1")
    source = SourceModel(files.path, arguments.work)
    context = -(-(arguments.prompt[1] + arguments.new[1]) // 256) * 256
    findings: list[str] = []
    warnings: list[str] = []
    if not arguments.no_check:
        findings, warnings = same_model(arguments.peers, source, arguments.threads, context)
        for warning in warnings:
            say(f"WARNING: not the same model? {warning}")
    peers, absent = find_peers(arguments.peers, source, arguments.threads, context)
    own = Onward(source.path, arguments.dtype, arguments.threads)
    contestants = [own, *peers]
    for text in [*findings, *absent, *(contestant.setting for contestant in contestants)]:
        say(text)

    def make(count: int) -> list[Request]:
        return mixed_requests(count, arguments.prompt, arguments.new, own.vocab_size)

    rules = Rules(arguments.rounds, arguments.clock, arguments.patience, make)
    lines: list[Line] = []
    for count in arguments.requests:
        lines += compete(contestants, count, rules)
    report = {
        "model": files.name,
        "isa": _core.kernels.selected(),
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "clock": arguments.clock,
        "prompt_tokens": arguments.prompt,
        "new_tokens": arguments.new,
        "engines": {contestant.name: contestant.setting for contestant in contestants},
        "absent": absent,
        "same_model": findings,
        "warnings": warnings,
    }
    if arguments.output == "json":
        print(json.dumps({**report, "lines": [asdict(line) for line in lines]}, indent=2))
        return
    print(
        f"{files.name}, {report['isa']}, {arguments.threads} threads, {arguments.rounds} rounds, "
        f"{arguments.clock} clock; "
        "prompts of {} to {} tokens, outputs of {} to {}\n".format(
            *arguments.prompt, *arguments.new
        )
    )
    print(table(lines, arguments.output == "md"))
    for text in [*findings, *(f"WARNING: {warning}" for warning in warnings), *absent]:
        print(f"\n{text}")


if __name__ == "__main__":
    main()
