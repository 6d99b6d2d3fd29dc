"""The devices of this machine. For a device that cannot be used: the reason, and what to do.

The core finds the devices by opening the libraries beside it. Nothing is loaded or measured here.
"""

from __future__ import annotations

from dataclasses import dataclass

from onward import _core


@dataclass(frozen=True)
class Device:
    """One device of this machine, or one that is missing."""

    name: str
    """The value for ``LLM(device=...)``: "cpu", "cuda:0"."""
    description: str
    """The hardware: "NVIDIA H200, sm_90, 139.7 GiB"; empty if nothing was found."""
    ready: bool
    why_not: str
    """Why the device cannot be used and what was expected; empty if it is ready."""


def devices() -> list[Device]:
    """All devices: "cpu", which is always ready, then each GPU.

    If no GPU can be used, one entry gives the reason: this build has no CUDA, no driver is
    installed, or the driver shows no GPU. A test build of the CUDA kernels for the processor is
    listed as "cuda-host" if its library is found.
    """
    return [
        Device(name, description, not why_not, why_not)
        for name, description, why_not in _core.devices()
    ]
