"""Sequences of tokens on their way through a model, one layer at a time, in the C++ core.

Between two layers the residual stream of all tokens is kept. It enters the next layer as the
embedding of a model of that one layer, so that nothing but the core computes the network, and no
more than a layer's weights is in memory. Knows no format and no rounding.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from onward import _core
from onward.loading import core_spec
from onward.quantization.block_formats import F32
from onward.spec import DecoderSpec
from onward.weights import Tensor

Parts = Mapping[str, Sequence[Tensor]]
"""The weights of a layer: canonical name without "layers.{i}.", and the parts of each."""
MATRICES = ("qkv", "o", "gate_up", "down")
"""In the order in which a layer multiplies with them."""


class LayerStream:
    """The residual stream of some sequences before a layer."""

    def __init__(self, spec: DecoderSpec, embedded: F32, length: int, threads: int) -> None:
        """embedded (sequences * length, hidden_size): the embeddings of the tokens."""
        self._spec = spec
        self._residual = embedded
        self._length = length
        self._threads = threads
        self._layer = 0

    def layer_model(self, parts: Parts) -> _core.Model:
        """The present layer with these weights, its embedding the residual stream."""
        spec = dataclasses.replace(
            self._spec,
            vocab_size=len(self._residual),
            num_layers=1,
            tied_head=True,
            windows=self._spec.windows[self._layer : self._layer + 1],
        )
        builder = _core.ModelBuilder(core_spec(spec), "f32", self._threads)
        builder.add("embed", [(self._residual.data, "F32", self._residual.shape, None)])
        norm = np.ones(spec.hidden_size, np.float32)  # of the head, which is never computed
        builder.add("norm", [(norm.data, "F32", norm.shape, None)])
        for name, tensors in parts.items():
            builder.add(
                f"layers.0.{name}", [(t.buffer, t.dtype, t.shape, t.row_order) for t in tensors]
            )
        return builder.finish()

    @property
    def sequences(self) -> list[NDArray[np.int32]]:
        """The rows of the residual stream that belong together."""
        rows = np.arange(len(self._residual), dtype=np.int32)
        return list(rows.reshape(-1, self._length))

    def inputs(self, model: _core.Model, sequence: NDArray[np.int32], matrix: str) -> F32:
        """(length, columns): what one matrix of a layer model is multiplied with."""
        seen: list[F32] = []

        def keep(name: str, x: F32) -> None:
            if name.endswith(f".{matrix}"):
                seen.append(x)
                raise _Enough  # what comes after it in the layer is not needed

        with contextlib.suppress(_Enough):
            _core.observe_inputs(model, sequence, keep, self._threads)
        return seen[0]

    def advance(self, model: _core.Model) -> None:
        """Send everything through a layer model and stand before the next layer."""
        self._residual = np.concatenate(
            [
                _core.observe_inputs(model, sequence, lambda name, x: None, self._threads)
                for sequence in self.sequences
            ]
        )
        self._layer += 1


class _Enough(Exception):
    """Ends a pass whose rest is not needed."""
