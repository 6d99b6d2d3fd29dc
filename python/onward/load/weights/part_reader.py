"""Reads the parts of a plan from an opened model: mapped rows where possible, otherwise copies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onward.errors import WeightError
from onward.load.architectures.parts import Part, RowOrder
from onward.load.weights.checkpoint import STORAGE, Checkpoint, Tensor, float_values
from onward.message_text import label

_BITS: dict[int, type[Any]] = {2: np.uint16, 4: np.uint32}  # bytes of a value -> its bits


@dataclass(frozen=True)
class PartTensor(Tensor):
    """A part as the core takes it. Row ``r`` is row ``row_order[r]`` of the buffer, which may have
    more rows than the part."""

    row_order: NDArray[np.int32] | None = None  # (shape[0])
    mapped: bool = True
    """Whether the buffer lies in the file; otherwise it is a copy."""


def read_part(checkpoint: Checkpoint, part: Part) -> PartTensor:
    """The bytes of a part.

    Raises:
        WeightError: a dtype that is not supported, or a tensor of blocks whose values would have to
            be moved within them.
    """
    if part.added:
        return _with_added_rows(checkpoint, part)
    if part.constant is not None:
        return _floats(np.full(part.shape, part.constant, np.float32))
    if part.computed is not None:
        return _floats(part.computed(part.shape))
    if part.joined:
        found = _joined([read_part(checkpoint, piece) for piece in part.joined], part)
        if part.change is None:
            return found
        return _floats(part.change(float_values(_gathered(found), found.dtype)))
    tensor = checkpoint.tensor(part.tensor)
    if part.transposed or part.columns is not None:
        _require_floats(checkpoint, part, tensor)
        found = _transposed(tensor, part)
    else:
        if len(part.shape) == 1 and not part.is_whole:
            _require_floats(checkpoint, part, tensor)
        found = _mapped_rows(tensor, part)
    if part.plus:
        _require_floats(checkpoint, part, tensor)
        values = float_values(_gathered(found), found.dtype).reshape(part.shape)
        return _floats(values + np.float32(part.plus))
    if found.row_order is not None and len(found.row_order) > part.matrix[0]:  # repeats rows
        return PartTensor(_gathered(found).data, found.dtype, found.shape, mapped=False)
    return found


def _with_added_rows(checkpoint: Checkpoint, part: Part) -> PartTensor:
    values = np.zeros(part.shape, np.float32)
    for piece in (replace(part, added=()), *part.added):
        found = read_part(checkpoint, piece)
        if piece.tensor:
            _require_floats(checkpoint, piece, checkpoint.tensor(piece.tensor))
        values += float_values(_gathered(found), found.dtype).reshape(piece.shape)
    return _floats(values)


def _floats(values: NDArray[np.float32]) -> PartTensor:
    stored = np.ascontiguousarray(values, "<f4")
    return PartTensor(stored.reshape(-1).view(np.uint8).data, "F32", values.shape, mapped=False)


def _require_floats(checkpoint: Checkpoint, part: Part, tensor: Tensor) -> None:
    if STORAGE[tensor.dtype][0] != 1:
        raise WeightError(
            f"{checkpoint.file_of(part.tensor)}: tensor {label(part.tensor)} is {tensor.dtype}, "
            "expected F32, F16 or BF16: this model needs its values in another order or changed, "
            "and the values of a block cannot be moved"
        )


def _joined(pieces: list[PartTensor], part: Part) -> PartTensor:
    """The rows of the pieces, one after the other; float32 if their dtypes differ."""
    dtypes = {piece.dtype for piece in pieces}
    if len(dtypes) == 1:
        rows = np.concatenate([_gathered(piece) for piece in pieces])
        return PartTensor(rows.data, dtypes.pop(), part.shape, mapped=False)
    values = [float_values(_gathered(piece), piece.dtype) for piece in pieces]
    return _floats(np.concatenate(values).reshape(part.shape))


def _transposed(tensor: Tensor, part: Part) -> PartTensor:
    """A copy of the chosen rows and columns of a matrix of floats, bit for bit."""
    bits = np.frombuffer(tensor.buffer, _BITS[STORAGE[tensor.dtype][1]]).reshape(tensor.shape)
    matrix = bits if part.slice is None else bits[part.slice]
    if part.transposed:
        matrix = matrix.T
    if part.columns is not None:
        matrix = matrix[:, part.columns.start : part.columns.stop : part.columns.step]
    rows = part.rows
    if isinstance(rows, range):
        matrix = matrix[rows.start : rows.stop : rows.step]
    elif rows is not None:
        matrix = matrix[rows]
    copied = np.ascontiguousarray(matrix)
    return PartTensor(
        copied.reshape(-1).view(np.uint8).data, tensor.dtype, part.shape, mapped=False
    )


def _mapped_rows(tensor: Tensor, part: Part) -> PartTensor:
    """Rows of the mapped file. Rows that follow each other need no order."""
    if part.rows is None and part.slice is None:
        return PartTensor(tensor.buffer, tensor.dtype, part.shape)
    rows = stored_rows(part)
    if isinstance(rows, range):
        low, high, order = rows.start, rows.stop, None
    else:
        low, high = int(rows.min()), int(rows.max()) + 1
        order = (rows - low).astype(np.int32)
    row_bytes = _row_bytes(tensor.dtype, part.matrix)
    buffer = tensor.buffer[low * row_bytes : high * row_bytes]
    return PartTensor(buffer, tensor.dtype, part.shape, order)


def stored_rows(part: Part) -> range | NDArray[np.int64]:
    """For each row of a part that is no copy, its row in the file; a range if they follow each
    other. The rows of a tensor of three dimensions are counted through all its matrices."""
    held = part.matrix[0]
    begin = (part.slice or 0) * held
    rows: range | RowOrder = range(held) if part.rows is None else part.rows
    if isinstance(rows, range) and rows.step == 1:
        return range(begin + rows.start, begin + rows.stop)
    order = np.asarray(rows, np.int64)
    if np.array_equal(order, np.arange(order[0], order[0] + len(order))):
        return range(begin + int(order[0]), begin + int(order[0]) + len(order))
    return begin + order


def _row_bytes(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a row; of a vector, of a value."""
    values, size = STORAGE[dtype]
    if len(shape) < 2:
        return size
    return shape[-1] // values * size


def gathered(found: PartTensor) -> PartTensor:
    """A part with its rows in order: itself where they are, otherwise a copy."""
    if found.row_order is None:
        return found
    return PartTensor(_gathered(found).data, found.dtype, found.shape, mapped=False)


def _gathered(found: PartTensor) -> NDArray[np.uint8]:
    raw = np.frombuffer(found.buffer, np.uint8)
    if found.row_order is None:
        return raw
    rows = raw.reshape(-1, _row_bytes(found.dtype, found.shape))
    return rows[found.row_order].reshape(-1)


def stored_bytes(checkpoint: Checkpoint, name: str) -> int:
    """Bytes of a tensor in its file, without a look at them."""
    dtype, shape = checkpoint.describe(name)
    values, size = STORAGE[dtype]
    return prod(shape) // values * size
