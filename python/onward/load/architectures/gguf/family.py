"""What a family's GGUF files say: keys of the metadata, and the config that they stand for.

llama.cpp's converter decides what a file has, and llama.cpp what a missing key means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from onward.load.architectures.gguf.names import gguf_names
from onward.load.architectures.names import Names

Config = dict[str, Any]

# Keys below "<architecture>." -> fields of config.json. Every file has the required ones.
_REQUIRED = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
}
_OPTIONAL = {
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
}
RMS = {"attention.layer_norm_rms_epsilon": "rms_norm_eps"}
"""The key and the field of the epsilon of RMS norms, for ``eps``."""

QKV_BIAS = ("attn_q.bias", "attn_qkv.bias")
MLP_BIAS = ("ffn_up.bias",)
"""For ``from_tensors``: the tensors, of which a file with biases has one."""


def layer_norm(eps_field: str) -> dict[str, str]:
    """The key and the field of the epsilon of layer norms, for ``eps``."""
    return {"attention.layer_norm_epsilon": eps_field}


@dataclass(frozen=True)
class GgufFamily:
    """The GGUF files of a family."""

    names: Names
    required: Mapping[str, str]
    """Keys of the architecture -> fields of config.json."""
    optional: Mapping[str, str]
    """The same for keys that a file may lack."""
    same: Mapping[str, object] = field(default_factory=dict)
    """Keys with the one value that they may have, where they are present."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    """Fields of config.json that the architecture decides."""
    from_tensors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields that are true where layer 0 has one of these tensors."""
    rotates: bool = True
    partial: bool = False
    """Whether ``rope.dimension_count`` may be less than the size of a head."""
    yarn: Mapping[str, object] = field(default_factory=dict)
    """Fields of a section of YaRN that the architecture decides."""
    full_every: int = 0
    """Every n-th layer has no window, unless ``attention.sliding_window_pattern`` says otherwise;
    0: the family has no windows, or ``attention.sliding_window`` is one of ``optional``."""
    default_window: int = 0
    """Where ``attention.sliding_window`` is absent; 0: then no layer has a window."""
    complete: Callable[[Config], Config] | None = None
    """More fields, from the others: what the file does not say."""


def gguf(
    family: Names,
    *,
    eps: Mapping[str, str] = RMS,
    required: Mapping[str, str] | None = None,
    optional: Mapping[str, str] | None = None,
    same: Mapping[str, object] | None = None,
    fixed: Mapping[str, object] | None = None,
    from_tensors: Mapping[str, tuple[str, ...]] | None = None,
    rotates: bool = True,
    partial: bool = False,
    yarn: Mapping[str, object] | None = None,
    full_every: int = 0,
    default_window: int = 0,
    complete: Callable[[Config], Config] | None = None,
    interleaved: bool = False,
    **roles: Any,
) -> GgufFamily:
    """The GGUF files of a family, as differences from the common keys and names.

    Args:
        family: the table of its Hugging Face names.
        eps: RMS, or ``layer_norm(...)``.
        interleaved, roles: as for ``gguf_names``. The others: see ``GgufFamily``; ``required`` and
            ``optional`` are keys besides the common ones.
    """
    rope = {"rope.freq_base": "rope_theta"} if rotates else {}
    return GgufFamily(
        names=gguf_names(family, interleaved=interleaved, **roles),
        required={**_REQUIRED, **eps, **(required or {})},
        optional={**_OPTIONAL, **rope, **(optional or {})},
        same=same or {},
        fixed=fixed or {},
        from_tensors=from_tensors or {},
        rotates=rotates,
        partial=partial,
        yarn=yarn or {},
        full_every=full_every,
        default_window=default_window,
        complete=complete,
    )
