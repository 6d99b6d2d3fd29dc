"""Which devices there are to compute on, and, of one that cannot be used, why and what to do.

The core finds them, by opening the libraries beside it; this puts names to what it says. Loads no
model and measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from onward import _core


@dataclass(frozen=True)
class Device:
    """One device of this machine, or one that could be."""

    name: str
    """What ``LLM(device=...)`` takes: "cpu", "cuda:0"."""
    description: str
    """Of the hardware, "NVIDIA H200, sm_90, 139.7 GiB"; empty where nothing was found."""
    ready: bool
    why_not: str
    """Why it cannot be used and what was expected; empty where it is ready."""


def devices() -> list[Device]:
    """All there are: "cpu", which is always ready, then each GPU.

    Where no GPU can be used there is one entry that says why: this build has no CUDA, no driver is
    installed, the driver shows no GPU. A test build of the CUDA kernels for the processor is listed
    as "cuda-host" where it is found.
    """
    return [
        Device(name, description, not why_not, why_not)
        for name, description, why_not in _core.devices()
    ]
