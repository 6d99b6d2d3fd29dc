"""Refuses stored weights that are NaN or infinite, for what writes a model into a new file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from onward.errors import WeightError
from onward.load.weights.checkpoint import STORAGE, Checkpoint, float_values
from onward.message_text import label

_CHUNK_BYTES = 4 << 20
"""Of a tensor, read at a time."""
# Where the float16 scales and minimums of a block are. All other parts of a block are integers that
# keep the product of a finite scale finite.
_SCALES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    **{"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,)},
}
_LARGE_EXPONENT = 253
"""Of MXFP4: from here on its largest values are beyond float32."""


def check_finite(checkpoint: Checkpoint, name: str) -> None:
    """Read all values of a tensor.

    Raises:
        WeightError: one of them is NaN or infinite. Such a model gives no usable logits.
    """
    tensor = checkpoint.tensor(name)
    raw = np.frombuffer(tensor.buffer, np.uint8)
    size = STORAGE[tensor.dtype][1]
    step = _CHUNK_BYTES // size * size
    for begin in range(0, len(raw), step):
        if not is_finite(raw[begin : begin + step], tensor.dtype):
            raise WeightError(
                f"{checkpoint.file_of(name)}: tensor {label(name)} has values that are not "
                "finite, expected finite ones; make or download the file again"
            )


def is_finite(raw: NDArray[np.uint8], dtype: str) -> bool:
    """Whether whole values or blocks of a dtype of STORAGE hold neither NaN nor infinity."""
    from onward import _core

    block, size = STORAGE[dtype]
    if block == 1:
        return bool(np.isfinite(float_values(raw, dtype)).all())
    blocks = raw.reshape(-1, size)
    if dtype == "MXFP4":
        large = np.ascontiguousarray(blocks[blocks[:, 0] >= _LARGE_EXPONENT])
        return not len(large) or bool(
            np.isfinite(_core.kernels.repacked(large, "mxfp4", "f32")).all()
        )
    scales = [blocks[:, at : at + 2].copy().view("<f2") for at in _SCALES.get(dtype, (0,))]
    return all(bool(np.isfinite(scale).all()) for scale in scales)
