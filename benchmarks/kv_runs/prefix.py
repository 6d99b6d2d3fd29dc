"""Time to the first token of a long prompt, without a kept prefix and with one.

Each round has a new prompt: first cold, then with other last tokens, which continues from the kept
prefix, then another new prompt, cold, whose time is averaged with the first. There is one LLM with
exact keys and values and one with codes; they take turns.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

import numpy as np

import onward
from kv_runs.printing import say, show


@dataclass(frozen=True)
class Line:
    """The medians of one kv dtype."""

    kv_dtype: str
    prompt_tokens: int
    kept_tokens: int
    """Reused tokens of the second prompt, the smallest number over all rounds."""
    cold_ms: float
    kept_ms: float
    share: float
    """The second time divided by the first, for each round."""
    share_min: float
    share_max: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=None, help="default: SmolLM2")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--kv-dtype", nargs="+", default=["auto", "turbo4"])
    parser.add_argument("--tokens", type=int, default=2000, help="of the prompt")
    parser.add_argument("--new", type=int, default=10, help="last tokens that differ")
    parser.add_argument("--rounds", type=int, default=5)


def run(arguments: argparse.Namespace) -> int:
    models = [
        onward.LLM(
            arguments.model, dtype=arguments.dtype, threads=arguments.threads, kv_dtype=kv_dtype
        )
        for kv_dtype in arguments.kv_dtype
    ]
    generator = np.random.default_rng(0)
    colds: list[list[float]] = [[] for _ in models]
    kepts: list[list[float]] = [[] for _ in models]
    hits: list[list[int]] = [[] for _ in models]
    for llm in models:  # warms up the memory of a step and the pages of the weights
        llm.generate(generator.integers(0, llm.spec.vocab_size, 512).tolist(), max_new_tokens=1)
    for index in range(arguments.rounds):
        for llm, cold, kept, hit in zip(models, colds, kepts, hits, strict=True):

            def first_token(prompt: list[int], llm: onward.LLM = llm) -> tuple[float, int]:
                result = llm.generate(prompt, max_new_tokens=1, temperature=0.0)
                seconds = result.timings.time_to_first_token_s
                assert seconds is not None
                return seconds, result.usage.cached_tokens

            vocab = llm.spec.vocab_size
            llm.cache.clear()
            prompt = generator.integers(0, vocab, arguments.tokens).tolist()
            before, none = first_token(prompt)
            again = prompt[: -arguments.new] + generator.integers(0, vocab, arguments.new).tolist()
            seconds, tokens = first_token(again)
            after, also_none = first_token(generator.integers(0, vocab, arguments.tokens).tolist())
            if max(none, also_none) > 1:
                raise RuntimeError("a prompt was kept that was never sent")
            cold.append((before + after) / 2)
            kept.append(seconds)
            hit.append(tokens)
        say(f"round {index + 1}/{arguments.rounds}")
    lines = []
    for llm, cold, kept, hit in zip(models, colds, kepts, hits, strict=True):
        shares = [own / whole for own, whole in zip(kept, cold, strict=True)]
        lines.append(
            Line(
                llm.kv_dtype,
                arguments.tokens,
                min(hit),
                1e3 * statistics.median(cold),
                1e3 * statistics.median(kept),
                statistics.median(shares),
                min(shares),
                max(shares),
            )
        )
    setting = {
        "model": models[0].name,
        "dtype": models[0].dtype,
        "threads": models[0].threads,
        "rounds": arguments.rounds,
    }
    rows: list[tuple[str, ...]] = [
        ("kv dtype", "prompt", "kept", "ms cold", "ms kept", "of cold", "min", "max")
    ]
    for line in lines:
        rows.append(
            (
                line.kv_dtype,
                f"{line.prompt_tokens:,}",
                f"{line.kept_tokens:,}",
                f"{line.cold_ms:.0f}",
                f"{line.kept_ms:.1f}",
                *(f"{share:.1%}" for share in (line.share, line.share_min, line.share_max)),
            )
        )
    show(setting, lines, rows, arguments.output)
    return 0
