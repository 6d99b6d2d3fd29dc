"""A plan of weights as data: which tensors of a file, and which of their rows, make up each weight.

``load/weights/part_reader.py`` reads a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]
RowOrder = NDArray[np.int32]
"""(rows of a part): the row of the tensor that each row comes from."""
Computed = Callable[[Shape], NDArray[np.float32]]
"""The values of a part of this shape."""
Change = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Computes the values of a part from the values of its tensors."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a canonical weight; of a vector, some values.

    The steps from the tensor in the file to the part: ``slice`` chooses one matrix of a tensor of
    three dimensions, or one vector of a matrix; ``transposed`` swaps the two dimensions;
    ``columns`` and ``rows`` choose columns and rows of the result; ``plus`` is added to each value,
    in float32. Rows alone are read from the mapped file; ``columns``, ``transposed`` and ``plus``
    make a copy.
    """

    tensor: str
    """Its name in the file; empty for ``constant``, ``computed`` and ``joined``."""
    shape: Shape
    """Of the part: (rows, columns), or (values,) for a vector."""
    stored: Shape = ()
    """The shape that the tensor must have in the file."""
    more_rows: bool = False
    """The tensor may have more rows than ``stored``."""
    slice: int | None = None
    transposed: bool = False
    columns: range | None = None
    rows: range | RowOrder | None = None
    """None: all rows."""
    plus: float = 0.0
    constant: float | None = None
    """The value of every number of a part that no tensor holds."""
    computed: Computed | None = None
    """The values of a part that no tensor holds."""
    added: tuple[Part, ...] = ()
    """Parts of one row each, which are added to every row, in float32."""
    joined: tuple[Part, ...] = ()
    """The part is these parts, one after the other: a copy."""
    change: Change | None = None
    """What is done to the values of ``joined``."""

    def __post_init__(self) -> None:
        found = self._shape()
        if found != self.shape:
            raise ValueError(f"part of {self.tensor!r}: has shape {found}, expected {self.shape}")

    def _shape(self) -> Shape:
        if self.joined:
            return (sum(part.shape[0] for part in self.joined), *self.joined[0].shape[1:])
        if self.constant is not None or self.computed is not None:
            return self.shape
        shape = self.matrix
        if self.transposed:
            shape = shape[::-1]
        if self.columns is not None:
            shape = (shape[0], len(self.columns))
        if len(shape) == 1 and self.shape == (1, *shape):
            return self.shape  # a vector is a matrix of one row
        return shape if self.rows is None else (len(self.rows), *shape[1:])

    @property
    def matrix(self) -> Shape:
        """The shape of what ``slice`` chooses; a scalar is a vector of one value."""
        return (self.stored if self.slice is None else self.stored[1:]) or (1,)

    @property
    def tensors(self) -> tuple[Part, ...]:
        """The parts that are read from one tensor each; none of a constant or computed part."""
        if self.joined:
            return tuple(inner for part in self.joined for inner in part.tensors)
        return (*((self,) if self.tensor else ()), *self.added)

    @property
    def is_whole(self) -> bool:
        """Whether the part is a whole tensor with its rows in the order of the file."""
        return bool(self.tensor) and self.stored == self.shape and self._reads_rows_as_stored

    @property
    def _reads_rows_as_stored(self) -> bool:
        changed = self.plus != 0 or self.transposed or bool(self.added)
        return self.rows is None and not changed


def whole(tensor: str, shape: Shape) -> Part:
    """A part that is one tensor."""
    return Part(tensor, shape, shape)


def constant(shape: Shape, value: float) -> Part:
    """A part without a tensor, e.g. the weight of a norm that has none."""
    return Part("", shape, constant=value)


def joined(parts: Iterable[Part], change: Change | None = None) -> Part:
    """One part of several tensors, e.g. a vector that a file keeps as four scalars."""
    pieces = tuple(parts)
    rows = sum(part.shape[0] for part in pieces)
    return Part("", (rows, *pieces[0].shape[1:]), joined=pieces, change=change)


def with_rows(part: Part, order: RowOrder) -> Part:
    """Rows of a part, in this order. Its own rows may be chosen already."""
    if not part.tensor:
        raise ValueError("rows of a part that is no rows of one tensor")
    rows = order if part.rows is None else np.asarray(part.rows, np.int32)[order]
    return replace(part, rows=rows, shape=(len(order), *part.shape[1:]))


@dataclass(frozen=True, eq=False)
class PlannedTensor:
    """One canonical weight: its name, and the parts that are stacked along its rows."""

    name: str
    parts: tuple[Part, ...]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Of the parts."""
        return tuple(part.shape for part in self.parts)

    @property
    def sources(self) -> tuple[str, ...]:
        """The tensors that are read, each once, in the order of the parts."""
        return tuple(dict.fromkeys(piece.tensor for part in self.parts for piece in part.tensors))

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return sum(prod(shape) for shape in self.shapes)


def stored_shapes(plan: Iterable[PlannedTensor]) -> dict[str, Shape]:
    """Every tensor that a plan reads, with the shape that it must have in the file."""
    return {
        piece.tensor: piece.stored
        for planned in plan
        for part in planned.parts
        for piece in part.tensors
    }


def tensors_with_more_rows(plan: Iterable[PlannedTensor]) -> set[str]:
    """The tensors that may have more rows in the file than ``stored_shapes`` says."""
    return {
        piece.tensor
        for planned in plan
        for part in planned.parts
        for piece in part.tensors
        if piece.more_rows
    }
