"""The instruction sets that this CPU supports, and which of them have their own kernels.

Instruction sets of one processor family compile the same source again, except for a few inner
products (csrc/cpu/isa). The kernel tests run each source once, on the fastest instruction set that
has it. Every instruction set computes whole models in test_determinism.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from builders.kernel_arrays import assert_bits
from onward import _core

ISAS: list[str] = _core.kernels.available()
"""The slowest is the first: "generic", the oracle."""

SAME_SOURCE: dict[str, list[tuple[str, ...]]] = {
    "floats": [  # all kernels except the ones below
        ("neon", "neondot"),
        ("avx2", "avx2vnni"),
        ("avx512", "avx512vnni", "avx512bf16"),
    ],
    "bf16": [  # linear_bf16
        ("neon", "neondot"),
        ("avx2", "avx2vnni"),
        ("avx512", "avx512vnni"),
        ("avx512bf16",),
    ],
    "bytes": [  # quantised products, and attention over codes
        ("neon",),
        ("neondot",),
        ("avx2",),
        ("avx2vnni",),
        ("avx512",),
        ("avx512vnni", "avx512bf16"),
    ],
}
"""Groups of instruction sets that share a source, by the kind of kernel."""


def distinct(made_of: str) -> list[str]:
    """The instruction sets to compare with generic: one for each source that runs here."""
    available = [[isa for isa in same if isa in ISAS] for same in SAME_SOURCE[made_of]]
    return [same[-1] for same in available if same]


def everywhere(run: Callable[[str], Any], made_of: str = "floats") -> Any:
    """The result of ``run`` for "generic": an array, a number, or a tuple of them. All others of
    ``distinct`` must give the same bits."""
    expected = run("generic")
    for isa in distinct(made_of):
        found = run(isa)
        both = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
        for one, other in zip(*both, strict=True):
            assert_bits(np.asarray(one), np.asarray(other), isa)
    return expected
