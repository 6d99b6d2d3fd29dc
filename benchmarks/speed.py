"""Speed of prefill and decode as a fraction of what this machine can do.

Decode reads every weight once per token, so its ceiling is the read bandwidth divided by the bytes
of a token; prefill multiplies matrices, so its ceiling is the arithmetic peak. Both ceilings are
measured here, by probes that use the same threads and instructions, and each round measures a
ceiling right beside the figure that is compared with it: on a shared machine absolute times drift,
ratios of neighbours much less.

    python benchmarks/speed.py [--model MODEL] [--dtype bf16] [--rounds 7] [--json]

Knows nothing of other engines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

import onward
from onward import _core

PREFILL_TOKENS = 512
DECODE_TOKENS = 128


@dataclass(frozen=True)
class Line:
    """One figure over all rounds: tokens/s, its ceiling in the same unit, and their ratio."""

    name: str
    tokens_per_s: float
    ceiling: float
    ceiling_unit: str
    fraction_median: float
    fraction_min: float
    fraction_max: float


def multiply_adds_per_token(spec: onward.spec.DecoderSpec, positions: int) -> int:
    """Multiply-adds of one prefill token: the matrices, and attention over ``positions`` keys."""
    qkv = (spec.num_heads + 2 * spec.num_kv_heads) * spec.head_dim * spec.hidden_size
    output = spec.num_heads * spec.head_dim * spec.hidden_size
    mlp = 3 * spec.hidden_size * spec.intermediate_size
    attention = 2 * spec.num_heads * spec.head_dim * positions
    return spec.num_layers * (qkv + output + mlp + attention)


def paired(
    name: str,
    unit: str,
    rounds: int,
    ceiling: Callable[[], float],
    rate: Callable[[], float],
    cost_per_token: float,
) -> Line:
    """Runs ceiling and rate in turn; ``cost_per_token`` is in the ceiling's unit."""
    rate()  # warm-up
    ceilings, rates = [], []
    for index in range(rounds):
        print(f"\r{name}: round {index + 1}/{rounds} ", end="", file=sys.stderr)
        before = ceiling()
        rates.append(rate())
        ceilings.append((before + ceiling()) / 2)
    print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
    fractions = [r * cost_per_token / c for r, c in zip(rates, ceilings, strict=True)]
    return Line(
        name,
        statistics.median(rates),
        statistics.median(ceilings),
        unit,
        statistics.median(fractions),
        min(fractions),
        max(fractions),
    )


def measure(model: str | None, dtype: str, threads: int | None, rounds: int) -> dict[str, object]:
    """Loads the model, runs all rounds and returns machine, settings and lines."""
    with onward.LLM(model, dtype=dtype, threads=threads) as llm:
        spec, kernels = llm.spec, _core.kernels
        isa = kernels.selected()
        rng = np.random.default_rng(0)
        prompt = rng.integers(0, spec.vocab_size, PREFILL_TOKENS).tolist()

        def decode_rate() -> float:
            result = llm.generate(
                prompt[:16], max_new_tokens=DECODE_TOKENS, ignore_eos=True, temperature=0.0
            )
            return result.timings.decode_tokens_per_s

        def prefill_rate() -> float:
            result = llm.generate(prompt, max_new_tokens=1, ignore_eos=True, temperature=0.0)
            return result.timings.prefill_tokens_per_s

        def bandwidth() -> float:
            return kernels.probe(isa, "read", 0.3, llm.threads)

        def peak() -> float:
            return kernels.probe(isa, llm.dtype, 0.3, llm.threads)

        value_bytes = 2 if llm.dtype == "bf16" else 4
        cache_bytes = _core.kv_cache_bytes(
            spec.num_layers, spec.num_kv_heads, spec.head_dim, 16 + DECODE_TOKENS // 2, value_bytes
        )
        gigabytes = (llm.weight_bytes + cache_bytes) / 1e9
        gigaflops = 2 * multiply_adds_per_token(spec, PREFILL_TOKENS // 2) / 1e9
        lines = [
            paired(f"decode {DECODE_TOKENS}", "GB/s", rounds, bandwidth, decode_rate, gigabytes),
            paired(f"prefill {PREFILL_TOKENS}", "GFLOP/s", rounds, peak, prefill_rate, gigaflops),
        ]
        return {
            "model": llm.name,
            "dtype": llm.dtype,
            "isa": isa,
            "threads": llm.threads,
            "rounds": rounds,
            "gigabytes_per_decode_token": gigabytes,
            "gigaflop_per_prefill_token": gigaflops,
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
        f"{report['model']}, {report['dtype']}, {report['isa']}, "
        f"{report['threads']} threads, {report['rounds']} rounds\n"
    )
    print("| | tokens/s | ceiling measured | of the ceiling (min to max) |")
    print("|---|---|---|---|")
    for line in report["lines"]:
        print(
            f"| {line['name']} | {line['tokens_per_s']:.1f} | "
            f"{line['ceiling']:.1f} {line['ceiling_unit']} | {line['fraction_median']:.0%} "
            f"({line['fraction_min']:.0%} to {line['fraction_max']:.0%}) |"
        )


if __name__ == "__main__":
    main()
