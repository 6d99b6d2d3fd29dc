"""Makes models of published sizes with random weights in memory, without a file or a tokenizer.

The weights are normal with a standard deviation of 0.02, norms are 1, and a seed determines all.
One period of random numbers is repeated, and each tensor begins at a different place in it, so that
making a model costs little more than packing it.
"""

from __future__ import annotations

import sys
from math import prod

import numpy as np
from numpy.typing import NDArray

from onward import _core
from onward.errors import InvalidArgument
from onward.lab.counts.shapes import SHAPES
from onward.load import architectures
from onward.load.loading import Progress, core_spec
from onward.load.weights.dtypes import WeightDtypes, choose_dtypes
from onward.message_text import nearest
from onward.spec import DecoderSpec

_STORED = "BF16"  # the dtype in which all of these were published
DEVIATION = 0.02
_ONE = 0x3F80  # in bf16
_PERIOD = 16777259  # a prime above every size, so that no two rows of a matrix are the same
_HIGH_HALF = 1 if sys.byteorder == "little" else 0
_STRIDE = 1000003  # from the start of one tensor to the start of the next


def synthetic_spec(name: str) -> DecoderSpec:
    """The spec of a published model. Raises InvalidArgument, with the known names, for others."""
    if name not in SHAPES:
        raise InvalidArgument(
            f"synthetic: is {name!r}, expected one of {', '.join(SHAPES)}{nearest(name, SHAPES)}"
        )
    return architectures.read_spec(SHAPES[name], f"synthetic {name}")


def source_bytes(spec: DecoderSpec) -> int:
    """The memory needed to make the weights, besides the weights."""
    return 2 * _source_values(spec) + 4 * _PERIOD


def synthetic_dtypes(spec: DecoderSpec, dtype: str, head_dtype: str | None = None) -> WeightDtypes:
    """The dtypes in which a synthetic model is packed, as if a file stored it in bf16."""
    return choose_dtypes(architectures.tensor_plan(spec), lambda _: _STORED, dtype, head_dtype)


def random_model(
    spec: DecoderSpec,
    dtypes: WeightDtypes,
    threads: int,
    progress: Progress | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> _core.Model:
    """A model with the shape of ``spec``, packed in ``dtypes`` on a device. The same seed gives the
    same weights."""
    plan = architectures.tensor_plan(spec)
    source = _random_values(_source_values(spec), seed)
    builder = _core.ModelBuilder(core_spec(spec), dtypes.cache, threads, device)
    total = sum(planned.size for planned in plan)
    done = begin = 0
    for planned in plan:
        tensors = []
        for shape in planned.shapes:
            if planned.name.endswith("norm"):
                tensors.append(np.full(shape, _ONE, np.uint16))
            else:
                tensors.append(source[begin : begin + prod(shape)].reshape(shape))
            begin = (begin + _STRIDE) % _PERIOD
            done += prod(shape)
        builder.add(
            planned.name,
            [(tensor.data, _STORED, tensor.shape, None) for tensor in tensors],
            dtype=dtypes.matrices.get(planned.name, "f32"),
            mapped=False,
        )
        if progress is not None:
            progress(done, total)
    return builder.finish()


def _source_values(spec: DecoderSpec) -> int:
    """Enough numbers for the largest tensor, from any start in the first period."""
    plan = architectures.tensor_plan(spec)
    return _PERIOD + max(prod(shape) for planned in plan for shape in planned.shapes)


def _random_values(count: int, seed: int) -> NDArray[np.uint16]:
    """(count): the bits of bf16 numbers, one period after the other."""
    values = np.random.default_rng(seed).standard_normal(_PERIOD, dtype=np.float32)
    values *= np.float32(DEVIATION)
    bits = values.view(np.uint16)[_HIGH_HALF::2]  # truncated, not rounded: these are random numbers
    laid = np.empty(count, np.uint16)
    for begin in range(0, count, _PERIOD):
        laid[begin : begin + _PERIOD] = bits[: count - begin]
    return laid
