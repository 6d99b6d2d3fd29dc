"""The speed of each matrix product kernel alone, as a share of the peak of its own instructions.

The figures are CPU time of one thread with operands in the caches, so neither memory nor other
threads matter. The peak is measured directly before each product.

It needs onward_kernels, which ``make install`` builds.

    python benchmarks/products.py [--rows 96] [--k 2048] [--isas avx512bf16 ...] [--dtypes q8_0 ...]
"""

from __future__ import annotations

import argparse
import statistics

import onward_kernels

from onward import _core

# dtype of the weights -> the probe of its arithmetic.
PEAKS = {"f32": "f32", "f16": "f32", "bf16": "bf16", "q8_0": "int8", "q4_0": "int8", "q4_1": "int8"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    isas = [isa for isa in _core.kernels.available() if isa != "generic"]
    parser.add_argument("--rows", type=int, default=96, help="default: %(default)s")
    parser.add_argument("--k", type=int, default=2048, help="default: %(default)s")
    parser.add_argument("--isas", nargs="+", default=isas, choices=isas)
    parser.add_argument("--dtypes", nargs="+", default=list(PEAKS), choices=list(PEAKS))
    parser.add_argument("--repetitions", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=0.2, help="of each; default: %(default)s")
    arguments = parser.parse_args()
    print("| instructions | weights | GFLOP/s | of the peak |")
    print("|---|---|---|---|", flush=True)
    for isa in arguments.isas:
        for dtype in arguments.dtypes:
            rates, shares = [], []
            for _ in range(arguments.repetitions):
                peak = _core.kernels.probe(isa, PEAKS[dtype], arguments.seconds, 1)
                rates.append(
                    onward_kernels.product_rate(
                        isa, dtype, arguments.rows, arguments.k, arguments.seconds
                    )
                )
                shares.append(rates[-1] / peak)
            rate, share = statistics.median(rates), statistics.median(shares)
            print(f"| {isa} | {dtype} | {rate:,.0f} | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
