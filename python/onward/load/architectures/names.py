"""Tables of the names that a family's files have for the parts of weights.

A family writes ``TENSORS = names(...)`` with its differences from Llama. A role is a part of a
canonical weight (canonical.py): q, gate, norm. Its entry is the name of a module, whose tensors are
``<module>.weight`` and ``<module>.bias``, or a ``Stored`` that says more, or several entries, of
which the first is used whose tensor is in the file or that needs none. Where several have that
tensor, its shape decides. ``o_bias`` is the bias of ``o`` where its entry does not say it. ``{i}``
is the layer, ``{e}`` the expert or the head.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from onward.load.architectures.parts import Change, Computed
from onward.load.architectures.xielu import xielu_parameters

Groups = Literal["one", "heads", "kv_heads"]
Rotation = Literal["halves", "pairs", "backwards", "as_stored"]
Layout = Literal["hugging_face", "gguf"]
"""Which table of a family a file follows."""


@dataclass(frozen=True)
class Stored:
    """Where and how a file keeps a role."""

    module: str = ""
    weight: str = ".weight"
    """What the name of the weight has after the module."""
    bias: str = ".bias"
    roles: tuple[str, ...] = ()
    """All roles whose rows the tensor holds, in their order; empty: this one alone."""
    groups: Groups | int = "one"
    """Such a tensor has this many groups, each with rows of all roles."""
    turns: bool = False
    """The rows of the roles take turns: row 0 of each, row 1 of each."""
    transposed: bool = False
    """(inputs, outputs)."""
    stacked: bool = False
    """One matrix holds all experts; an expert has consecutive rows of it, or consecutive columns if
    it is transposed."""
    first_row: int = 0
    """Rows of the tensor before this one are not read."""
    spare_rows: int = 0
    """Rows at the end of the tensor that are not read."""
    plus: float = 0.0
    """Added to each value, e.g. 1 to the weights of Gemma's norms."""
    constant: float | None = None
    """No tensor: each value is this."""
    computed: Computed | None = None
    """No tensor: the values follow from the shape, e.g. sinusoidal positions."""
    repeated: bool = False
    """One number, which is each value of the part."""
    by_head: bool = False
    """The weight of a norm of heads, stored as (heads, head_dim)."""
    one_row: bool = False
    """A vector that is stored as a matrix of one row."""
    as_vector: bool = False
    """A matrix of one row that is stored as a vector."""
    added: tuple[str, ...] = ()
    """Matrices (whole names below the model) whose first row is added to each row."""
    joined: tuple[str, ...] = ()
    """The tensors (whole names below the layer) whose values are the part, one after the other."""
    scalars: tuple[str, ...] = ()
    """Those of ``joined`` that have no dimension."""
    change: Change | None = None
    """What is done to the values of ``joined``."""

    @property
    def has_tensor(self) -> bool:
        """Whether the values are in the file."""
        return self.constant is None and self.computed is None


Entry = str | Stored
Entries = tuple[Stored, ...]
ONES = Stored(constant=1.0)
"""A norm without a weight."""


def fused(
    module: str,
    *roles: str,
    groups: Groups | int = "one",
    turns: bool = False,
    transposed: bool = False,
    weight: str = ".weight",
    bias: str = ".bias",
) -> Stored:
    """One tensor with the rows of several roles: one after the other, by groups, or in turns."""
    return Stored(module, weight, bias, roles, groups, turns, transposed)


def transposed(module: str) -> Stored:
    """A matrix that is stored as (inputs, outputs), as the Conv1D of GPT-2."""
    return Stored(module, transposed=True)


@dataclass(frozen=True)
class Root:
    """Where the decoder begins in a file: prefixes of its names."""

    model: str
    head: str = ""
    layer: str = ""
    """What names of a layer have next; empty: as the table of the family says."""


# Text models alone, and as a part of multimodal files in several spellings.
_ROOTS = (
    Root("model."),
    Root("model.language_model."),
    Root("language_model.model.", "language_model."),
    Root("language_model.", "language_model."),
    Root("model.text_model."),
    Root("text_model.model.", "text_model."),
    Root(""),
)


@dataclass(frozen=True)
class Names:
    """The table of a family."""

    roots: tuple[Root, ...]
    layer: str
    roles: dict[str, Entries]
    rotation: Rotation = "halves"
    """The pairs of dimensions of a head that rotate together: (i, i + half) of the rotated ones,
    neighbours (2i, 2i + 1), the halves of a head that turns the other way, (i + half, i), or as the
    engine does, (i, i + half) of all."""
    ignored: tuple[str, ...] = ()
    """Ends of the names of tensors that are not read."""
    predicts_further: bool = False
    """Files may have layers that predict further tokens, which are not read: layers after the last
    one, or names that begin with mtp."""
    interleaved: bool = False
    """The two halves of each head of q and k take turns in the file, in all layers: a converter
    has made neighbours of the rows i and i + half. ``rotation`` is about the rows in the order
    before."""

    def is_ignored(self, tensor: str, num_layers: int) -> bool:
        """Whether a tensor is one that a text model of ``num_layers`` layers does not read."""
        if self.predicts_further and _is_further(tensor.removeprefix("model."), num_layers):
            return True
        return tensor.endswith(self.ignored) or self.is_media(tensor)

    def is_media(self, tensor: str) -> bool:
        """Whether a tensor of a multimodal file is for images or sound."""
        return tensor.removeprefix("model.").startswith(MEDIA)


def _is_further(tensor: str, num_layers: int) -> bool:
    layer = re.match(r"layers\.(\d+)\.", tensor)
    return tensor.startswith(("mtp.", "mtp_")) or (
        layer is not None and int(layer.group(1)) >= num_layers
    )


_LLAMA: dict[str, Entry | tuple[Entry, ...]] = {
    "embed": "embed_tokens",
    "norm": "norm",
    "head": "lm_head",
    "embed_norm": "embed_norm",
    "embedding_projection": "embeddings_project",
    "head_dense": "head_dense",
    "head_norm": "head_norm",
    "positions": "embed_positions",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "sink_logits": Stored("self_attn.sinks", weight=""),
    "attention_gate": "self_attn.gate_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "router": "mlp.gate",
    "router_correction": Stored("mlp.gate.e_score_correction_bias", weight=""),
    "expert_gate": (
        "mlp.experts.{e}.gate_proj",
        fused("mlp.experts.gate_up_proj", "expert_gate", "expert_up", weight=""),
    ),
    "expert_up": (
        "mlp.experts.{e}.up_proj",
        fused("mlp.experts.gate_up_proj", "expert_gate", "expert_up", weight=""),
    ),
    "expert_down": ("mlp.experts.{e}.down_proj", Stored("mlp.experts.down_proj", weight="")),
    "shared_gate": "mlp.shared_experts.gate_proj",
    "shared_up": "mlp.shared_experts.up_proj",
    "shared_down": "mlp.shared_experts.down_proj",
    "shared_scale": "mlp.shared_expert_gate",
    "q_a": "self_attn.q_a_proj",
    "q_a_norm": "self_attn.q_a_layernorm",
    "q_b": "self_attn.q_b_proj",
    "kv_a": "self_attn.kv_a_proj_with_mqa",
    "kv_a_norm": "self_attn.kv_a_layernorm",
    "kv_b": "self_attn.kv_b_proj",
    "layer_embed": "embed_tokens_per_layer",
    "layer_projection": "per_layer_model_projection",
    "layer_projection_norm": "per_layer_projection_norm",
    "input_gate": "per_layer_input_gate",
    "input_projection": "per_layer_projection",
    "input_post_norm": "post_per_layer_input_norm",
    "layer_scale": Stored("layer_scalar", weight="", repeated=True),
    "expert_scales": Stored("router.per_expert_scale", weight=""),
    "router_norm": Stored("router.scale", weight=""),
    "inner_norm": "post_feedforward_layernorm_1",
    "experts_norm": "pre_feedforward_layernorm_2",
    "experts_post_norm": "post_feedforward_layernorm_2",
    "attention_post_norm": "self_attn.post_norm",
    "mlp_post_norm": "mlp.post_norm",
    "activation_parameters": Stored(
        joined=(
            "mlp.act_fn.alpha_p",
            "mlp.act_fn.alpha_n",
            "mlp.act_fn.beta",
            "mlp.act_fn.eps",
        ),
        scalars=("mlp.act_fn.beta", "mlp.act_fn.eps"),
        change=xielu_parameters,
    ),
}
_NORMS = (
    *("norm", "embed_norm", "attention_norm", "mlp_norm", "attention_post_norm", "mlp_post_norm"),
    *("q_norm", "k_norm", "layer_projection_norm", "input_post_norm"),
    *("head_norm", "inner_norm", "experts_norm", "experts_post_norm"),
)
MEDIA = (
    *("vision_tower.", "vision_model.", "visual.", "multi_modal_projector.", "audio_tower."),
    *("embed_vision.", "embed_audio.", "vision_embed_tokens.", "image_newline", "vqmodel."),
    *("vision_tokenizer.", "audio_tokenizer.", "image_tower.", "video_tower.", "vision_encoder."),
    *("vision_projection.", "visual_embeddings_table.", "projector.", "mm_projector."),
    *("connector.", "aligner.", "generation_", "high_res_vision_"),
)
"""What the tensors of multimodal files for images and sound begin with."""
# Constants that old checkpoints store beside the weights; they are computed here.
_BUFFERS = (".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached")


def names(
    *,
    model: str | tuple[str | Root, ...] = (),
    layer: str = "layers.{i}.",
    rotation: Rotation = "halves",
    norm_plus: float = 0.0,
    norm_constant: float | None = None,
    ignored: tuple[str, ...] = (),
    predicts_further: bool = False,
    **roles: Entry | tuple[Entry, ...],
) -> Names:
    """The table of a family, as differences from Llama's.

    Args:
        model: what names of the model begin with; several: the one that the file has. Default:
            "model.", and the spellings of multimodal files. "" means no beginning. A ``Root``
            says where the head is, too.
        layer: what names of a layer have next.
        rotation: of q and k, see ``Names``.
        norm_plus: added to the weights of all norms.
        norm_constant: norms have no weight; they multiply by this.
        ignored: ends of the names of tensors that are not read.
        predicts_further: see ``Names``.
        roles: entries by role. The entry of a tensor of several roles (``fused``) stands for all
            of them, under any keyword.
    """
    table = dict(_LLAMA)
    for role, entry in roles.items():
        if isinstance(entry, Stored) and entry.roles:
            table.update(dict.fromkeys(entry.roles, entry))
        elif role.removesuffix("_bias") in table or role in ("k_up", "v_up"):
            table[role] = entry
        else:
            raise ValueError(f"names: there is no role {role!r}")
    entries = {role: _entries(entry) for role, entry in table.items()}
    for role in _NORMS:
        entries[role] = tuple(
            replace(entry, plus=norm_plus) if norm_plus else entry for entry in entries[role]
        )
        if norm_constant is not None and role not in roles:
            entries[role] = (Stored(constant=norm_constant),)
    ignored = (*_BUFFERS, *ignored)
    return Names(_roots(model), layer, entries, rotation, ignored, predicts_further)


def _entries(entry: Entry | tuple[Entry, ...]) -> Entries:
    several = entry if isinstance(entry, tuple) else (entry,)
    return tuple(Stored(each) if isinstance(each, str) else each for each in several)


def _roots(model: str | tuple[str | Root, ...]) -> tuple[Root, ...]:
    if model == ():
        return _ROOTS
    several = model if isinstance(model, tuple) else (model,)
    return tuple(Root(each) if isinstance(each, str) else each for each in several)
