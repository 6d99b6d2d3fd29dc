"""The chart of ``onward bench --cache both --plot``: time to a token by length."""

from __future__ import annotations

from onward.errors import InvalidArgument
from onward.lab.bench.recompute import Comparison
from onward.lab.report import Chart, Curve

MS = 1e3


def chart(comparison: Comparison) -> Chart:
    """A line with the cache and one without, with a dot at each measured length. Raises
    InvalidArgument if no length was measured."""
    if not comparison.lines:
        raise InvalidArgument("plot: no length was measured, expected a depth")
    lines = sorted(comparison.lines, key=lambda line: line.tokens)
    return Chart(
        f"{comparison.model}, {comparison.dtype}, cache {comparison.kv_dtype}: time to one token, "
        f"threads: {comparison.threads}",
        "tokens before it",
        (
            Curve("without the cache", tuple((n.tokens, MS * n.without_cache_s) for n in lines)),
            Curve("with the cache", tuple((n.tokens, MS * n.with_cache_s) for n in lines)),
        ),
        lambda ms: f"{ms:,g} ms",
        step=2,
        dots=True,
    )
