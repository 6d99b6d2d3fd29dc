"""What every kind of model file offers: a config, and named tensors that are mapped, not read.

Knows no file format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from onward.load.architectures.names import Layout

# dtype: (values in a block, bytes of a block). The quantised blocks are the blocks of GGUF. The
# core has the same table in csrc/base/dtype.cpp; tests compare both with the gguf package.
STORAGE: dict[str, tuple[int, int]] = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q8_0": (32, 2 + 32),  # f16 scale, 32 int8
    "Q4_0": (32, 2 + 16),  # f16 scale, 32 nibbles
    "Q4_1": (32, 2 + 2 + 16),  # f16 scale, f16 minimum, 32 nibbles
    "Q5_0": (32, 2 + 4 + 16),  # f16 scale, 32 fifth bits, 32 nibbles
    "Q5_1": (32, 2 + 2 + 4 + 16),  # f16 scale, f16 minimum, 32 fifth bits, 32 nibbles
    # f16 scales of scales and of minimums, 8 of each in 6 bits, 256 nibbles
    "Q4_K": (256, 2 + 2 + 12 + 128),
    "Q5_K": (256, 2 + 2 + 12 + 32 + 128),  # the same with 256 fifth bits
    "Q6_K": (256, 128 + 64 + 16 + 2),  # 256 nibbles, 256 bit pairs, 16 int8 scales, f16 scale
    "Q2_K": (256, 16 + 64 + 4),  # nibbles of scales and minimums, 256 bit pairs, f16 scales of them
    "Q3_K": (256, 32 + 64 + 12 + 2),  # 256 third bits, 256 bit pairs, 16 scales of 6 bits, f16
    "IQ4_NL": (32, 2 + 16),  # f16 scale, 32 nibbles: places in a table of 16 values
    "IQ4_XS": (256, 4 + 4 + 128),  # f16 scale, 8 scales of 6 bits, 256 nibbles of the same table
    "MXFP4": (32, 1 + 16),  # an exponent of 8 bits, 32 floats of 4 bits
    "TQ1_0": (256, 48 + 4 + 2),  # 256 base-3 digits, 5 or 4 to a byte, f16 scale
    "TQ2_0": (256, 64 + 2),  # 256 bit pairs with 3 values, f16 scale
    # Places in grids of 8 or 4 values, signs, scales of scales
    **{"IQ2_XXS": (256, 66), "IQ2_XS": (256, 74), "IQ2_S": (256, 82)},
    **{"IQ3_XXS": (256, 98), "IQ3_S": (256, 110)},
}


def unsupported(dtype: str) -> str:
    """What a message says of a tensor whose dtype cannot be read, without a subject."""
    advice = ""
    if dtype.startswith(("Q", "IQ", "TQ", "NVFP")):  # a quantised format of GGUF
        advice = (
            "; make the file anew from the original weights in one of them, for example with "
            "llama.cpp's llama-quantize and Q4_K_M"
        )
    return f"has unsupported dtype {dtype}, expected one of {', '.join(STORAGE)}{advice}"


def float_values(raw: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    """Bytes of F32, F16 or BF16 as float32, in one dimension."""
    if dtype == "F32":
        return raw.view("<f4").astype(np.float32)
    if dtype == "F16":
        return raw.view("<f2").astype(np.float32)
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class Tensor:
    """A tensor as the file stores it, row-major.

    The buffer may start at any address: files do not promise alignment.
    """

    buffer: memoryview
    dtype: str  # a key of STORAGE
    shape: tuple[int, ...]


class SourceFile(NamedTuple):
    """A file that tensors come from, as it was when it was opened."""

    path: str  # absolute, links followed
    size: int
    modified_ns: int


class Checkpoint(Protocol):
    """An opened model. Tensors have the names of the file."""

    layout: Layout
    """Which table of names a family has for the file."""
    where: str
    """What messages about the config open with."""
    config: dict[str, Any]
    generation_config: dict[str, Any]
    metadata: Mapping[str, object]

    def names(self) -> set[str]:
        """The tensors there are."""

    def describe(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The dtype and shape of a tensor; touches none of its bytes. The dtype may be one that
        ``tensor`` refuses."""

    def file_of(self, name: str) -> str:
        """The name of the file that holds a tensor, for messages."""

    def sources(self) -> list[SourceFile]:
        """All files that decide what the tensors are; the config is not among them."""

    def tensor(self, name: str) -> Tensor:
        """The bytes of a tensor; WeightError if its dtype is not supported."""

    def release(self, name: str) -> None:
        """Give the memory of a tensor's pages back; they are read again if looked at again."""

    def check_unchanged(self) -> None:
        """WeightError where a file was written again since it was opened: what was read of it may
        be a mixture of old and new bytes."""

    def close(self) -> None:
        """Give up the files. Buffers still held elsewhere stay valid."""
