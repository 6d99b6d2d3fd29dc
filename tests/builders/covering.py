"""Pairwise covering arrays: few rows in which every two values of any two factors meet.

A full product of six factors with four values each has 4,096 rows; a covering array has about 25.
A fault that depends on one or two factors, as nearly all do, still shows in some row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

Choice = tuple[str, int]
"""A factor and the index of one of its values."""


def covering_rows(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows {factor: value} in which all pairs of values of all two factors occur.

    The rows depend on the arguments alone. Each row starts with the first pair that no earlier row
    has; every other factor then takes the value that completes the most new pairs.
    """
    if len(factors) < 2:
        return [{name: value} for name, values in factors.items() for value in values]
    missing = dict.fromkeys(all_pairs(factors))
    rows = []
    while missing:
        row = dict(next(iter(missing)))
        for name in factors:
            if name not in row:
                row[name] = max(
                    range(len(factors[name])), key=lambda i: new_pairs(row, (name, i), missing)
                )
        for pair in combinations([(name, row[name]) for name in factors], 2):
            missing.pop(pair, None)
        rows.append({name: factors[name][row[name]] for name in factors})
    return rows


def all_pairs(factors: Mapping[str, Sequence[Any]]) -> Iterator[tuple[Choice, Choice]]:
    """All pairs of values of all pairs of factors, by index."""
    for first, second in combinations(factors, 2):
        for i, j in product(range(len(factors[first])), range(len(factors[second]))):
            yield (first, i), (second, j)


def new_pairs(row: Mapping[str, int], choice: Choice, missing: Mapping[Any, None]) -> int:
    """The number of missing pairs that ``choice`` completes with the present values of the row."""
    return sum((chosen, choice) in missing or (choice, chosen) in missing for chosen in row.items())


def pairwise(**factors: Sequence[Any]) -> pytest.MarkDecorator:
    """``parametrize`` over the rows of a covering array of these factors."""
    rows = covering_rows(factors)
    return pytest.mark.parametrize(tuple(factors), [tuple(row.values()) for row in rows])
