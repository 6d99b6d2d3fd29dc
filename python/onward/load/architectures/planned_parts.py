"""The plan of a model: for each weight of the core the parts of tensors of the file, as the table
of the family says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from onward.load.architectures import row_orders
from onward.load.architectures.canonical import Role, canonical_weights, role_shapes
from onward.load.architectures.names import Entries, Names, Root, Stored
from onward.load.architectures.parts import (
    Part,
    PlannedTensor,
    RowOrder,
    Shape,
    constant,
    joined,
    with_rows,
)
from onward.spec import DecoderSpec, RopeSpec

Describe = Callable[[str], tuple[str, Shape]]
"""The dtype and shape of a tensor of a file."""


def planned(
    spec: DecoderSpec, names: Names, stored: Collection[str], describe: Describe | None = None
) -> Iterator[PlannedTensor]:
    """The weights of a model; those outside the layers come first.

    ``stored`` are the tensors of the file, which decide between spellings, and ``describe`` tells
    their shapes, which decide between layouts. Without them the first ones are used.
    """
    plan = _Plan(spec, names, root_of(names, stored), stored, describe)
    for weight in canonical_weights(spec):
        yield PlannedTensor(
            weight.name, tuple(plan.part(role, weight.layer) for role in weight.roles)
        )


def root_of(names: Names, stored: Collection[str]) -> Root:
    """Where the decoder begins in a file with these tensors: where the embedding is."""
    for root in names.roots:
        for entry in names.roles["embed"]:
            if f"{root.model}{entry.module}{entry.weight}" in stored:
                return root
    return names.roots[0]


@dataclass(frozen=True)
class _Plan:
    spec: DecoderSpec
    names: Names
    root: Root
    stored: Collection[str]
    describe: Describe | None = None
    orders: dict[tuple[int, int], RowOrder | None] = field(default_factory=dict)
    """By rotary table and head_dim: the order of the rows of a head of q and k."""

    def part(self, role: Role, layer: int | None) -> Part:
        if role.name in ("k_up", "v_up") and role.name not in self.names.roles:
            return self._latent_part(role, layer)
        entry = self._entry(role, layer)
        part = self._part(entry, role, layer)
        if not entry.added:
            return part
        prefix, row = self._prefix(role, layer), (1, *role.shape[1:])
        rows = (
            Part(prefix + name, row, row, more_rows=True, rows=range(1)) for name in entry.added
        )
        return replace(part, added=tuple(rows))

    def _part(self, entry: Stored, role: Role, layer: int | None) -> Part:
        if entry.constant is not None:
            return constant(role.shape, entry.constant)
        if entry.computed is not None:
            return Part("", role.shape, computed=entry.computed)
        if entry.joined:
            return self._joined(entry, role, layer)
        part = self._stored_part(entry, role, layer)
        if entry.by_head:
            return part  # in order
        order = self._rotation(role, layer)
        return part if order is None else with_rows(part, order)

    def _entry(self, role: Role, layer: int | None) -> Stored:
        """The first entry whose tensor is in the file or that needs none. Among entries of one
        tensor, the first that has its shape."""
        entries: Entries = self.names.roles[role.name]
        if role.is_bias:
            entries = self.names.roles.get(f"{role.name}_bias", entries)
        found = [entry for entry in entries if self._is_there(entry, role, layer)]
        if self.describe is not None and len(found) > 1 and found[0].has_tensor:
            tensor = self._tensor(found[0], role, layer)
            shape = self.describe(tensor)[1]
            for entry in found:
                part = self._stored_part(entry, role, layer) if entry.has_tensor else None
                if part is not None and (part.tensor, part.stored) == (tensor, shape):
                    return entry
        return (found or entries)[0]

    def _is_there(self, entry: Stored, role: Role, layer: int | None) -> bool:
        if not entry.has_tensor:
            return bool(self.stored)
        return self._tensor(entry, role, layer) in self.stored

    def _prefix(self, role: Role, layer: int | None) -> str:
        if layer is not None:
            return self.root.model + (self.root.layer or self.names.layer).replace(
                "{i}", str(layer)
            )
        of_the_head = role.name in ("head", "head_dense", "head_norm")
        return self.root.head if of_the_head else self.root.model

    def _tensor(self, entry: Stored, role: Role, layer: int | None) -> str:
        module = entry.module.replace("{e}", str(role.index))
        return self._prefix(role, layer) + module + (entry.bias if role.is_bias else entry.weight)

    def _stored_part(self, entry: Stored, role: Role, layer: int | None) -> Part:
        if entry.by_head:
            return self._by_head(entry, role, layer)
        if entry.repeated:
            tensor = self._tensor(entry, role, layer)
            return Part(tensor, role.shape, (1,), rows=np.zeros(role.shape[0], np.int32))
        rows, total = self._rows(entry, role, layer)
        stored: Shape = (total, *role.shape[1:])
        if entry.one_row:
            return Part(self._tensor(entry, role, layer), role.shape, (1, total), slice=0)
        if entry.as_vector:
            return Part(self._tensor(entry, role, layer), role.shape, stored[1:])
        turned = entry.transposed and not role.is_bias
        if turned:
            stored = stored[::-1]
        if entry.stacked:
            return self._stacked_part(entry, role, layer)
        index = None
        if role.index is not None and "{e}" not in entry.module:
            stored, index = (self.spec.experts.count, *stored), role.index
        return Part(
            self._tensor(entry, role, layer),
            role.shape,
            stored,
            slice=index,
            transposed=turned,
            rows=rows,
            plus=0.0 if role.is_bias else entry.plus,
        )

    def _stacked_part(self, entry: Stored, role: Role, layer: int | None) -> Part:
        tensor, count = self._tensor(entry, role, layer), self.spec.experts.count
        rows, columns = role.shape[::-1] if entry.transposed else role.shape
        own = range((role.index or 0) * rows, ((role.index or 0) + 1) * rows)
        stored = (count * rows, columns)
        if entry.transposed:
            return Part(tensor, role.shape, stored, transposed=True, columns=own)
        return Part(tensor, role.shape, stored, rows=own)

    def _by_head(self, entry: Stored, role: Role, layer: int | None) -> Part:
        shape = (self.spec.head_dim_of(layer or 0),)
        heads = role.shape[0] // shape[0]
        tensor, order = self._tensor(entry, role, layer), self._rotation(role, layer)
        rows = None if order is None else order[: shape[0]]
        return joined(
            Part(tensor, shape, (heads, *shape), slice=head, rows=rows) for head in range(heads)
        )

    def _rows(
        self, entry: Stored, role: Role, layer: int | None
    ) -> tuple[range | RowOrder | None, int]:
        """The rows of a role in its tensor, None for all, and how many rows the tensor has."""
        if entry.first_row or entry.spare_rows:
            end = entry.first_row + role.shape[0]
            return range(entry.first_row, end), end + entry.spare_rows
        if not entry.roles:
            return None, role.shape[0]
        shapes = role_shapes(self.spec, layer)
        sizes = [shapes[name][0] for name in entry.roles]
        place, total = entry.roles.index(role.name), sum(sizes)
        if entry.turns:
            return row_orders.interleaved(len(sizes), sizes[0])[place], total
        groups = {
            "one": 1,
            "heads": self.spec.heads_of(layer or 0),
            "kv_heads": self.spec.kv_heads_of(layer or 0),
        }.get(str(entry.groups), entry.groups)
        if groups == 1:
            return row_orders.stacked(sizes)[place], total
        each = [size // int(groups) for size in sizes]
        return row_orders.grouped(int(groups), each)[place], total

    def _joined(self, entry: Stored, role: Role, layer: int | None) -> Part:
        prefix = self._prefix(role, layer)
        if len(entry.joined) > 1:  # values of their own
            pieces = [
                Part(prefix + name, (1,), () if name in entry.scalars else (1,))
                for name in entry.joined
            ]
            return joined(pieces, entry.change)
        shape = (self.spec.head_dim_of(layer or 0),)
        heads = role.shape[0] // shape[0]  # one tensor for each head
        order = self._head_order(layer or 0)
        return joined(
            Part(
                prefix + entry.joined[0].replace("{e}", str(head)),
                shape,
                shape,
                rows=order,
            )
            for head in range(heads)
        )

    def _rotation(self, role: Role, layer: int | None) -> RowOrder | None:
        """The order of the rows of q and k, and of the weights of their norms."""
        if layer is None or role.name not in ("q", "k", "q_norm", "k_norm", "q_b", "kv_a"):
            return None
        if self.spec.latent.kv_rank:
            return self._latent_rotation(role)
        order = self._head_order(layer)
        if self.names.interleaved and role.name in ("q", "k"):
            before = row_orders.half_split_from_pairs(self.spec.head_dim_of(layer))
            order = before if order is None else before[order]
        if order is None:
            return None
        return row_orders.each_head(order, role.shape[0] // len(order))

    def _head_order(self, layer: int) -> RowOrder | None:
        """None if the file has the engine's order."""
        choice = self.spec.layer_ropes[layer] if self.spec.layer_ropes else 0
        key = choice, self.spec.head_dim_of(layer)
        if key not in self.orders:
            self.orders[key] = _head_order(self.spec, self.names, layer)
        return self.orders[key]

    def _latent_rotation(self, role: Role) -> RowOrder | None:
        latent = self.spec.latent
        if self.names.rotation != "pairs" or role.name in ("q_norm", "k_norm"):
            return None
        before = latent.kv_rank if role.name == "kv_a" else latent.nope_dim
        rotated = before + row_orders.half_split_from_pairs(latent.rope_dim)
        order = np.concatenate([np.arange(before, dtype=np.int32), rotated.astype(np.int32)])
        return row_orders.each_head(order, role.shape[0] // len(order))

    def _latent_part(self, role: Role, layer: int | None) -> Part:
        """Rows of kv_b_proj, (heads, nope_dim + value_dim, kv_rank). The rows of k are
        transposed."""
        spec, latent = self.spec, self.spec.latent
        width = latent.nope_dim + latent.value_dim
        begin = (role.index or 0) * width
        tensor = self._tensor(self.names.roles["kv_b"][0], role, layer)
        stored = (spec.heads_of(layer or 0) * width, latent.kv_rank)
        if role.name == "k_up":
            rows = range(begin, begin + latent.nope_dim)
            return Part(tensor, role.shape, stored, transposed=True, columns=rows)
        rows = range(begin + latent.nope_dim, begin + width)
        return Part(tensor, role.shape, stored, rows=rows)


def _head_order(spec: DecoderSpec, names: Names, layer: int) -> RowOrder | None:
    """The order of the rows of a head of q and k; None if the file has the engine's."""
    rope = _rope(spec, layer)
    if rope is None or names.rotation == "as_stored":
        return None
    head_dim = spec.head_dim_of(layer)
    rotated = 2 * sum(frequency != 0 for frequency in rope.inv_freq)
    if names.rotation == "pairs":
        return row_orders.partial_pairs(head_dim, rotated)
    if names.rotation == "backwards":
        return row_orders.swapped_halves(head_dim)
    if rotated == head_dim:
        return None
    return row_orders.partial_halves(head_dim, rotated)


def _rope(spec: DecoderSpec, layer: int) -> RopeSpec | None:
    """The rotation of a layer; pairs that it does not rotate have the frequency 0."""
    choice = spec.layer_ropes[layer] if spec.layer_ropes else 0
    if choice < 0:
        return None
    return spec.other_ropes[choice - 1] if choice else spec.rope
