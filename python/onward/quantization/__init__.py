"""Quantisation of model files, offline. This is the only place where Python computes on weights.

numpy rounds and solves the equations here. The core computes the network itself, as always.
"""

from __future__ import annotations

from onward.quantization.quantizer import Quantization, quantize
from onward.quantization.rewriting import MatrixError

__all__ = ["MatrixError", "Quantization", "quantize"]
