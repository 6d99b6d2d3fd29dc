"""The names that GGUF files have for the parts of weights.

They are the same for all families (the ``gguf`` package lists them). A family adds what its files
store in another way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onward.load.architectures.names import Entry, Names, Stored, fused, names

_QKV = fused("attn_qkv", "q", "k", "v")
_EXPERTS = fused("ffn_gate_up_exps", "expert_gate", "expert_up")
_ROLES: dict[str, Entry | tuple[Entry, ...]] = {
    "embed": "token_embd",
    "norm": "output_norm",
    "head": "output",
    "embed_norm": "token_embd_norm",
    "positions": "position_embd",
    "attention_norm": "attn_norm",
    "q": ("attn_q", _QKV),
    "k": ("attn_k", _QKV),
    "v": ("attn_v", _QKV),
    "o": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "sink_logits": "attn_sinks",
    "attention_gate": "attn_gate",
    "attention_post_norm": "post_attention_norm",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "mlp_post_norm": "post_ffw_norm",
    "router": "ffn_gate_inp",
    "router_correction": Stored("exp_probs_b", weight=".bias"),
    # Files of 2023 have a tensor for each expert.
    "expert_gate": ("ffn_gate_exps", _EXPERTS, "ffn_gate.{e}"),
    "expert_up": ("ffn_up_exps", _EXPERTS, "ffn_up.{e}"),
    "expert_down": ("ffn_down_exps", "ffn_down.{e}"),
    "shared_gate": "ffn_gate_shexp",
    "shared_up": "ffn_up_shexp",
    "shared_down": "ffn_down_shexp",
    # Older converters drop a dimension of 1.
    "shared_scale": ("ffn_gate_inp_shexp", Stored("ffn_gate_inp_shexp", as_vector=True)),
}


def gguf_names(family: Names, *, interleaved: bool = False, **roles: Any) -> Names:
    """The table of a family's GGUF files.

    Weights without a tensor, and the pairs that rotate, come from the Hugging Face table of the
    family. Added values of norms and transposed matrices do not: the converter has applied them.

    Args:
        interleaved: see ``Names``.
        roles: what is different from the other families, as for ``names``.
    """
    table = names(model="", layer="blk.{i}.", rotation=family.rotation, **{**_ROLES, **roles})
    without_tensor = {
        role: entries
        for role, entries in family.roles.items()
        if entries[0].constant is not None or entries[0].computed is not None
    }
    return replace(table, roles=table.roles | without_tensor, ignored=(), interleaved=interleaved)
