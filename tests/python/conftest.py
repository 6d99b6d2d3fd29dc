"""Fixtures for several files of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders.counting_engine import counting_engine, counting_model
from onward import _core


@pytest.fixture(scope="session")
def counter_model() -> _core.Model:
    """A model whose token after i is i + 1."""
    return counting_model()


@pytest.fixture
def counter_engine(counter_model: _core.Model) -> Iterator[_core.Engine]:
    """An engine of this model, which is closed after the test."""
    engine = counting_engine(counter_model)
    yield engine
    engine.close()
