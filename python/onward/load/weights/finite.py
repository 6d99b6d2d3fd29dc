"""Refuses stored weights that are NaN or infinite, for what writes a model into a new file."""

from __future__ import annotations

import numpy as np

from onward.errors import WeightError
from onward.load.weights.checkpoint import STORAGE, Checkpoint, float_values
from onward.message_text import label

_CHUNK_BYTES = 4 << 20
"""Of a tensor, converted at a time: the float32 values of a chunk take at most 19 times that."""


def check_finite(checkpoint: Checkpoint, name: str) -> None:
    """Read all values of a tensor.

    Raises:
        WeightError: one of them is NaN or infinite. Such a model gives no usable logits.
    """
    from onward import _core

    tensor = checkpoint.tensor(name)
    raw = np.frombuffer(tensor.buffer, np.uint8)
    block, size = STORAGE[tensor.dtype]
    step = _CHUNK_BYTES // size * size
    for begin in range(0, len(raw), step):
        chunk = raw[begin : begin + step]
        if block == 1:
            values = float_values(chunk, tensor.dtype)
        else:  # a chunk is read as a matrix of one row
            values = _core.kernels.repacked(chunk[None], tensor.dtype.lower(), "f32")
        if not np.isfinite(values).all():
            raise WeightError(
                f"{checkpoint.file_of(name)}: tensor {label(name)} has values that are not "
                "finite, expected finite ones; make or download the file again"
            )
