"""What a step has to read and to multiply, counted from the spec.

Read: each matrix, bias and norm once for all rows of a step, the head only where logits are wanted,
and the keys and values that a sequence's tokens see, once for its tokens of the step. Rows of the
embedding, activations, and what is read again because it fell out of a cache, are not counted.
Multiplied: the matrices, scores and weighted values; norms, rotation, gate and softmax are not
counted. Knows neither the core nor time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from onward import architectures
from onward.spec import DecoderSpec
from onward.weights.checkpoint import STORAGE
from onward.weights.dtypes import WeightDtypes

LANE = 16
"""Rows and columns of packed weights are padded to multiples of it."""


@dataclass(frozen=True)
class Slice:
    """One sequence's part of a step: ``tokens`` tokens from position ``first`` on, and of how many
    of them the logits are wanted."""

    first: int
    tokens: int
    logits: int


@dataclass(frozen=True)
class Cost:
    bytes_read: int = 0
    multiply_adds: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.bytes_read + other.bytes_read, self.multiply_adds + other.multiply_adds)


def parameters(spec: DecoderSpec) -> int:
    """Numbers that the model has learned; a tied head is the embedding."""
    return sum(
        prod(shape) for planned in architectures.tensor_plan(spec) for shape in planned.shapes
    )


def packed_bytes(spec: DecoderSpec, dtypes: WeightDtypes) -> dict[str, int]:
    """Bytes of each canonical weight in memory; vectors are float32."""
    return {
        planned.name: _packed(planned.shapes, dtypes.matrices.get(planned.name, "f32"))
        for planned in architectures.tensor_plan(spec)
    }


def cache_bytes(spec: DecoderSpec, dtypes: WeightDtypes, tokens: int) -> int:
    """Keys and values of so many tokens, all layers."""
    return spec.num_layers * _cache_bytes(spec, dtypes.cache, tokens)


class StepCosts:
    """The cost of a step of one model."""

    def __init__(self, spec: DecoderSpec, dtypes: WeightDtypes) -> None:
        self._spec, self._cache_dtype = spec, dtypes.cache
        packed = packed_bytes(spec, dtypes)
        head = "embed" if spec.tied_head else "head"
        self._head_bytes = packed[head] + packed["norm"]
        self._layers_bytes = sum(
            count for name, count in packed.items() if name.startswith("layers.")
        )
        self._head_multiply_adds = spec.vocab_size * spec.hidden_size
        self._layers_multiply_adds = sum(
            prod(shape)
            for planned in architectures.tensor_plan(spec)
            for shape in planned.shapes
            if planned.name.startswith("layers.") and len(shape) == 2
        )
        # Window -> how many layers have it.
        self._windows = Counter(spec.windows or [0] * spec.num_layers)

    def __call__(self, slices: Iterable[Slice]) -> Cost:
        spec = self._spec
        read, multiply_adds = self._layers_bytes, 0
        wants_logits = False
        for part in slices:
            end = part.first + part.tokens
            multiply_adds += part.tokens * self._layers_multiply_adds
            multiply_adds += part.logits * self._head_multiply_adds
            wants_logits |= part.logits > 0
            for window, layers in self._windows.items():
                begin = max(0, part.first + 1 - window) if window else 0
                read += layers * _cache_bytes(spec, self._cache_dtype, end - begin)
                keys = sum(
                    min(position + 1, window) if window else position + 1
                    for position in range(part.first, end)
                )
                multiply_adds += layers * 2 * spec.num_heads * spec.head_dim * keys
        return Cost(read + self._head_bytes * wants_logits, multiply_adds)


def _cache_bytes(spec: DecoderSpec, dtype: str, tokens: int) -> int:
    return 2 * spec.num_kv_heads * spec.head_dim * tokens * STORAGE[dtype.upper()][1]


def _packed(shapes: tuple[tuple[int, ...], ...], dtype: str) -> int:
    """Parts are stacked along rows, each padded."""
    if len(shapes[0]) == 1:
        return 4 * sum(_padded(shape[0]) for shape in shapes)
    values, size = STORAGE[dtype.upper()]
    row_bytes = -(-_padded(shapes[0][1]) // values) * size
    return row_bytes * sum(_padded(rows) for rows, _ in shapes)


def _padded(count: int) -> int:
    return -(-count // LANE) * LANE
