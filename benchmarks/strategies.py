"""The time of a decoding strategy compared with a plain batch of the same arithmetic.

Beam search with 4 beams computes the same as a batch of 4 greedy requests, and also ranks and
forks. Four samples of one prompt read it once. A grammar needs a mask before every token.
Speculation guesses tokens. Each round times the strategy between two runs of the plain batch, so
that slow changes of the machine do not affect the ratio.

    python benchmarks/strategies.py [--model MODEL] [--dtype bf16] [--rounds 7] [--json]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

import onward

PROMPT_TOKENS = 64
OUTPUT_TOKENS = 64
WORDS = "The quick brown fox jumps over the lazy dog while the small cat sleeps near the old door. "


@dataclass(frozen=True)
class Line:
    """The seconds of a strategy divided by the seconds of its plain batch, over all rounds."""

    strategy: str
    yardstick: str
    ratio_median: float
    ratio_min: float
    ratio_max: float
    note: str = ""


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(
    strategy: str,
    run: Callable[[], object],
    yardstick: str,
    other: Callable[[], object],
    rounds: int,
    note: Callable[[], str] = lambda: "",
) -> Line:
    """Time ``run`` between two runs of ``other``, ``rounds`` times."""
    run()
    ratios = []
    for index in range(rounds):
        print(f"\r{strategy}: round {index + 1}/{rounds} ", end="", file=sys.stderr)
        before = seconds(other)
        took = seconds(run)
        ratios.append(took / ((before + seconds(other)) / 2))
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    median = statistics.median(ratios)
    return Line(strategy, yardstick, median, min(ratios), max(ratios), note())


def measure(model: str | None, dtype: str, threads: int | None, rounds: int) -> dict[str, object]:
    """Load the model and run all rounds; returns machine, settings and lines."""
    # Every run must read its prompt again.
    with onward.LLM(model, dtype=dtype, threads=threads, prefix_cache=False) as llm:
        rng = np.random.default_rng(0)
        prompt = rng.integers(0, llm.spec.vocab_size, PROMPT_TOKENS).tolist()
        fixed = {"max_new_tokens": OUTPUT_TOKENS, "ignore_eos": True}

        def batch_of_4() -> object:
            return llm.generate([prompt[k:] + prompt[:k] for k in range(4)], **fixed)

        def alone() -> object:
            return llm.generate(prompt, **fixed)

        def beams(count: int) -> Callable[[], object]:
            return lambda: llm.generate(prompt, num_beams=count, **fixed)

        repeated = llm.tokenize(WORDS * 4)

        def looked_up(guesses: int) -> onward.Result:
            return llm.generate(repeated, prompt_lookup_num_tokens=guesses, **fixed)

        def acceptance() -> str:
            speculation = looked_up(4).speculation
            assert speculation is not None
            return f"{speculation.acceptance_rate:.0%} of the guesses accepted"

        def four_samples() -> object:
            return llm.generate(prompt, num_return_sequences=4, temperature=1.0, seed=1, **fixed)

        lines = [
            compare("4 beams", beams(4), "batch of 4", batch_of_4, rounds),
            compare("4 samples of one prompt", four_samples, "batch of 4", batch_of_4, rounds),
            compare(
                "log-probabilities, top 5",
                lambda: llm.generate(prompt, logprobs=5, **fixed),
                "without",
                alone,
                rounds,
            ),
            compare(
                "prompt lookup of 4, a text that repeats",
                lambda: looked_up(4),
                "without",
                lambda: looked_up(0),
                rounds,
                acceptance,
            ),
        ]
        if importlib.util.find_spec("llguidance"):
            lines.append(
                compare(
                    "a regular expression",
                    lambda: llm.generate(
                        prompt, regex=r"[a-z ,.]{2000}", max_new_tokens=OUTPUT_TOKENS
                    ),
                    "without",
                    alone,
                    rounds,
                )
            )
        return {
            "model": llm.name,
            "dtype": llm.dtype,
            "threads": llm.threads,
            "rounds": rounds,
            "prompt_tokens": PROMPT_TOKENS,
            "output_tokens": OUTPUT_TOKENS,
            "lines": [asdict(line) for line in lines],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="folder, .gguf or hub id; default: SmolLM2")
    parser.add_argument("--dtype", default="bf16", choices=["f32", "bf16"])
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    report = measure(arguments.model, arguments.dtype, arguments.threads, arguments.rounds)
    if arguments.json:
        print(json.dumps(report, indent=2))
        return
    print(
        f"{report['model']}, {report['dtype']}, {report['threads']} threads, "
        f"{report['rounds']} rounds, {PROMPT_TOKENS} + {OUTPUT_TOKENS} tokens\n"
    )
    print("| strategy | plain batch | time / its time (min to max) | |")
    print("|---|---|---|---|")
    for line in report["lines"]:
        print(
            f"| {line['strategy']} | {line['yardstick']} | {line['ratio_median']:.2f} "
            f"({line['ratio_min']:.2f} to {line['ratio_max']:.2f}) | {line['note']} |"
        )


if __name__ == "__main__":
    main()
