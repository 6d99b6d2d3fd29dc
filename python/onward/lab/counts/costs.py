"""Counts the bytes that a step reads and the multiply-adds that it computes, from the spec.

Read: each matrix, bias and norm once for all rows of a step, the head only where logits are needed,
and the keys and values that a sequence attends to, once for all its tokens of the step. Rows of the
embedding, activations, and repeated reads after a cache miss are not counted. Where the cache is
coded, blocks that are no longer exact are counted with the size of their codes.
Multiplied: the matrices, scores and weighted values. Norms, rotation, gate and softmax are not
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from onward.lab.counts.policy import Policy
from onward.lab.counts.sequences import blocks_for
from onward.lab.counts.vectors import BLOCK_TOKENS, layer_bytes
from onward.load import architectures
from onward.load.architectures.parts import stored_shapes
from onward.load.weights.checkpoint import STORAGE
from onward.load.weights.dtypes import WeightDtypes
from onward.options.kv_dtypes import KvDtypes
from onward.spec import DecoderSpec

LANE = 16
"""Rows and columns of packed weights are padded to multiples of this."""


@dataclass(frozen=True)
class Slice:
    """One sequence's part of a step: ``tokens`` tokens from position ``first`` on. ``logits`` of
    them need logits."""

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
    """The number of learned parameters. A tied head is the embedding and is counted once."""
    return sum(prod(shape) for shape in stored_shapes(architectures.tensor_plan(spec)).values())


def packed_bytes(spec: DecoderSpec, dtypes: WeightDtypes) -> dict[str, int]:
    """Bytes of each canonical weight in memory; vectors are float32."""
    return {
        planned.name: _packed(planned.shapes, dtypes.matrices.get(planned.name, "f32"))
        for planned in architectures.tensor_plan(spec)
    }


def cache_bytes(
    spec: DecoderSpec,
    dtypes: WeightDtypes,
    tokens: int,
    kv: KvDtypes | None = None,
    policy: Policy | None = None,
) -> int:
    """The bytes of the keys and values of one sequence of ``tokens`` tokens, in all layers. ``kv``
    None: the float dtype ``dtypes.cache``."""
    return sum(
        _LayerCache.of(spec, layer, dtypes, kv, policy)(0, tokens)
        for layer in range(spec.num_layers)
    )


class StepCosts:
    """The cost of a step of one model with its cache in ``kv`` (None: float ``dtypes.cache``)."""

    def __init__(
        self,
        spec: DecoderSpec,
        dtypes: WeightDtypes,
        kv: KvDtypes | None = None,
        policy: Policy | None = None,
    ) -> None:
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
        # (window, chunk, multiply-adds for a key, bytes of the cache) -> number of layers.
        self._layers = Counter(
            (
                spec.window(layer),
                spec.chunk(layer),
                spec.heads_of(layer) * (spec.head_dim_of(layer) + spec.value_dim_of(layer)),
                _LayerCache.of(spec, layer, dtypes, kv, policy),
            )
            for layer in range(spec.num_layers)
        )

    def __call__(self, slices: Iterable[Slice]) -> Cost:
        read, multiply_adds = self._layers_bytes, 0
        wants_logits = False
        for part in slices:
            end = part.first + part.tokens
            multiply_adds += part.tokens * self._layers_multiply_adds
            multiply_adds += part.logits * self._head_multiply_adds
            wants_logits |= part.logits > 0
            for (window, chunk, each, cache), layers in self._layers.items():
                read += layers * cache(_first_key(part.first, window, chunk), end)
                keys = sum(
                    position + 1 - _first_key(position, window, chunk)
                    for position in range(part.first, end)
                )
                multiply_adds += layers * each * keys
        return Cost(read + self._head_bytes * wants_logits, multiply_adds)


def _first_key(position: int, window: int, chunk: int) -> int:
    in_window = max(0, position + 1 - window) if window else 0
    return max(in_window, position // chunk * chunk if chunk else 0)


@dataclass(frozen=True)
class _LayerCache:
    """The bytes of tokens [begin, end) in one layer. ``end`` is the length of the sequence."""

    _exact: int
    _coded: int | None
    _policy: Policy

    @staticmethod
    def of(
        spec: DecoderSpec,
        layer: int,
        dtypes: WeightDtypes,
        kv: KvDtypes | None,
        policy: Policy | None,
    ) -> _LayerCache:
        exact = dtypes.cache if kv is None else kv.exact
        numbers = spec.kv_heads_of(layer) * (spec.head_dim_of(layer) + spec.value_dim_of(layer))
        coded = None
        if kv is not None and kv.coded:
            coded = layer_bytes(spec, layer, kv.keys, kv.values)
        return _LayerCache(numbers * STORAGE[exact.upper()][1], coded, policy or Policy())

    def __call__(self, begin: int, end: int) -> int:
        if self._coded is None:
            return self._exact * (end - begin)
        exact_blocks = blocks_for(self._policy.window_tokens) + 1
        first = max(begin, BLOCK_TOKENS * self._policy.sinks)
        coded = max(0, BLOCK_TOKENS * (blocks_for(end) - exact_blocks) - first)
        return self._exact * (end - begin - coded) + self._coded * coded


def _packed(shapes: tuple[tuple[int, ...], ...], dtype: str) -> int:
    """The bytes of parts that are stacked along rows, each padded."""
    if len(shapes[0]) == 1:
        return 4 * sum(_padded(shape[0]) for shape in shapes)
    values, size = STORAGE[dtype.upper()]
    row_bytes = -(-_padded(shapes[0][1]) // values) * size
    return row_bytes * sum(_padded(rows) for rows, _ in shapes)


def _padded(count: int) -> int:
    return -(-count // LANE) * LANE
