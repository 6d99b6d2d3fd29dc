"""Moves sequences of tokens through a model, one layer at a time, in the C++ core.

Between two layers the residual stream of all tokens is kept. It enters the next layer as the
embedding of a model with only that layer. So the core computes the whole network, and only the
weights of one layer are in memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onward import _core
from onward.load.loading import core_spec
from onward.load.weights import Tensor
from onward.quantization.block_formats import F32
from onward.spec import DecoderSpec, one_layer

Parts = Mapping[str, Sequence[Tensor]]
"""The weights of a layer: canonical name without "layers.{i}.", and the parts of each."""
MATRICES = ("qkv", "o", "gate_up", "down")
"""The matrices in the order in which a layer multiplies with them."""


@dataclass(frozen=True)
class Meeting:
    """One matrix and the tokens of one sequence."""

    x: F32
    """(tokens, columns): the inputs of the matrix."""
    residual: F32 | None
    """(tokens, hidden_size): the stream that the product is added to; None for qkv and gate_up."""


class LayerStream:
    """The residual stream of some sequences before a layer."""

    def __init__(self, spec: DecoderSpec, embedded: F32, length: int, threads: int) -> None:
        """embedded (sequences * length, hidden_size): the embeddings of the tokens."""
        self._spec = spec
        self._residual = embedded
        self._length = length
        self._threads = threads
        self._layer = 0

    @property
    def layer(self) -> int:
        """Index of the next layer."""
        return self._layer

    def layer_model(self, parts: Parts) -> _core.Model:
        """The present layer with these weights. Its embedding is the residual stream."""
        spec = one_layer(self._spec, self._layer, vocab_size=len(self._residual), tied_head=True)
        builder = _core.ModelBuilder(core_spec(spec), "f32", self._threads)
        builder.add("embed", [(self._residual.data, "F32", self._residual.shape, None)], "f32")
        norm = np.ones(spec.hidden_size, np.float32)  # of the head, which is never computed
        builder.add("norm", [(norm.data, "F32", norm.shape, None)], "f32")
        for name, tensors in parts.items():
            builder.add(
                f"layers.0.{name}",
                [(t.buffer, t.dtype, t.shape, None) for t in tensors],
                "f32",
            )
        return builder.finish()

    @property
    def sequences(self) -> list[NDArray[np.int32]]:
        """The rows of the residual stream, one slice for each sequence."""
        rows = np.arange(len(self._residual), dtype=np.int32)
        return list(rows.reshape(-1, self._length))

    def meeting(self, model: _core.Model, sequence: NDArray[np.int32], matrix: str) -> Meeting:
        """The inputs of one matrix of a layer model. Nothing after that matrix is computed."""
        met, _ = self._meetings(model, sequence, last=matrix)
        return met[matrix]

    def through(self, model: _core.Model, keep: Sequence[str] = ()) -> list[dict[str, Meeting]]:
        """Send all sequences through a layer model; the stream then stands before the next layer.

        Returns, for each sequence, the inputs of the matrices in ``keep``.
        """
        kept = []
        left = []
        for sequence in self.sequences:
            met, residual = self._meetings(model, sequence)
            kept.append({name: met[name] for name in keep})
            left.append(residual)
        self._residual = np.concatenate(left)
        self._layer += 1
        return kept

    def _meetings(
        self, model: _core.Model, sequence: NDArray[np.int32], last: str | None = None
    ) -> tuple[dict[str, Meeting], F32]:
        """The inputs of the matrices up to the last one in ``keep``, and the residual stream
        there."""
        met: dict[str, Meeting] = {}
        residual = self._residual[sequence]

        def look(place: str, x: F32, after: F32 | None) -> None:
            nonlocal residual
            name = place.rpartition(".")[2]
            met[name] = Meeting(x, None if after is None else residual)
            if after is not None:
                residual = after
            if name == last:
                raise _Enough

        with contextlib.suppress(_Enough):
            _core.observe_inputs(model, sequence, look, self._threads)
        return met, residual


class _Enough(Exception):
    """Ends a pass whose rest is not needed."""
