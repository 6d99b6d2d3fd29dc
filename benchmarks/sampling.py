"""Milliseconds of one sampling step on one core, for two sizes of vocabulary.

It calls the sampler without a model. The logits are normal with a deviation of 3 and a few peaks,
or flatter. Cases take turns within each round, so that other load of the machine affects all of
them equally. The smallest figure of a case is the least disturbed one.

It needs onward_kernels, which ``make install`` builds.

    python benchmarks/sampling.py [--rounds 20] [--steps 20] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onward_kernels
from numpy.typing import NDArray

from onward import _core

VOCAB_SIZES = (49_152, 128_256)
PROMPT_TOKENS = 1000
ROWS = 8
"""The number of different rows of logits that the steps of a case use in turn."""
FULL_CHAIN: dict[str, float] = {
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.1,
    "temperature": 0.8,
    "top_n_sigma": 4.0,
    "top_p": 0.95,
    "min_p": 0.02,
    "typical_p": 0.95,
    "epsilon_cutoff": 1e-4,
    "eta_cutoff": 1e-4,
    "xtc_probability": 0.5,
}


def peaked(generator: np.random.Generator, size: int) -> NDArray[np.float64]:
    """A few tokens are much more likely than the others."""
    logits = 3 * generator.standard_normal(size)
    logits[generator.integers(0, size, 4)] = [15, 17, 18, 20]
    return logits


def spread(generator: np.random.Generator, size: int) -> NDArray[np.float64]:
    """A nucleus of some thousand tokens."""
    return 3 * generator.standard_normal(size)


def flat(generator: np.random.Generator, size: int) -> NDArray[np.float64]:
    """A nucleus of most of the vocabulary."""
    return generator.standard_normal(size)


@dataclass(frozen=True)
class Case:
    name: str
    logits: Callable[[np.random.Generator, int], NDArray[np.float64]]
    options: dict[str, float]


NUCLEUS = {"temperature": 1.0, "top_p": 0.9, "min_p": 0.02}
CASES = (
    Case("greedy", peaked, {"temperature": 0.0}),
    Case("temperature 1", spread, {"temperature": 1.0}),
    Case("top_p .9, min_p .02, peaked", peaked, NUCLEUS),
    Case("top_p .9, min_p .02, spread", spread, NUCLEUS),
    Case("top_p .9, min_p .02, flat", flat, NUCLEUS),
    Case("full chain, top_k 50", spread, {**FULL_CHAIN, "top_k": 50}),
    Case("full chain, top_k 50, logprobs 5", spread, {**FULL_CHAIN, "top_k": 50, "logprobs": 5}),
    Case("full chain, no top_k, spread", spread, FULL_CHAIN),
    Case("full chain, no top_k, flat", flat, FULL_CHAIN),
)


@dataclass(frozen=True)
class Line:
    """One case: milliseconds per step, from the medians of its rounds."""

    case: str
    vocab_size: int
    median: float
    smallest: float
    largest: float


def sampling_options(options: dict[str, float]) -> _core.SamplingOptions:
    result = _core.SamplingOptions()
    for name, value in options.items():
        setattr(result, name, value)
    return result


def measure(rounds: int, steps: int) -> dict[str, Any]:
    """Run all rounds on the first core that this process may use."""
    processor = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processor})
    generator = np.random.default_rng(0)
    places = [(case, size) for size in VOCAB_SIZES for case in CASES]
    logits = [
        np.array([case.logits(generator, size) for _ in range(ROWS)], np.float32)
        for case, size in places
    ]
    prompt = generator.integers(0, min(VOCAB_SIZES), PROMPT_TOKENS).tolist()
    times: list[list[float]] = [[] for _ in places]
    for _ in range(rounds):
        for (case, _size), rows, found in zip(places, logits, times, strict=True):
            options = sampling_options(case.options)
            # Skip the first steps of a round, because the CPU caches contain data of the previous
            # case.
            seconds = onward_kernels.sampler_seconds(rows, options, prompt, steps + 3)[3:]
            found.append(1e3 * statistics.median(seconds))
    lines = [
        Line(case.name, size, statistics.median(found), min(found), max(found))
        for (case, size), found in zip(places, times, strict=True)
    ]
    return {
        "isa": _core.kernels.selected(),
        "rounds": rounds,
        "steps": steps,
        "lines": [asdict(line) for line in lines],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20, help="steps of a case in each round")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    report = measure(arguments.rounds, arguments.steps)
    if arguments.json:
        print(json.dumps(report, indent=2))
        return
    print(f"{report['isa']}, one core, {report['rounds']} rounds of {report['steps']} steps\n")
    print("| ms/step | vocabulary | median | (min to max) |")
    print("|---|---|---|---|")
    for line in report["lines"]:
        print(
            f"| {line['case']} | {line['vocab_size']} | {line['median']:.3f} | "
            f"({line['smallest']:.3f} to {line['largest']:.3f}) |"
        )


if __name__ == "__main__":
    main()
