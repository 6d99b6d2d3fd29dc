"""The matrices of all layers, quantised in the order in which tokens meet them.

What a matrix is calibrated with comes through everything that is quantised already, in its own
layer too. So it also learns what the original would have met there, and first is moved to where
it makes good for the difference, as far as a linear map can: asymmetric calibration, after Li et
al., "GPTAQ" (2025, arXiv:2504.02692), here in its closed form. Then it is rounded by GPTQ. Knows
canonical names and blocks; neither files nor text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onward import _core
from onward.quantization.block_formats import F32, BlockFormat, rounded_plainly, values_of
from onward.quantization.gptq import F64, damped, output_error, quantised
from onward.quantization.layer_stream import MATRICES, LayerStream, Parts
from onward.weights import Tensor

DRIFT_DAMPING = 0.05
"""How reluctantly a matrix is moved, as a share of the mean of the second moment's diagonal."""


@dataclass(frozen=True)
class Rounded:
    """One matrix in blocks, and how wrong its outputs are on the calibration's inputs."""

    tensor: Tensor
    plain_error: float
    """Of rounding to the nearest, as a share of the outputs (root mean squares)."""
    error: float
    """Of what was done."""


def quantised_layer(
    stream: LayerStream,
    original_stream: LayerStream,
    original: Parts,
    format_: BlockFormat,
    done: Callable[[str], None],
) -> dict[str, list[Rounded]]:
    """The matrices of the layer that both streams stand before, each as a list of its parts; the
    streams advance. ``done`` is called after each with its canonical name."""
    original_model = original_stream.layer_model(original)
    parts = {name: list(tensors) for name, tensors in original.items()}
    results: dict[str, list[Rounded]] = {}
    for name in MATRICES:
        model = stream.layer_model(parts)
        moment, cross = _moments(stream, model, original_stream, original_model, name)
        results[name] = [_rounded(part, moment, cross, format_) for part in parts[name]]
        parts[name] = [rounded.tensor for rounded in results[name]]
        done(name)
    stream.advance(stream.layer_model(parts))
    original_stream.advance(original_model)
    return results


def _moments(
    stream: LayerStream,
    model: _core.Model,
    original_stream: LayerStream,
    original_model: _core.Model,
    name: str,
) -> tuple[F64, F64]:
    """Sums over the inputs x of a matrix, and x' that the original meets at the same token:
    of x x^T, and of x' x^T. (columns, columns) both."""
    moment = cross = np.zeros((), np.float64)
    for sequence in stream.sequences:
        x = stream.inputs(model, sequence, name)
        moment = moment + (x.T @ x).astype(np.float64)
        y = original_stream.inputs(original_model, sequence, name)
        cross = cross + (y.T @ x).astype(np.float64)
    return moment, cross


def _rounded(part: Tensor, moment: F64, cross: F64, format_: BlockFormat) -> Rounded:
    weights = values_of(part)
    blocks = quantised(_moved(weights, moment, cross), moment, format_)
    plain = rounded_plainly(weights, format_)
    return Rounded(
        blocks.to_tensor(part.row_order),
        plain_error=output_error(plain.values() - weights, weights, moment),
        error=output_error(blocks.values() - weights, weights, moment),
    )


def _moved(weights: F32, moment: F64, cross: F64) -> F32:
    """The weights V with the least sum of |V x - W x'|^2, held to W by a damping."""
    if np.isinf(DRIFT_DAMPING):
        return weights
    steady = damped(moment, DRIFT_DAMPING)
    difference = cross - moment  # V = W + W (cross - moment) steady^-1
    share: F32 = np.linalg.solve(steady, difference.T).T.astype(np.float32)
    return weights + weights @ share
