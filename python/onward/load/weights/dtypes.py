"""Which dtype each matrix is packed in: the one asked for, or what the file has.

``int8`` and ``int4`` are groups of 32 weights with a scale each, in the codes of GGUF's Q8_0, Q4_0
and Q4_1, so that such a file runs without being rounded again. Knows no file and no arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onward.load.architectures import PlannedTensor

DTYPES = ("auto", "f32", "f16", "bf16", "int8", "int4")
HEAD_DTYPES = DTYPES[1:]

# The core's name for what a caller asks for.
_PACKED = {"f32": "f32", "f16": "f16", "bf16": "bf16", "int8": "q8_0", "int4": "q4_0"}
_ASKED = {packed: asked for asked, packed in _PACKED.items()} | {"q4_1": "int4"}
PACKED_DTYPES = tuple(_ASKED)
# What a quantised file's matrix is packed in. Q4_K has the codes of Q4_1, and scales that f16
# rounds. All others become 8 bits: there Q3_K, IQ4_NL, MXFP4, TQ1_0 and TQ2_0 keep their values,
# IQ4_XS, IQ2_XXS, IQ3_XXS and IQ3_S their codes, and the rest is rounded.
_NATIVE = {
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "Q8_0": "q8_0",
    "Q4_0": "q4_0",
    "Q4_1": "q4_1",
    "Q4_K": "q4_1",
}
_FLOATS = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_HEADS = ("embed", "head")
# Small matrices whose errors cost much (a router) or that several products share (the latents), by
# the ends of their names. They are not rounded to 8 or 4 bits.
_FLOATING = ("router", "shared_gate", "positions", "k_up", "v_up")


@dataclass(frozen=True)
class WeightDtypes:
    """The dtypes of a model in memory, in the core's names but for ``name``."""

    name: str
    """What most of the layers' weights are, as a caller asks for it: one of HEAD_DTYPES."""
    matrices: Mapping[str, str]
    """By canonical name: f32, f16, bf16, q8_0, q4_0 or q4_1."""
    cache: str
    """Of keys and values: f32, f16 or bf16."""


def choose_dtypes(
    plan: Sequence[PlannedTensor],
    stored: Callable[[str], str],
    dtype: str,
    head_dtype: str | None = None,
) -> WeightDtypes:
    """What a model is packed in.

    Args:
        plan: the model's weights.
        stored: the dtype of a tensor in the file, a key of STORAGE.
        dtype: one of DTYPES. "auto" keeps what the file has: bf16 or f16 where every matrix is
            stored so, the quantised formats as they are (those without a kernel of their own as
            int8; onward doctor --docs quantization says which keep their values), else f32.
        head_dtype: the dtype of the embedding and the output head, one of HEAD_DTYPES; None: as
            ``dtype``, but int8 beside int4, unless the file itself has four bits there.
    """
    matrices = {p.name: p for p in plan if len(p.shapes[0]) == 2}
    found = {name: {stored(source) for source in p.sources} for name, p in matrices.items()}
    everything = set().union(*found.values())
    if dtype != "auto":
        chosen = {name: _asked(dtype, found[name], name) for name in matrices}
        for name in _HEADS:
            if chosen.get(name) == "q4_0" and found[name] != {"Q4_0"}:
                chosen[name] = "q8_0"
    elif everything <= set(_FLOATS):
        common = _FLOATS[everything.pop()] if len(everything) == 1 else "f32"
        chosen = dict.fromkeys(matrices, common)
    else:
        chosen = {name: _native(found[name]) for name in matrices}
    if head_dtype is not None:
        chosen |= {name: _asked(head_dtype, found[name], name) for name in _HEADS if name in chosen}
    sizes: Counter[str] = Counter()
    for name, planned in matrices.items():
        if name not in _HEADS:
            sizes[_ASKED[chosen[name]]] += planned.size
    name = sizes.most_common(1)[0][0]
    return WeightDtypes(name, chosen, cache=name if name in ("f32", "bf16") else "f16")


def head_name(dtypes: WeightDtypes) -> str:
    """What the output head, or else the embedding, is in, as a caller asks for it."""
    return _ASKED[dtypes.matrices.get("head", dtypes.matrices["embed"])]


def _asked(dtype: str, stored: set[str], name: str) -> str:
    """Four bits that the file has with a minimum keep it."""
    if name.rpartition(".")[2] in _FLOATING and dtype in ("int8", "int4"):
        if not stored <= set(_FLOATS):
            return _native(stored)
        return _FLOATS[next(iter(stored))] if len(stored) == 1 else "f32"
    if dtype == "int4" and stored <= {"Q4_1", "Q4_K"}:
        return "q4_1"
    return _PACKED[dtype]


def _native(stored: set[str]) -> str:
    packed = {_NATIVE.get(dtype, "q8_0") for dtype in stored}
    if len(packed) == 1:
        return packed.pop()
    return "f32" if packed <= {"f32", "f16", "bf16"} else "q8_0"
