"""The documented place of ``chain``, which names the active stages of the sampler in order."""

from onward.options.for_engine import chain

__all__ = ["chain"]
