"""Quantisation of a model's files, offline: the one place where Python computes on weights.

numpy rounds and solves here; the network itself is computed by the core, as everywhere.
"""

from __future__ import annotations

from onward.quantization.quantizer import Quantization, quantize
from onward.quantization.rewriting import MatrixError

__all__ = ["MatrixError", "Quantization", "quantize"]
