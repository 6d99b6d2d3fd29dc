"""Model files: opened, checked, mapped; one module for each format."""

from __future__ import annotations

from onward.hub import ModelFiles
from onward.weights.checkpoint import Checkpoint, Tensor

__all__ = ["Checkpoint", "Tensor", "open_checkpoint"]


def open_checkpoint(files: ModelFiles) -> Checkpoint:
    """Open what ``find_model`` found. Close it when the weights have been taken over."""
    if files.kind == "gguf":
        from onward.weights.gguf import GgufCheckpoint

        return GgufCheckpoint(files.path)
    from onward.weights.safetensors import SafetensorsCheckpoint

    return SafetensorsCheckpoint(files.path)
