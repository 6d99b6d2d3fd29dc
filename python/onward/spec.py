"""DecoderSpec: what differs between decoder families, as data.

A family file (``onward/load/architectures/families/<model_type>.py``) writes one from a config; the
C++ core reads it. csrc/model/{decoder_spec,layer_spec}.h list the same fields with their ranges and
say what each one does to the arithmetic. A test compares names, types and defaults.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

_T = TypeVar("_T")
_ADDED = "added"


def _added(default: _T) -> _T:
    """A field that onward 0.1.0 does not have. Files hold it only where it differs from its
    default, so that packs, fingerprints and packed weights of models that do not need it stay as
    they are."""
    return dataclasses.field(default=default, metadata={_ADDED: True})


@dataclass(frozen=True)
class RopeSpec:
    """Rotary position embedding (Su et al. 2021), half-split pairs over the whole head.

    ``inv_freq`` has ``head_dim // 2`` angles per position step, already scaled (linear, llama3,
    yarn); ``attention_factor`` multiplies cos and sin (yarn). ``dynamic_factor`` > 0 turns on
    dynamic NTK scaling: position ``p >= dynamic_original_context`` uses the frequencies of a
    sequence of length ``p + 1``, with base ``theta * ((factor * length / original) - (factor - 1))
    ** (head_dim / (head_dim - 2))``. Each position's frequencies depend on that position alone, so
    a cached key never has to be rotated again.
    """

    inv_freq: tuple[float, ...]
    attention_factor: float = 1.0
    theta: float = 10000.0
    dynamic_factor: float = 0.0
    dynamic_original_context: int = 0


@dataclass(frozen=True)
class NormSpec:
    """The norms of a model: before and after the blocks of a layer, and before the head."""

    kind: str = "rms"
    """"rms": RMSNorm (Zhang & Sennrich 2019); "layer": LayerNorm (Ba et al. 2016)."""
    bias: bool = False
    before: bool = True
    """A norm of the input of each block."""
    after: bool = False
    """A norm of the output of each block, before it is added to the residual stream."""
    embedding: bool = False
    """A norm of the embedded tokens."""
    sums: bool = False
    """A norm of the residual stream after each addition, as in the first Transformer."""
    final: bool = True
    """A norm of the input of the head."""


@dataclass(frozen=True)
class AttentionSpec:
    """Attention, besides the numbers of heads and the windows."""

    scale: float = 0.0
    """The factor of scores; 0: 1 / sqrt(head_dim)."""
    softcap: float = 0.0
    """score = softcap * tanh(score / softcap); 0: none."""
    clip: float = 0.0
    """q, k and v are limited to [-clip, clip]; 0: not."""
    sink_logits: bool = False
    """One more logit for each head in the softmax, without a value (gpt-oss)."""
    output_gate: str = "none"
    """The output is multiplied by the sigmoid of a projection of the input, which has a number for
    each value ("values") or for each head ("heads")."""
    alibi_slopes: tuple[float, ...] = ()
    """A slope for each head (ALiBi, Press et al. 2022), or none."""
    qk_norm_kind: str = "rms"
    qk_norm_over: str = "head"
    """"head": each head, with one weight; "heads": each head, with its own weight; "all": all
    heads together."""
    qk_norm_bias: bool = False
    qk_norm_after_rope: bool = False
    qk_norm_rotated: bool = False
    """Only in layers with rotation."""
    v_norm: bool = False
    """RMSNorm over each head of v, without a weight."""
    value_scale: float = 1.0
    inverse_layer_scale: bool = False
    """The scores of layer ``i`` are divided by ``i + 1``."""
    temperature_beta: float = 0.0
    """Queries at position p are multiplied by
    ``1 + beta * log(1 + floor((p + shift) / length))``; 0: not."""
    temperature_length: float = 1.0
    temperature_shift: int = 0
    temperature_unrotated: bool = False
    """Only in layers without rotation (Llama 4)."""


@dataclass(frozen=True)
class MlpSpec:
    """The MLP, and each expert: ``down(act(gate) * (up + up_shift))``, or ``down(act(up))``."""

    activation: str = "silu"
    gated: bool = True
    limit: float = 0.0
    """Clamps gate from above and up from both sides (gpt-oss); 0: not."""
    up_shift: float = 0.0


@dataclass(frozen=True)
class ExpertsSpec:
    """Experts (Shazeer et al. 2017) in place of the MLP of some layers."""

    count: int = 0
    chosen: int = 0
    """Experts that run for each token."""
    intermediate_size: int = 0
    scores: str = "softmax"
    """Of the router's logits: "softmax", "sigmoid" or "sparse_mixer" (Liu et al. 2024)."""
    jitter: float = 0.0
    """Of the sparse mixer."""
    router_bias: bool = False
    """A bias of the router's logits."""
    correction: bool = False
    """A value for each expert that is added to its score in the choice alone (DeepSeek-V3)."""
    normalise: bool = False
    """The weights of the chosen experts are divided by their sum."""
    scale: float = 1.0
    groups: int = 1
    chosen_groups: int = 1
    """Only experts of the best groups take part in the choice."""
    group_score: str = "max"
    """Of a group: its best score ("max"), or the sum of its best two ("top2")."""
    weighted_input: bool = False
    """The weight multiplies the expert's input (Llama 4), not its output."""
    bias: bool = False
    shared_size: int = 0
    """Intermediate size of an expert that always runs; 0: none."""
    shared_gate: bool = False
    """The output of the shared expert is multiplied by the sigmoid of a projection of the input."""
    scales: bool = False
    """A factor for the weight of each expert."""
    router_norm: bool = False
    """The router reads the residual stream through a norm of its own."""
    router_scale: float = 1.0
    """Of the router's logits."""
    beside_mlp: bool = False
    """Layers with experts have an MLP as well, and the normalised outputs of both are added
    (Gemma 4)."""


@dataclass(frozen=True)
class LatentSpec:
    """Latent attention (MLA, DeepSeek-V2 2024). The cache holds one head: the latent followed by a
    rotated part as its key, and the latent as its value. So the spec's ``head_dim`` is ``kv_rank +
    rope_dim``, its ``value_dim`` is ``kv_rank``, and ``num_kv_heads`` is 1."""

    kv_rank: int = 0
    q_rank: int = 0
    """0: q is one product."""
    nope_dim: int = 0
    """Values of a query head without rotation, before its key matrix."""
    rope_dim: int = 0
    value_dim: int = 0
    """Of a head, after its value matrix."""
    norm_eps: float = 0.0
    """Of the norms of the latents; 0: as of the other norms."""


@dataclass(frozen=True)
class LayerInputSpec:
    """Inputs of single layers (Gemma 3n and 4): a part of a second embedding plus a normalised
    projection of the embedded token, for each token and layer."""

    size: int = 0
    """Values of an input; 0: none."""
    embedding_scale: float = 1.0
    projection_scale: float = 1.0
    """Before the norm."""
    scale: float = 1.0
    """Of the sum."""


@dataclass(frozen=True)
class EmbeddingSpec:
    """The embedding, where its rows are narrower than the residual stream."""

    size: int = 0
    """0: hidden_size; otherwise a product widens the rows."""
    bias: bool = False
    wide_positions: bool = False
    """Learned positions are added after the product."""


@dataclass(frozen=True)
class HeadSpec:
    """A layer between the decoder and the head: ``norm(act(dense(x)))`` (BERT)."""

    size: int = 0
    """Of its outputs; 0: there is no such layer."""
    activation: str = "none"
    bias: bool = False
    norm: bool = False


@dataclass(frozen=True)
class DecoderSpec:
    """The sizes of a decoder, and the parts of its layers.

    A tuple has one value for each layer; an empty one stands for its default in all layers.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    max_context: int
    """Tokens of prompt and output together that the model's positions allow."""
    rope: RopeSpec
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMSNorm over each head of q and k before the rotation (Qwen 3)."""
    tied_head: bool = False
    """The output head is the embedding matrix."""
    windows: tuple[int, ...] = ()
    """Keys that a query sees, its own included; 0, the default, means all."""
    layer_ropes: tuple[int, ...] = _added(())
    """The rotation of q and k: 0, the default, is that of ``rope``, i + 1 of ``other_ropes[i]``,
    -1 is none (SmolLM3)."""
    other_ropes: tuple[RopeSpec, ...] = _added(())
    norms: NormSpec = _added(NormSpec())
    attention: AttentionSpec = _added(AttentionSpec())
    mlp: MlpSpec = _added(MlpSpec())
    experts: ExpertsSpec = _added(ExpertsSpec())
    latent: LatentSpec = _added(LatentSpec())
    layer_experts: tuple[int, ...] = _added(())
    """1 for a layer that has experts in place of the MLP."""
    chunks: tuple[int, ...] = _added(())
    """Length of the chunks of positions; a query sees keys of its own chunk (Llama 4); 0, the
    default, means all."""
    layer_heads: tuple[int, ...] = _added(())
    """0, the default, means ``num_heads``."""
    layer_kv_heads: tuple[int, ...] = _added(())
    """0, the default, means ``num_kv_heads``."""
    layer_head_dims: tuple[int, ...] = _added(())
    """0, the default, means ``head_dim``."""
    value_dim: int = _added(0)
    """Of the values of a head; 0: the head_dim of the layer."""
    layer_intermediate_sizes: tuple[int, ...] = _added(())
    """0, the default, means ``intermediate_size``."""
    kv_sources: tuple[int, ...] = _added(())
    """0, the default, means that the layer has keys and values; ``i + 1``: it sees the keys and
    values of layer ``i``."""
    layer_inputs: LayerInputSpec = _added(LayerInputSpec())
    embedding: EmbeddingSpec = _added(EmbeddingSpec())
    head: HeadSpec = _added(HeadSpec())
    layer_scales: bool = _added(False)
    """The residual stream is multiplied by a vector after each layer."""
    residual: str = _added("sequential")
    """"sequential": the MLP reads the stream after attention. "parallel": both read the stream
    before, through one norm; "parallel_norms": each through its own norm."""
    residual_scale: float = _added(1.0)
    """Of the output of each block."""
    embedding_scale: float = _added(1.0)
    learned_positions: int = _added(0)
    """Rows of a matrix of positions that is added to the embedded tokens; 0: none."""
    logit_scale: float = _added(1.0)
    logit_softcap: float = _added(0.0)
    """logit = softcap * tanh(logit / softcap); 0: none."""
    head_bias: bool = _added(False)

    def window(self, layer: int) -> int:
        return _at(self.windows, layer)

    def chunk(self, layer: int) -> int:
        return _at(self.chunks, layer)

    def heads_of(self, layer: int) -> int:
        return _at(self.layer_heads, layer) or self.num_heads

    def kv_heads_of(self, layer: int) -> int:
        return _at(self.layer_kv_heads, layer) or self.num_kv_heads

    def head_dim_of(self, layer: int) -> int:
        return _at(self.layer_head_dims, layer) or self.head_dim

    def value_dim_of(self, layer: int) -> int:
        return self.value_dim or self.head_dim_of(layer)

    def intermediate_size_of(self, layer: int) -> int:
        return _at(self.layer_intermediate_sizes, layer) or self.intermediate_size

    @property
    def embedding_size(self) -> int:
        return self.embedding.size or self.hidden_size

    @property
    def head_inputs(self) -> int:
        return self.head.size or self.hidden_size

    def has_kv(self, layer: int) -> bool:
        """Whether the layer has keys and values of its own."""
        return not _at(self.kv_sources, layer)


def _at(values: tuple[int, ...], layer: int) -> int:
    return values[layer] if values else 0


def to_fields(struct: Any) -> dict[str, Any]:
    """The fields of a spec or of a struct in it as a JSON object has them, without added fields at
    their default."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(struct):
        value = getattr(struct, field.name)
        if _ADDED in field.metadata and value == field.default:
            continue
        fields[field.name] = _to_value(value)
    return fields


def _to_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_fields(value)
    if isinstance(value, tuple):
        return tuple(_to_value(item) for item in value)
    return value


def from_fields(fields: Mapping[str, Any]) -> DecoderSpec:
    """The spec of an object that ``to_fields`` gave and the core has checked."""
    return cast(DecoderSpec, _from_value(DecoderSpec, fields))


def _from_value(kind: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        types = typing.get_type_hints(kind)
        values = {name: _from_value(types[name], field) for name, field in value.items()}
        return cast(Any, kind)(**values)
    if typing.get_origin(kind) is tuple:
        return tuple(_from_value(typing.get_args(kind)[0], item) for item in value)
    return value


def one_layer(spec: DecoderSpec, layer: int, **changes: Any) -> DecoderSpec:
    """The spec of a decoder that has this layer alone; ``changes`` replace other fields."""
    by_layer = {
        field.name: getattr(spec, field.name)[layer : layer + 1]
        for field in dataclasses.fields(spec)
        if typing.get_type_hints(DecoderSpec)[field.name] == tuple[int, ...]
    }
    return dataclasses.replace(spec, num_layers=1, **{**by_layer, **changes})
