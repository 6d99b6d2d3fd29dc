"""The weights that the core wants for a spec: their names, their parts and the shapes of these.

csrc/model/model.cpp declares the same weights. A test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onward.load.architectures.parts import Shape
from onward.spec import DecoderSpec


@dataclass(frozen=True)
class Role:
    """One part of a weight, under the name that the tables of families have for it."""

    name: str
    shape: Shape
    is_bias: bool = False
    index: int | None = None
    """Of the expert, or of the head (latent attention), where each has parts of its own."""


@dataclass(frozen=True)
class Weight:
    """One canonical weight and its parts."""

    name: str
    roles: tuple[Role, ...]
    layer: int | None = None


def canonical_weights(spec: DecoderSpec) -> Iterator[Weight]:
    """All weights of a model: first the embedding, the head and the others outside the layers."""
    yield from _top_weights(spec)
    for layer in range(spec.num_layers):
        # Synthetic models take their random numbers in this order.
        yield from sorted(_Layer(spec, layer).weights(), key=_after)


def _after(weight: Weight) -> int:
    name = weight.name.rpartition(".")[2].removesuffix("_bias")
    return 2 if name in ("q_norm", "k_norm") else int(weight.roles[0].is_bias)


def has_experts(spec: DecoderSpec, layer: int) -> bool:
    """Whether a layer has experts in place of the MLP."""
    return bool(spec.layer_experts and spec.layer_experts[layer])


def role_shapes(spec: DecoderSpec, layer: int | None) -> dict[str, Shape]:
    """The shapes of the parts that a tensor of several parts may hold, by the names of roles."""
    hidden = spec.hidden_size
    if layer is None:
        return {
            "embed": (spec.vocab_size, spec.embedding_size),
            "head": (spec.vocab_size, spec.head_inputs),
        }
    heads, kv_heads = spec.heads_of(layer), spec.kv_heads_of(layer)
    key, value = spec.head_dim_of(layer), spec.value_dim_of(layer)
    inner, expert = spec.intermediate_size_of(layer), spec.experts.intermediate_size
    gates = heads * (value if spec.attention.output_gate == "values" else 1)
    shared = spec.experts.shared_size
    return {
        "q": (heads * key, hidden),
        "k": (kv_heads * key, hidden),
        "v": (kv_heads * value, hidden),
        "o": (hidden, heads * value),
        "attention_gate": (gates, hidden),
        **{"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)},
        "expert_gate": (expert, hidden),
        "expert_up": (expert, hidden),
        "expert_down": (hidden, expert),
        "shared_gate": (shared, hidden),
        "shared_up": (shared, hidden),
        "shared_down": (hidden, shared),
        "router": (spec.experts.count, hidden),
        **_latent_shapes(spec, heads),
    }


def _latent_shapes(spec: DecoderSpec, heads: int) -> dict[str, Shape]:
    latent, hidden = spec.latent, spec.hidden_size
    if not latent.kv_rank:
        return {}
    q_rows = heads * (latent.nope_dim + latent.rope_dim)
    gates = heads * (latent.value_dim if spec.attention.output_gate == "values" else 1)
    return {
        "q": (q_rows, hidden),
        "q_a": (latent.q_rank, hidden),
        "q_b": (q_rows, latent.q_rank),
        "kv_a": (latent.kv_rank + latent.rope_dim, hidden),
        "o": (hidden, heads * latent.value_dim),
        "attention_gate": (gates, hidden),
    }


def _top_weights(spec: DecoderSpec) -> Iterator[Weight]:
    hidden, width, bias = (spec.hidden_size,), spec.embedding_size, spec.norms.bias
    yield Weight("embed", (Role("embed", (spec.vocab_size, width)),))
    if spec.norms.final:
        yield from _norm("norm", hidden, bias)
    if size := spec.head.size:
        yield Weight("head_dense", (Role("head_dense", (size, *hidden)),))
        if spec.head.bias:
            yield Weight("head_dense_bias", (Role("head_dense", (size,), is_bias=True),))
        if spec.head.norm:
            yield from _norm("head_norm", (size,), bias)
    if not spec.tied_head:
        yield Weight("head", (Role("head", (spec.vocab_size, spec.head_inputs)),))
    if spec.head_bias:
        yield Weight("head_bias", (Role("head", (spec.vocab_size,), is_bias=True),))
    if spec.learned_positions:
        columns = spec.hidden_size if spec.embedding.wide_positions else width
        yield Weight("positions", (Role("positions", (spec.learned_positions, columns)),))
    if spec.norms.embedding:
        yield from _norm("embed_norm", (width,), bias)
    if spec.embedding.size:
        name = "embedding_projection"
        yield Weight(name, (Role(name, (*hidden, width)),))
        if spec.embedding.bias:
            yield Weight(f"{name}_bias", (Role(name, hidden, is_bias=True),))
    if size := spec.layer_inputs.size:
        width = spec.num_layers * size
        yield Weight("layer_embed", (Role("layer_embed", (spec.vocab_size, width)),))
        role = Role("layer_projection", (width, spec.hidden_size))
        yield Weight("layer_projection", (role,))
        yield from _norm("layer_projection_norm", (size,), spec.norms.bias)


def _norm(name: str, shape: Shape, bias: bool, layer: int | None = None) -> Iterator[Weight]:
    here = "" if layer is None else f"layers.{layer}."
    yield Weight(here + name, (Role(name, shape),), layer)
    if bias:
        yield Weight(f"{here}{name}_bias", (Role(name, shape, is_bias=True),), layer)


class _Layer:
    """The weights of one layer."""

    def __init__(self, spec: DecoderSpec, layer: int) -> None:
        self._spec, self._layer = spec, layer
        self._shapes = role_shapes(spec, layer)

    def weights(self) -> Iterator[Weight]:
        spec, layer, hidden = self._spec, self._layer, (self._spec.hidden_size,)
        bias = spec.norms.bias
        if spec.norms.before:
            yield from _norm("attention_norm", hidden, bias, layer)
        if spec.latent.kv_rank:
            yield from self._latent_attention()
        else:
            roles = ("q", "k", "v") if spec.has_kv(layer) else ("q",)
            yield from self._matrix("qkv", roles, spec.qkv_bias)
            yield from self._head_norms()
        if spec.attention.sink_logits:
            yield self._weight("sink_logits", (spec.heads_of(layer),))
        if spec.attention.output_gate != "none":
            yield from self._matrix("attention_gate", ("attention_gate",), False)
        yield from self._matrix("o", ("o",), spec.output_bias)
        if spec.norms.after or spec.norms.sums:
            yield from _norm("attention_post_norm", hidden, bias, layer)
        if spec.norms.before and spec.residual != "parallel":
            yield from _norm("mlp_norm", hidden, bias, layer)
        if has_experts(spec, layer):
            yield from self._experts()
        if not has_experts(spec, layer) or spec.experts.beside_mlp:
            yield from self._mlp("", spec.mlp_bias)
        if spec.mlp.activation == "xielu":
            yield self._weight("activation_parameters", (4,))
        if spec.norms.after or spec.norms.sums:
            yield from _norm("mlp_post_norm", hidden, bias, layer)
        if size := spec.layer_inputs.size:
            yield self._weight("input_gate", (size, *hidden))
            yield self._weight("input_projection", (*hidden, size))
            yield from _norm("input_post_norm", hidden, bias, layer)
        if spec.layer_scales:
            yield self._weight("layer_scale", hidden)

    def _weight(self, name: str, shape: Shape) -> Weight:
        return Weight(f"layers.{self._layer}.{name}", (Role(name, shape),), self._layer)

    def _matrix(
        self, name: str, roles: tuple[str, ...], bias: bool, experts: int = 0
    ) -> Iterator[Weight]:
        """A matrix, and its bias; with ``experts``, the parts of each expert in turn."""
        name = f"layers.{self._layer}.{name}"
        order = range(experts) if experts else (None,)
        parts = [(role, self._shapes[role], expert) for expert in order for role in roles]
        matrix = tuple(Role(role, shape, index=expert) for role, shape, expert in parts)
        yield Weight(name, matrix, self._layer)
        if bias:
            vector = tuple(Role(role, shape[:1], True, expert) for role, shape, expert in parts)
            yield Weight(f"{name}_bias", vector, self._layer)

    def _head_norms(self) -> Iterator[Weight]:
        spec = self._spec
        if not spec.qk_norm:
            return
        heads_of = {"q_norm": spec.heads_of(self._layer), "k_norm": spec.kv_heads_of(self._layer)}
        for name, heads in heads_of.items():
            if name == "k_norm" and not spec.has_kv(self._layer):
                continue
            size = spec.head_dim_of(self._layer) * (
                1 if spec.attention.qk_norm_over == "head" else heads
            )
            yield from _norm(name, (size,), spec.attention.qk_norm_bias, self._layer)

    def _mlp(self, prefix: str, bias: bool) -> Iterator[Weight]:
        roles = (f"{prefix}gate", f"{prefix}up") if self._spec.mlp.gated else (f"{prefix}up",)
        name = "gate_up" if self._spec.mlp.gated else "up"
        yield from self._matrix(prefix + name, roles, bias)
        yield from self._matrix(f"{prefix}down", (f"{prefix}down",), bias)

    def _experts(self) -> Iterator[Weight]:
        experts, gated = self._spec.experts, self._spec.mlp.gated
        yield from self._matrix("router", ("router",), experts.router_bias)
        if experts.correction:
            yield self._weight("router_correction", (experts.count,))
        roles = ("expert_gate", "expert_up") if gated else ("expert_up",)
        name = "experts_gate_up" if gated else "experts_up"
        yield from self._matrix(name, roles, experts.bias, experts.count)
        yield from self._matrix("experts_down", ("expert_down",), experts.bias, experts.count)
        if experts.scales:
            yield self._weight("expert_scales", (experts.count,))
        hidden, bias = (self._spec.hidden_size,), self._spec.norms.bias
        if experts.router_norm:
            yield from _norm("router_norm", hidden, bias, self._layer)
        if experts.beside_mlp:
            for name in ("inner_norm", "experts_norm", "experts_post_norm"):
                yield from _norm(name, hidden, bias, self._layer)
        if experts.shared_size:
            yield from self._mlp("shared_", False)
        if experts.shared_gate:
            shape = (1, self._spec.hidden_size)
            role = Role("shared_scale", shape)
            yield Weight(f"layers.{self._layer}.shared_gate", (role,), self._layer)

    def _latent_attention(self) -> Iterator[Weight]:
        spec, latent, layer = self._spec, self._spec.latent, self._layer
        if latent.q_rank:
            yield from self._matrix("q_a", ("q_a",), spec.qkv_bias)
            yield from _norm("q_a_norm", (latent.q_rank,), False, layer)
            yield from self._matrix("q_b", ("q_b",), False)
        else:
            yield from self._matrix("qkv", ("q",), False)
        yield from self._matrix("kv_a", ("kv_a",), spec.qkv_bias)
        yield from _norm("kv_a_norm", (latent.kv_rank,), False, layer)
        heads = range(spec.heads_of(layer))
        k_up = tuple(Role("k_up", (latent.kv_rank, latent.nope_dim), index=i) for i in heads)
        v_up = tuple(Role("v_up", (latent.value_dim, latent.kv_rank), index=i) for i in heads)
        yield Weight(f"layers.{layer}.k_up", k_up, layer)
        yield Weight(f"layers.{layer}.v_up", v_up, layer)
