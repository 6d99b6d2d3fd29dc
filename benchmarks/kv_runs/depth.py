"""Time of a decode step by depth and kv dtype, for a published shape with random weights.

Every kv dtype has its own engine on the same weights. A round times all engines at a depth, in an
order that rotates by one. The time of attention is the time of the step minus the time of a step at
depth 16 in the same round. ``filling`` makes the depth, or a prompt of that length is read
(``--read``), once for each engine; later requests continue from the kept prefix.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import numpy as np

from kv_runs.filling import fill
from kv_runs.printing import say, show
from kv_runs.subjects import add_subject_arguments, make_subjects
from onward import _core
from onward.lab.bench.subject import Subject

SHALLOW = 16
WARM_STEPS = 3


@dataclass(frozen=True)
class Line:
    """The medians of one kv dtype at one depth."""

    kv_dtype: str
    depth: int
    step_ms: float
    attention_ms: float
    """The time of a step minus the time of a step at depth 16."""
    step_ratio: float
    """The step time of the first kv dtype divided by this one, in the same round; above 1 is
    faster."""
    attention_ratio: float | None
    """The same for the time of attention; None if it is within the noise of a round."""
    attention_ratio_min: float | None
    attention_ratio_max: float | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_arguments(
        parser, ["bf16", "int8", "turbo8v4", "q4_0", "turbo4", "turbo3", "turbo2"]
    )
    parser.add_argument("--depth", type=int, nargs="+", default=[128, 2048, 8192])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--steps", type=int, default=4, help="steps in a round; each is timed")
    parser.add_argument("--read", action="store_true", help="read the prompts, do not fill")


class Deep:
    """An engine with a kept prompt for every depth."""

    def __init__(self, subject: Subject, depths: list[int], read: bool) -> None:
        self.kv_dtype = subject.kv_dtype
        self._engine = _core.Engine(
            subject.core,
            threads=subject.threads,
            prefill_chunk_tokens=256,
            **subject.kv_arguments,
        )
        generator = np.random.default_rng(1)
        self._tokens = generator.integers(0, subject.spec.vocab_size, max(depths) + 1)
        self._read = read
        self._filled = -1

    def steps(self, depth: int, count: int) -> list[float]:
        """The seconds of `steps` steps that begin with `depth` tokens in the cache."""
        if depth != self._filled and not self._read and depth > SHALLOW:
            fill(self._engine, self._tokens[:depth].astype(np.int32))
            self._filled = depth
        request = self._engine.submit(
            self._tokens[: depth + 1].astype(np.int32),
            max_new_tokens=count + WARM_STEPS + 1,
            sampling=_core.SamplingOptions(),
        )
        try:
            found: list[_core.Event] = []
            while not found:
                found = self._engine.step()
            if not self._read and depth > SHALLOW and found[0].cached_tokens != depth:
                raise RuntimeError(f"{self.kv_dtype}: {found[0].cached_tokens} of {depth} kept")
            for _ in range(WARM_STEPS):
                self._engine.step()
            seconds = []
            for _ in range(count):
                began = time.perf_counter()
                self._engine.step()
                seconds.append(time.perf_counter() - began)
            return seconds
        finally:
            self._engine.cancel(request)


def run(arguments: argparse.Namespace) -> int:
    depths = [SHALLOW, *(depth for depth in arguments.depth if depth != SHALLOW)]
    engines = [Deep(each, depths, arguments.read) for each in make_subjects(arguments)]
    # By depth, then engine: one figure for each round. Depths are the outer loop, so that an engine
    # is filled once for each; every deep step is paired with a shallow step of the same engine.
    steps: dict[int, list[list[float]]] = {depth: [[] for _ in engines] for depth in depths}
    began = time.monotonic()
    shallow: dict[int, list[list[float]]] = {depth: [[] for _ in engines] for depth in depths}
    for depth in depths[1:] or depths:
        for index in range(arguments.rounds):
            for place in range(len(engines)):
                which = (place + index) % len(engines)
                deep = engines[which].steps(depth, arguments.steps)
                near = engines[which].steps(SHALLOW, arguments.steps)
                steps[depth][which].append(statistics.median(deep))
                shallow[depth][which].append(statistics.median(near))
            say(f"depth {depth}: round {index + 1}, {time.monotonic() - began:.0f} s")
    lines = [
        _line(engines[which].kv_dtype, depth, which, steps[depth], shallow[depth])
        for depth in (depths[1:] or depths)
        for which in range(len(engines))
    ]
    setting = {
        "model": f"synthetic {arguments.synthetic}",
        "dtype": arguments.dtype,
        "isa": _core.kernels.selected(),
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "cache": "read" if arguments.read else "filled",
    }
    show(setting, lines, _rows(lines), arguments.output)
    return 0


def _line(
    kv_dtype: str, depth: int, which: int, deep: list[list[float]], near: list[list[float]]
) -> Line:
    parts = [[a - b for a, b in zip(deep[k], near[k], strict=True)] for k in (0, which)]
    ratios = [first / own for first, own in zip(*parts, strict=True) if min(first, own) > 0]
    clear = len(ratios) == len(parts[0])
    step_ratios = [first / own for first, own in zip(deep[0], deep[which], strict=True)]
    return Line(
        kv_dtype,
        depth,
        1e3 * statistics.median(deep[which]),
        1e3 * statistics.median(parts[1]),
        statistics.median(step_ratios),
        statistics.median(ratios) if clear else None,
        min(ratios) if clear else None,
        max(ratios) if clear else None,
    )


def _rows(lines: list[Line]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("depth", "kv dtype", "ms a step", "of it attention", "step", "attention", "min", "max")
    ]
    for line in lines:
        rows.append(
            (
                f"{line.depth:,}",
                line.kv_dtype,
                f"{line.step_ms:.2f}",
                f"{line.attention_ms:.2f}",
                f"{line.step_ratio:.2f}",
                _ratio(line.attention_ratio),
                _ratio(line.attention_ratio_min),
                _ratio(line.attention_ratio_max),
            )
        )
    return rows


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
