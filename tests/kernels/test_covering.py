"""The covering arrays of the kernel tests contain every pair of values."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from builders.covering import covering_rows, pairwise

FACTORS = {
    "three and two": {"a": [1, 2, 3], "b": ["x", "y"]},
    "equal sizes": {name: range(4) for name in "abcdef"},
    "one long factor": {"long": range(20), "b": [False, True], "c": [None, 1, 2]},
    "single values": {"a": ["only"], "b": [1, 2], "c": ["only"]},
    "values that are equal or have no hash": {"a": [[1], [1], {}], "b": [0, 0], "c": [[], 5]},
}


@pytest.mark.parametrize("kind", FACTORS)
def test_every_two_values_meet_in_some_row(kind: str) -> None:
    factors = {name: list(values) for name, values in FACTORS[kind].items()}
    rows = covering_rows(factors)
    for row in rows:
        assert list(row) == list(factors)
    for first, second in combinations(factors, 2):
        met = [(row[first], row[second]) for row in rows]
        for pair in product(factors[first], factors[second]):
            assert pair in met


@pytest.mark.parametrize(("factors", "most"), [(6, 30), (3, 20)])
def test_the_number_of_rows_is_small(factors: int, most: int) -> None:
    """With four values each, 16 is the least that any array can have."""
    rows = covering_rows({str(number): range(4) for number in range(factors)})
    assert 16 <= len(rows) <= most


def test_the_rows_are_the_same_every_time() -> None:
    factors = {"a": range(5), "b": range(3), "c": range(4)}
    assert covering_rows(factors) == covering_rows(dict(factors))


def test_one_factor_takes_each_value_once() -> None:
    assert covering_rows({"a": [3, 1]}) == [{"a": 3}, {"a": 1}]
    assert covering_rows({}) == []


def test_tests_are_parametrised_by_the_rows() -> None:
    mark = pairwise(a=[1, 2], b=["x", "y"])
    assert mark.args == (("a", "b"), [(1, "x"), (1, "y"), (2, "x"), (2, "y")])
