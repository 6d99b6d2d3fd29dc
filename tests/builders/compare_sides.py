"""Descriptions and rounds of made-up sides of ``onward compare``, whose figures are known."""

from __future__ import annotations

from dataclasses import replace

from onward.lab.compare.side import Description, Round

VOCAB = 300
FIRST = Description(
    setting="cpu:f32",
    onward="0.1.0",
    build="gcc",
    core="aa",
    python="3.11",
    system="Linux",
    processor="<One> & only",
    device="cpu",
    isa="avx2",
    threads=2,
    model="m",
    fingerprint="f",
    dtype="f32",
    weight_dtypes=("f32",),
    kv_dtype="f32",
    cache=True,
    vocab_size=VOCAB,
    context=4096,
    parameters=1000,
)
SECOND = replace(
    FIRST,
    setting="cpu:bf16",
    core="bb",
    processor="Other",
    dtype="bf16",
    weight_dtypes=("bf16",),
    kv_dtype="bf16",
)


def rounds(rate: float, share: float | None) -> tuple[Round, ...]:
    """Three runs at each of three depths: a tenth around the rate."""
    return tuple(
        Round(depth, 10 * factor * rate if depth else None, factor * rate, 1e6, 1.5, share, share)
        for depth in (0, 64, 512)
        for factor in (0.9, 1.0, 1.1)
    )
