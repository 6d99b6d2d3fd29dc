"""The list of engines with their weights and environments; plain data.

A precision is the dtype of the stored weights. Engines differ in the dtypes of their arithmetic and
their cache.
"""

from __future__ import annotations

from dataclasses import dataclass

PRECISIONS = ("f32", "bf16", "int8", "int4")
PEERS = ("llama.cpp", "CTranslate2", "transformers", "OpenVINO")
ISAS = ("native", "avx2")
BYTES = {"f32": 4.0, "bf16": 2.0, "int8": 1.1, "int4": 0.7}
"""Bits of a weight, including its scales."""
# Memory for a second copy of the weights in another layout, and for the engine itself.
SLACK = 1.3
ENGINE_BYTES = 600 << 20


@dataclass(frozen=True)
class Entry:
    """One engine with one kind of weights."""

    engine: str
    precision: str
    weights: str
    """The dtype in the terms of the engine."""
    environment: str
    """The environment; empty: the Python that runs the script."""
    isa: str = "native"

    @property
    def name(self) -> str:
        return f"{self.engine} {self.weights}"

    @property
    def variables(self) -> dict[str, str]:
        """Of the process."""
        return {"ONWARD_CPU_ISA": self.isa} if self.is_onward and self.isa != "native" else {}

    @property
    def is_onward(self) -> bool:
        return self.engine == "onward"

    def memory_bytes(self, parameters: int) -> float:
        return SLACK * BYTES[self.precision] * parameters + ENGINE_BYTES


WEIGHTS = {
    "llama.cpp": {"f32": "F32", "bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"},
    "CTranslate2": {"f32": "float32", "bf16": "bfloat16", "int8": "int8_float32"},
    "transformers": {"f32": "float32", "bf16": "bfloat16"},
    "OpenVINO": {precision: precision for precision in PRECISIONS},
}
OF_ISA = {
    "native": {
        "llama.cpp": "llama.cpp-native",
        "CTranslate2": "ctranslate2",
        "transformers": "transformers",
        "OpenVINO": "openvino",
    },
    # The other engines choose their instructions at run time; they cannot be limited.
    "avx2": {"llama.cpp": "llama.cpp-avx2"},
}


def lineup(precision: str, peers: list[str], isa: str) -> tuple[Entry, list[Entry]]:
    """onward, and the engines that it is compared with."""
    environments = OF_ISA[isa]
    found = [
        Entry(peer, precision, WEIGHTS[peer][precision], environments[peer])
        for peer in peers
        if precision in WEIGHTS[peer] and peer in environments
    ]
    return Entry("onward", precision, precision, "", isa), found


def heats(own: Entry, peers: list[Entry], parameters: int, memory: float) -> list[list[Entry]]:
    """The other engines in groups that fit into memory together with onward, in order; at least one
    group."""
    found: list[list[Entry]] = []
    taken = 0.0
    for peer in peers:
        size = peer.memory_bytes(parameters)
        if not found or taken + size > memory:
            found.append([])
            taken = own.memory_bytes(parameters)
        found[-1].append(peer)
        taken += size
    return found
