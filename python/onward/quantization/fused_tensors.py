"""Tensors that hold several parts of a matrix (q, k and v in one): their parts are quantised one by
one and put back in the tensor's order of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np

from onward.errors import InvalidArgument
from onward.load.architectures.parts import Part, PlannedTensor, Shape
from onward.load.weights import Tensor
from onward.load.weights.checkpoint import STORAGE
from onward.load.weights.part_reader import stored_rows
from onward.message_text import label


def stacked(stored: Tensor, parts: Sequence[tuple[Part, Tensor]]) -> Tensor:
    """A tensor like ``stored`` in the blocks of its parts, which together are all of its rows."""
    part, made = parts[0]
    if part.is_whole:
        return made
    values, size = STORAGE[made.dtype]
    rows = np.empty((prod(stored.shape[:-1]), stored.shape[-1] // values * size), np.uint8)
    for part, made in parts:
        blocks = np.frombuffer(made.buffer, np.uint8).reshape(made.shape[0], -1)
        rows[np.asarray(stored_rows(part))] = blocks
    return Tensor(rows.reshape(-1).data, made.dtype, stored.shape)


def rows_name(part: Part) -> str:
    """The tensor of a part, with the place of its rows if the tensor has others, too."""
    if part.slice is None and part.shape[0] == part.matrix[0]:
        return part.tensor  # all rows, in whatever order
    rows = np.arange(part.matrix[0]) if part.rows is None else np.asarray(part.rows)
    place = "" if part.slice is None else f"{part.slice}, "
    return f"{part.tensor}[{place}{rows.min()}..{rows.max()}]"


def check_calibration(
    plan: Mapping[str, PlannedTensor], names: Iterable[str], stored: Mapping[str, Shape]
) -> None:
    """Check that the weights of these names can be calibrated.

    Raises:
        InvalidArgument: the model does not have them all, or a tensor has rows of other weights.
    """
    for name in names:
        if name not in plan:
            raise InvalidArgument(
                f"method: 'gptq' needs {name}, which this model does not have, expected 'round'"
            )
        rows: Counter[str] = Counter()
        for part in plan[name].parts:
            rows[part.tensor] += part.shape[0]
        for tensor, count in rows.items():
            if count != prod(stored[tensor][:-1]):
                raise InvalidArgument(
                    f"method: 'gptq' needs a tensor for {name}, but {label(tensor)} has other "
                    "rows, too, expected 'round'"
                )
