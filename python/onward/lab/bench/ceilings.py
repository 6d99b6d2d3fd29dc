"""Measures the most that a device can read and multiply, for comparison with the rates."""

from __future__ import annotations

from onward import _core

# dtype of the weights -> the probe of the arithmetic that multiplies them.
ARITHMETIC = {"f32": "f32", "f16": "f32", "bf16": "bf16", "int8": "int8", "int4": "int8"}
DEVICE_SHARE = 0.2
"""The share of ``seconds`` for each of a device's five probes. Their figures vary little."""


def ceilings(device: str, dtype: str, threads: int, seconds: float) -> tuple[float, float]:
    """GB/s of memory and GFLOP/s of the arithmetic that multiplies weights of ``dtype``.

    For the processor these are the read bandwidth and the peak of ``threads`` threads. For another
    device they are the bandwidth of a copy (bytes read plus bytes written) and the rate of its
    tensor cores.
    """
    arithmetic = ARITHMETIC[dtype]
    if device != "cpu":
        peaks = _core.measure_device(device, DEVICE_SHARE * seconds)
        return peaks["copy"], peaks[arithmetic]
    probe, isa = _core.kernels.probe, _core.kernels.selected()
    return probe(isa, "read", seconds, threads), probe(isa, arithmetic, seconds, threads)
