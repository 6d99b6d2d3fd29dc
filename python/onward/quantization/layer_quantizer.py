"""Quantises the matrices of all layers in the order in which tokens pass them.

The inputs that calibrate a matrix have passed all matrices that are quantised already, also those
of its own layer. For each token the inputs in the original model are known, too. A matrix is first
changed so that it corrects the difference, as far as a linear map can: asymmetric calibration,
after Li et al., "GPTAQ" (2025, arXiv:2504.02692), here in closed form. Then GPTQ rounds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from onward.errors import NumericsError
from onward.load.weights import Tensor
from onward.quantization.block_formats import F32, BlockFormat, rounded_plainly, values_of
from onward.quantization.gptq import F64, damped, output_error, quantised
from onward.quantization.layer_stream import MATRICES, LayerStream, Meeting, Parts

SILENCE = 1e-6
"""Mean squares below this count as this, like the epsilon of a norm."""
DRIFT_DAMPING = 0.05
"""How strongly a matrix is held at its original values, as a share of the mean of the diagonal
of the second moment."""


@dataclass(frozen=True)
class Rounded:
    """One matrix in blocks, and the errors of its outputs on the calibration inputs."""

    tensor: Tensor
    plain_error: float
    """The error of rounding to the nearest, as a share of the outputs (root mean squares)."""
    error: float
    """The error of this result, in the same unit."""


@dataclass
class Moments:
    """Weighted sums over the tokens, where x is the input of a matrix and x' its input in the
    original model."""

    second: F64
    """(columns, columns): sum of x x^T."""
    change: F64
    """(columns, columns): sum of (x' - x) x^T."""


def quantised_layer(
    stream: LayerStream,
    original_stream: LayerStream,
    original: Parts,
    format_: BlockFormat,
    done: Callable[[str], None],
) -> dict[str, list[Rounded]]:
    """Quantise the matrices of the layer that both streams have reached; the streams advance.

    Returns each matrix as a list of its parts. ``done`` is called after each with its canonical
    name.

    Raises:
        NumericsError: the inputs of a matrix are not finite.
    """
    theirs = original_stream.through(original_stream.layer_model(original), keep=MATRICES)
    parts = {name: list(tensors) for name, tensors in original.items()}
    results: dict[str, list[Rounded]] = {}
    for name in MATRICES:
        model = stream.layer_model(parts)
        pairs = (
            (stream.meeting(model, sequence, name), met.pop(name))
            for sequence, met in zip(stream.sequences, theirs, strict=True)
        )
        moments = _moments(pairs)
        where = f"layers.{stream.layer}.{name}"
        _check_finite(moments, where)
        try:
            results[name] = [_rounded(part, moments, format_) for part in parts[name]]
        except np.linalg.LinAlgError as failure:
            raise NumericsError(
                f"{where}: calibration: the second moment of its inputs has no factor ({failure}), "
                "expected a positive definite matrix"
            ) from failure
        parts[name] = [rounded.tensor for rounded in results[name]]
        done(name)
    stream.through(stream.layer_model(parts))
    return results


def _moments(pairs: Iterable[tuple[Meeting, Meeting]]) -> Moments:
    """Sums over the inputs of a matrix and its inputs in the original model, sequence by sequence.

    If the product is added to the residual stream, each token has the weight 1 / mean square of
    that stream. The reason: the next layers normalise the stream, so an error counts relative to
    it. Without this weight the few tokens whose streams are a hundred times as large as the others
    would decide everything.
    """
    second = change = np.zeros((), np.float64)
    # The result is checked when all sums are done.
    with np.errstate(over="ignore", invalid="ignore"):
        for here, there in pairs:
            x, weighted = here.x, here.x
            if here.residual is not None:
                size = np.square(here.residual).mean(axis=1, keepdims=True)  # (tokens, 1)
                weighted = here.x / (size + SILENCE)
            second = second + (x.T @ weighted).astype(np.float64)
            change = change + ((there.x - x).T @ weighted).astype(np.float64)
    return Moments(second, change)


def _check_finite(moments: Moments, where: str) -> None:
    for moment in (moments.second, moments.change):
        wrong = int(moment.size - np.isfinite(moment).sum())
        if wrong:
            raise NumericsError(
                f"{where}: calibration: {wrong} of {moment.size} products of its inputs are not "
                "finite, expected finite ones"
            )


def _rounded(part: Tensor, moments: Moments, format_: BlockFormat) -> Rounded:
    weights = values_of(part)
    blocks = quantised(_moved(weights, moments), moments.second, format_)
    plain = rounded_plainly(weights, format_)
    return Rounded(
        blocks.to_tensor(),
        plain_error=output_error(plain.values() - weights, weights, moments.second),
        error=output_error(blocks.values() - weights, weights, moments.second),
    )


def _moved(weights: F32, moments: Moments) -> F32:
    """The weights V with the least sum of |V x - W x'|^2, held near W by a damping term."""
    steady = damped(moments.second, DRIFT_DAMPING)
    share: F32 = np.linalg.solve(steady, moments.change.T).T.astype(np.float32)
    return weights + weights @ share
