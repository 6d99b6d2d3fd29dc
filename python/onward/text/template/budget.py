"""The limits of one rendering of a chat template: time, memory, and the size of values.

Every loop step, call, operator and filter of a rendering asks the Budget first. Every value is paid
for before or while it is made, so the sum is never less than the memory in use. A container has a
weight: its size when it is written out in full, because printing or comparing it costs that much
even if it repeats the same parts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, cast

TIME_BUDGET_S = 1.5  # checked between steps; the longest step ends within the documented 2 s
MEMORY_BUDGET_BYTES = 64 << 20
MAX_WEIGHT = 8 << 20
MAX_DEPTH = 64
MAX_CALLS_DEEP = 100
MAX_INT_BITS = 64


_in_use = threading.local()


class BudgetExceeded(BaseException):
    """Not an Exception, so that no code between a template and its caller handles it."""


class Budget:
    """The time, memory and weight that one rendering has left."""

    def __init__(self, input_weight: int = 0, began: float | None = None) -> None:
        """`input_weight` is the weight of the values that the caller passes: a larger input may
        produce more. The time counts from `began`, a value of perf_counter, or from now."""
        self.deadline = (perf_counter() if began is None else began) + TIME_BUDGET_S
        self.bytes_left = MEMORY_BUDGET_BYTES + 64 * input_weight
        self.max_weight = MAX_WEIGHT + 8 * input_weight
        self.calls = 0

    @contextmanager
    def used(self) -> Iterator[None]:
        """Make this the Budget of the calling thread."""
        _in_use.budget = self
        try:
            yield
        finally:
            del _in_use.budget

    def tick(self) -> None:
        """One step of a rendering.

        Raises:
            BudgetExceeded: there is no time left.
        """
        if perf_counter() > self.deadline:
            raise BudgetExceeded("it took more than 2 s")

    def enter(self) -> None:
        """A call begins; `self.calls` counts those that have not ended.

        Raises:
            BudgetExceeded: calls are nested too deeply, or there is no time left.
        """
        self.tick()
        self.calls += 1
        if self.calls > MAX_CALLS_DEEP:
            raise BudgetExceeded(f"calls are nested more than {MAX_CALLS_DEEP} deep")

    def pay(self, size: int) -> None:
        """Pay for `size` bytes.

        Raises:
            BudgetExceeded: there is no memory left.
        """
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise BudgetExceeded(f"it used more than {MEMORY_BUDGET_BYTES >> 20} MiB of memory")

    def weigh(self, value: Any, depth: int = 0) -> int:
        """The length, or more, of `value` when it is written out.

        Raises:
            BudgetExceeded: it is too heavy or nested too deeply.
        """
        if isinstance(value, str):
            return len(value) + 8 if value.isprintable() else 4 * len(value) + 8
        if isinstance(value, (list, tuple)):
            parts: Iterable[Any] = value
        elif isinstance(value, dict):
            parts = (part for pair in value.items() for part in pair)
        else:
            return 16
        self.tick()
        if depth >= MAX_DEPTH:
            raise BudgetExceeded(f"a value is nested more than {MAX_DEPTH} deep")
        weight = 64
        for part in parts:
            weight += self.weigh(part, depth + 1)
            if weight > self.max_weight:
                raise BudgetExceeded(f"a value is larger than {self.max_weight} bytes")
        return weight

    def made(self, value: Any) -> Any:
        """Pay for a value that was just made from parts that are paid for. Returns the value."""
        if isinstance(value, str):
            self.pay(self.text_size(value))
        elif isinstance(value, (list, tuple)):
            self.pay(64 + 8 * len(value))
            self.weigh(value)
        elif isinstance(value, dict):
            self.pay(64 + 100 * len(value))
            self.weigh(value)
        elif isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
            raise BudgetExceeded(f"an integer has more than {MAX_INT_BITS} bits")
        else:
            self.pay(32)
        return value

    def text_size(self, value: Any) -> int:
        """An upper bound for the bytes of `str(value)`."""
        return 50 + 4 * len(value) if isinstance(value, str) else 4 * self.weigh(value)

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        """`values`; each is one step of the rendering."""
        for value in values:
            self.tick()
            yield value

    def listed(self, values: Iterable[Any]) -> list[Any]:
        """A list of `values`, paid for as it grows."""
        result = []
        is_text = isinstance(values, str)
        for value in values:
            self.tick()
            self.pay(80 if is_text else 72)
            result.append(value)
        self.weigh(result)
        return result


def budget_in_use() -> Budget:
    """The Budget of the present rendering in this thread."""
    return cast(Budget, _in_use.budget)
