"""The charts of a comparison: rates by depth, noise by position, KL by share of positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from onward.lab.compare.comparison import Comparison, SideReport, SpeedLine
from onward.lab.compare.cost import names
from onward.lab.compare.noise import LEVEL_FACTOR
from onward.lab.report import Chart, Curve

SIDE_COLOURS = ("#1b4f72", "#a04000")
"""Colours of A and B in every chart: blue and orange, which colour-blind readers can distinguish.
"""
_BOTH_COLOUR = "#6c3483"
"""Colour of curves that belong to both sides."""
_BUCKETS = 12
"""Number of groups of positions in the chart of noise."""


def charts(comparison: Comparison) -> list[Chart]:
    """The charts that have data."""
    made = [
        _rates(comparison, "prefill"),
        _rates(comparison, "decode"),
        _noise(comparison),
        _divergence(comparison),
    ]
    return [chart for chart in made if chart is not None]


def _rates(comparison: Comparison, what: str) -> Chart | None:
    curves = [
        Curve(name, points, colour)
        for name, side, colour in zip(
            names(comparison), (comparison.a, comparison.b), SIDE_COLOURS, strict=True
        )
        if len(points := _rate_points(side, what)) > 1
    ]
    if not curves:
        return None
    across = "tokens of the prompt" if what == "prefill" else "tokens before it (from 1 on)"
    return Chart(
        f"{what}, tokens/s",
        across,
        tuple(curves),
        lambda rate: f"{rate:,g} /s",
        step=2,
        dots=True,
    )


def _rate_points(side: SideReport, what: str) -> tuple[tuple[float, float], ...]:
    def rate(line: SpeedLine) -> float | None:
        spread = line.prefill_tokens_per_s if what == "prefill" else line.decode_tokens_per_s
        return None if spread is None else spread.median

    found = sorted((max(line.depth, 1), rate(line)) for line in side.speed)
    return tuple((depth, number) for depth, number in found if number)


def _noise(comparison: Comparison) -> Chart | None:
    """Root mean square of the relative noise, by the number of tokens before the position."""
    depths = np.concatenate(
        [len(text.prompt) + np.arange(len(text.written)) for text in comparison.texts]
    )
    noise = np.concatenate([part.noise for part in comparison.positions])
    order = np.argsort(depths, kind="stable")
    points = []
    for bucket in np.array_split(order, min(_BUCKETS, len(order))):
        level = float(np.sqrt(np.square(noise[bucket]).mean()))
        if level > 0:
            points.append((max(int(np.median(depths[bucket])), 1), level))
    expected = comparison.judgement.expected_noise
    levels: tuple[tuple[str, float], ...] = ()
    if expected > 0:
        levels = (("expected", expected), ("suspect above", LEVEL_FACTOR * expected))
    return _chart("relative noise of the logits", "tokens before it", "seen", points, levels)


def _divergence(comparison: Comparison) -> Chart | None:
    """The KL by the share of positions that reach it."""
    found: NDArray[np.float64] = np.concatenate([part.divergence for part in comparison.positions])
    ordered = np.sort(found)[::-1]
    points = [
        (rank, float(ordered[rank - 1])) for rank in _ranks(len(ordered)) if ordered[rank - 1] > 0
    ]
    return _chart("KL, nats: largest first", "positions with at least this KL", "KL", points)


def _ranks(count: int) -> list[int]:
    """Numbers from 1 to ``count``, several in each doubling."""
    steps = np.geomspace(1, count, num=min(count, 24))
    return sorted({round(float(step)) for step in steps})


def _chart(
    title: str,
    across: str,
    name: str,
    points: Sequence[tuple[float, float]],
    levels: tuple[tuple[str, float], ...] = (),
) -> Chart | None:
    if len(points) < 2:
        return None
    return Chart(
        title,
        across,
        (Curve(name, tuple(points), _BOTH_COLOUR),),
        lambda number: f"{number:.2g}",
        levels,
        step=10,
        dots=True,
    )
