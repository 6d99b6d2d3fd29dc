"""The matrices of all layers, quantised in the order in which tokens meet them.

What a matrix is calibrated with comes through everything that is quantised already, in its own
layer too. So it also learns what the original meets at the same token, and is first moved to where
it makes good for the difference, as far as a linear map can: asymmetric calibration, after Li et
al., "GPTAQ" (2025, arXiv:2504.02692), here in closed form, and for the residual stream as well.
Then it is rounded by GPTQ. Knows canonical names and blocks; neither files nor text.
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


@dataclass
class Moments:
    """Sums over the tokens, where x is what a matrix meets and x' what the original meets."""

    second: F64
    """(columns, columns): x x^T."""
    change: F64
    """(columns, columns): (x' - x) x^T."""
    debt: F64 | None
    """(rows, columns): (r' - r) x^T, where the product is added to a residual stream r; r' is that
    of the original."""


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
        moments = _moments(stream, model, original_stream, original_model, name)
        results[name] = [_rounded(part, moments, format_) for part in parts[name]]
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
) -> Moments:
    second = change = debt = np.zeros((), np.float64)
    for sequence in stream.sequences:
        here = stream.meeting(model, sequence, name)
        there = original_stream.meeting(original_model, sequence, name)
        second = second + (here.x.T @ here.x).astype(np.float64)
        change = change + ((there.x - here.x).T @ here.x).astype(np.float64)
        if here.residual is not None and there.residual is not None:
            debt = debt + ((there.residual - here.residual).T @ here.x).astype(np.float64)
    return Moments(second, change, debt if debt.ndim else None)


def _rounded(part: Tensor, moments: Moments, format_: BlockFormat) -> Rounded:
    weights = values_of(part)
    blocks = quantised(_moved(weights, moments), moments.second, format_)
    plain = rounded_plainly(weights, format_)
    return Rounded(
        blocks.to_tensor(part.row_order),
        plain_error=output_error(plain.values() - weights, weights, moments.second),
        error=output_error(blocks.values() - weights, weights, moments.second),
    )


def _moved(weights: F32, moments: Moments) -> F32:
    """The weights V with the least sum of |(V x + r) - (W x' + r')|^2, held to W by a damping."""
    wanted = weights.astype(np.float64) @ moments.change  # (rows, columns)
    if moments.debt is not None:
        wanted += moments.debt
    steady = damped(moments.second, DRIFT_DAMPING)
    moved: F32 = (weights + np.linalg.solve(steady, wanted.T).T).astype(np.float32)
    return moved
