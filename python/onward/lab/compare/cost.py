"""Sums up a comparison in two sentences: what side B costs or saves, and whether a fault is
suspected."""

from __future__ import annotations

from onward.lab.compare.comparison import Comparison
from onward.lab.compare.divergence import FLIP_FACTOR
from onward.lab.compare.noise import LEVEL_FACTOR

_UNCHANGED = 5e-4
"""A perplexity that changes by less than this share is reported as unchanged."""
_SAME_SPEED = 0.05
"""Ratios of several depths that differ by less than this share are reported as one figure."""
_NAME_CHARACTERS = 40


def names(comparison: Comparison) -> tuple[str, str]:
    """The names of the sides: their settings, with A and B in front if the settings are equal."""
    a, b = (
        name if len(name) <= _NAME_CHARACTERS else "…" + name[1 - _NAME_CHARACTERS :]
        for name in (comparison.a.description.setting, comparison.b.description.setting)
    )
    return (a, b) if a != b else (f"A, {a}", f"B, {b}")


def headline(comparison: Comparison) -> str:
    """The costs and savings of B against A: tokens, perplexity, speed, memory."""
    a, b = names(comparison)
    found = comparison.agreement
    if found.identical:
        parts = [f"{b} computes the same bits as {a}"]
    else:
        places = f"all {found.tokens}"
        if found.top1 < 1:
            places = f"{min(100 * found.top1, 99.9):.1f} % of {found.tokens}"
        parts = [
            f"{b} picks the same token as {a} in {places} places",
            _perplexity(found.perplexity_ratio),
        ]
    decode = [line.decode for line in comparison.ratios]
    if decode:
        parts.append(f"decodes {_range(min(decode), max(decode))} times as fast")
    weights = comparison.b.footprint.weight_bytes / comparison.a.footprint.weight_bytes
    parts.append(f"its weights take {weights:.2f} times the memory")
    return "; ".join(parts) + "."


def fault_sentence(comparison: Comparison) -> str:
    """Whether a fault is suspected, and the reason."""
    judgement = comparison.judgement
    if judgement.fault:
        return f"A FAULT IS SUSPECTED: {judgement.reasons[0]}."
    if judgement.verdict == "bit-identical":
        return f"No fault is suspected: {judgement.reasons[0]}."
    text = (
        f"No fault is suspected: the noise of {judgement.worst_text_noise:.2g} in the worst text "
        f"is within {LEVEL_FACTOR:g} times the {judgement.expected_noise:.2g} that these dtypes "
        "are expected to make"
    )
    parted = len(judgement.divergences)
    if parted:
        margin = max(divergence.times for divergence in judgement.divergences)
        text += (
            f"; {parted} of {len(comparison.texts)} texts part at a coin flip, where A's margin is "
            f"at most {margin:.2g} times the noise ({FLIP_FACTOR:g} are allowed)"
        )
    return text + "."


def _perplexity(ratio: float) -> str:
    change = ratio - 1
    if abs(change) < _UNCHANGED:
        return "perplexity unchanged"
    digits = 0 if abs(change) >= 0.095 else 1 if abs(change) >= 0.0095 else 2
    return f"perplexity {100 * change:+.{digits}f} %"


def _range(least: float, most: float) -> str:
    if most - least <= _SAME_SPEED * most:
        return f"{(least + most) / 2:.2f}"
    return f"{least:.2f} to {most:.2f}"
