"""The matrices of all layers, quantised in the order in which tokens meet them.

What a matrix is calibrated with comes through everything that is quantised already, in its own
layer too. So it also learns what the original meets at the same token, and is first moved to where
it makes good for the difference, as far as a linear map can: asymmetric calibration, after Li et
al., "GPTAQ" (2025, arXiv:2504.02692), here in closed form. Then it is rounded by GPTQ. Knows
canonical names and blocks; neither files nor text.
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
"""A mean square that stands for nothing at all, like the epsilon of a norm."""
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
    """Weighted sums over the tokens, where x is what a matrix meets and x' what the original
    meets."""

    second: F64
    """(columns, columns): x x^T."""
    change: F64
    """(columns, columns): (x' - x) x^T."""


def quantised_layer(
    stream: LayerStream,
    original_stream: LayerStream,
    original: Parts,
    format_: BlockFormat,
    done: Callable[[str], None],
) -> dict[str, list[Rounded]]:
    """The matrices of the layer that both streams stand before, each as a list of its parts; the
    streams advance. ``done`` is called after each with its canonical name. NumericsError where what
    a matrix meets cannot be calculated with."""
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
    """From what a matrix meets, and what the original meets there, sequence by sequence.

    Where the product is added to the residual stream, a token counts by 1 / the mean square of that
    stream: what comes after norms it, so an error weighs as a share of it. Otherwise the few tokens
    with streams a hundred times as large as the others' would decide everything."""
    second = change = np.zeros((), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # is checked when all are there
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
        blocks.to_tensor(part.row_order),
        plain_error=output_error(plain.values() - weights, weights, moments.second),
        error=output_error(blocks.values() - weights, weights, moments.second),
    )


def _moved(weights: F32, moments: Moments) -> F32:
    """The weights V with the least sum of |V x - W x'|^2, held to W by a damping."""
    steady = damped(moments.second, DRIFT_DAMPING)
    share: F32 = np.linalg.solve(steady, moments.change.T).T.astype(np.float32)
    return weights + weights @ share
