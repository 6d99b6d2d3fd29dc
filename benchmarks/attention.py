"""Measures attention alone, by the depth of the context and by the dtype of the cache.

It runs whole layers of a shape (by default a 1B model) with one row or more at the end of the
context. A round measures each cache once. Between two caches, 96 MB of other data pass through the
CPU caches, as weights do in a model. The figures are medians over the rounds; the ratio to bf16 is
the median of the ratios within a round.

It needs onward_kernels, which ``make install`` builds.

    python benchmarks/attention.py [--depths 512 2048 8192 32768] [--caches int8 turbo4/turbo3 ...]
        [--dtypes bf16 f16 f32] [--rows 1] [--threads 2] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import onward_kernels

from onward import _core

DEPTHS = [512, 2048, 8192, 32768]
CACHES = ["int8", "q4_0", "turbo4", "turbo3", "turbo2"]
BASE = ("bf16", "exact", "exact")


def parsed_cache(text: str) -> tuple[str, str, str]:
    """ "int8", or "turbo4/turbo3" for keys and values; exact blocks are bf16."""
    keys, _, values = text.partition("/")
    return "bf16", keys, values or keys


def name_of(cache: tuple[str, str, str]) -> str:
    dtype, keys, values = cache
    return dtype if keys == values == "exact" else keys if keys == values else f"{keys}/{values}"


def measured(caches: list[tuple[str, str, str]], depth: int, a: Any) -> list[dict[str, Any]]:
    """Measure all caches; returns one record for each."""
    results = onward_kernels.attend_rate(
        caches,
        a.layers,
        a.heads,
        a.kv_heads,
        a.head_dim,
        depth,
        a.rows,
        a.threads,
        a.window_blocks,
        a.rounds,
    )
    base = results[0][0]
    return [
        {
            "cache": name_of(cache),
            "depth": depth,
            "rows": a.rows,
            "seconds": statistics.median(seconds),
            "bytes": size,
            "speed": statistics.median(b / s for b, s in zip(base, seconds, strict=True)),
        }
        for cache, (seconds, size) in zip(caches, results, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS)
    parser.add_argument(
        "--caches", type=parsed_cache, nargs="*", default=[("bf16", c, c) for c in CACHES]
    )
    parser.add_argument(
        "--dtypes", nargs="*", default=["f16", "f32"], choices=["bf16", "f16", "f32"]
    )
    parser.add_argument("--layers", type=int, default=16, help="default: %(default)s")
    parser.add_argument("--heads", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--kv-heads", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--head-dim", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--rows", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--window-blocks", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=9, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="records instead of a table")
    arguments = parser.parse_args()
    exact = [(dtype, "exact", "exact") for dtype in arguments.dtypes]
    caches = [BASE, *(cache for cache in exact if cache != BASE), *arguments.caches]
    records = []
    if not arguments.json:
        print(f"{_core.kernels.selected()}, {arguments.threads} threads, {arguments.rows} rows\n")
        print("| depth | cache | MB | ms | GB/s | speed of bf16 |")
        print("|---:|---|---:|---:|---:|---:|", flush=True)
    for depth in arguments.depths:
        for record in measured(caches, depth, arguments):
            records.append(record)
            if arguments.json:
                continue
            megabytes, milliseconds = record["bytes"] * 1e-6, record["seconds"] * 1e3
            print(
                f"| {depth:,} | {record['cache']} | {megabytes:,.1f} | {milliseconds:,.2f} "
                f"| {megabytes / milliseconds:,.1f} | {record['speed']:.2f} x |",
                flush=True,
            )
    if arguments.json:
        print(json.dumps(records, indent=2))


if __name__ == "__main__":
    main()
