"""Model files: opened, checked, mapped; one module for each format."""

from __future__ import annotations

from onward.errors import InvalidArgument
from onward.load.hub import ModelFiles
from onward.load.weights.checkpoint import Checkpoint, Tensor
from onward.message_text import label

__all__ = ["Checkpoint", "Tensor", "open_checkpoint"]


def open_checkpoint(files: ModelFiles) -> Checkpoint:
    """Open what ``find_model`` found. Close it when the weights have been taken over."""
    if files.kind == "pack":
        raise InvalidArgument(
            f"{label(files.path.name)}: is a pack, expected the model that it was made of"
        )
    if files.kind == "gguf":
        from onward.load.weights.gguf import GgufCheckpoint

        return GgufCheckpoint(files.path)
    from onward.load.weights.safetensors import SafetensorsCheckpoint

    return SafetensorsCheckpoint(files.path)
