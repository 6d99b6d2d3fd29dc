"""The submodule ``kernels``: instruction sets, probes of the processor, and packed weights.

Unknown names raise ``onward.errors.InvalidArgument``.
"""

import numpy as np
from numpy.typing import NDArray

def selected() -> str:
    """The instruction set in use."""

def available() -> list[str]:
    """The instruction sets that this machine can run, slowest first."""

def probe(isa: str, kind: str, seconds: float, threads: int) -> float:
    """GB/s for kind "read", GFLOP/s for "f32", "bf16" and "int8", of all threads together."""

def weight_range(dtype: str) -> tuple[float, float]:
    """The smallest and the largest weight that can be packed in ``dtype``."""

def repacked(weights: NDArray[np.uint8], stored: str, dtype: str) -> NDArray[np.float32]:
    """The values (n, k) that weights (n, bytes of a row) have once they are packed."""
