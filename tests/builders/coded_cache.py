"""Cache blocks of random codes and numbers, their values, and attention over them in numpy.

csrc/backend/cache_layout.h defines which blocks a token sees as codes. Data that no row sees is a
null pointer or NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builders.kernel_arrays import F32, kernels, normal, to_bf16, widen
from builders.kv_codes import (
    BITS,
    coded_dim,
    decode,
    grouped,
    hadamard,
    key_centre,
    rotated,
    rotation,
    unpack,
)

F64 = NDArray[np.float64]
Raw = NDArray[np.uint8]
BLOCK = 16
ROPE_BASE = 10_000.0


@dataclass(frozen=True)
class CodedCache:
    """Positions of one sequence in one of two layers; the other one's bytes are NaN."""

    positions: int
    key_codec: str = "exact"
    value_codec: str = "exact"
    head_dim: int = 64
    kv_heads: int = 1
    group: int = 1
    dtype: str = "f32"
    window: int = 0
    sink_tokens: int = 0
    window_blocks: int = 0
    exact_first: bool = True
    layer: int = 1
    seed: int = 0
    value_dim: int = 0
    """0: head_dim. Otherwise the cache is exact."""
    chunk: int = 0
    softcap: float = 0.0
    has_sink_logits: bool = False
    has_slopes: bool = False

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group

    @property
    def value_size(self) -> int:
        return self.value_dim or self.head_dim

    @property
    def sink_logits(self) -> F32 | None:
        return normal(self.seed + 5, self.heads) * np.float32(2) if self.has_sink_logits else None

    @property
    def slopes(self) -> F32 | None:
        slopes = 2.0 ** (-8 * np.arange(1, self.heads + 1) / self.heads)
        return slopes.astype(np.float32) if self.has_slopes else None

    @property
    def coded(self) -> bool:
        return (self.key_codec, self.value_codec) != ("exact", "exact")

    @property
    def blocks(self) -> int:
        return -(-self.positions // BLOCK)

    def coded_blocks(self, position: int) -> tuple[int, int]:
        begin = int(self.exact_first)
        end = max(begin, position // BLOCK - self.window_blocks) if self.coded else begin
        return begin, end

    def sinking(self, position: int) -> bool:
        return 0 < self.sink_tokens <= position - self.window

    def first_key(self, position: int) -> int:
        if self.sink_tokens and not self.sinking(position):
            return 0
        in_window = max(0, position - self.window + 1) if self.window else 0
        return max(in_window, position // self.chunk * self.chunk if self.chunk else 0)

    # --- bytes ---

    @property
    def _element(self) -> np.dtype[Any]:
        return np.dtype({"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[self.dtype])

    def _stored(self, x: F32) -> NDArray[Any]:
        return to_bf16(x) if self.dtype == "bf16" else x.astype(self._element)

    @cached_property
    def exact_numbers(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Keys and values as stored, (blocks * 16, kv_heads, head_dim or value_dim)."""
        shape = (self.blocks * BLOCK, self.kv_heads, self.head_dim)
        # Keys have a mean, like the keys of models.
        keys = normal(self.seed, *shape) + normal(self.seed + 1, *shape[1:]) * np.float32(0.5)
        values = normal(self.seed + 2, *shape[:2], self.value_size)
        return self._stored(keys), self._stored(values)

    def _side_bytes(self, codec: str, keys: bool) -> tuple[int, int]:
        """Of codes and of scales, for one layer and head."""
        size = self._element.itemsize
        if codec == "exact":
            return BLOCK * size * (self.head_dim if keys else -(-self.value_size // 16) * 16), 0
        dims = coded_dim(self.head_dim)
        scales = dims // 32 if grouped(codec) else 1
        return BLOCK * dims * BITS[codec] // 8, BLOCK * 2 * scales

    def _exact_side(self, block: int, head: int, keys: bool) -> Raw:
        numbers = self.exact_numbers[0 if keys else 1][block * BLOCK : (block + 1) * BLOCK, head]
        if keys:
            return np.ascontiguousarray(numbers.T).view(np.uint8).reshape(-1)
        padded = np.zeros((BLOCK, -(-self.value_size // 16) * 16), self._element)
        padded[:, : self.value_size] = numbers
        return padded.view(np.uint8).reshape(-1)

    def exact_block(self, block: int, seen: set[int]) -> Raw:
        """Exact blocks; positions that are not in ``seen`` are NaN."""
        head_bytes = self._side_bytes("exact", True)[0] + self._side_bytes("exact", False)[0]
        out = np.full((2, self.kv_heads, head_bytes), 0xFF, np.uint8)
        hidden = [t for t in range(BLOCK) if block * BLOCK + t not in seen]
        for head in range(self.kv_heads):
            keys = self._exact_side(block, head, True).reshape(self.head_dim, BLOCK, -1).copy()
            values = self._exact_side(block, head, False).reshape(BLOCK, -1).copy()
            keys[:, hidden] = values[hidden] = 0xFF
            out[self.layer, head] = np.concatenate([keys.reshape(-1), values.reshape(-1)])
        return out.reshape(-1)

    @cached_property
    def _codes(self) -> dict[tuple[int, int, bool], tuple[Raw, NDArray[np.float16]]]:
        """By block, head and side: random bytes and scales."""
        random = np.random.default_rng(self.seed + 3)
        out = {}
        for block in range(self.blocks):
            for head in range(self.kv_heads):
                for keys in (True, False):
                    codec = self.key_codec if keys else self.value_codec
                    if codec == "exact":
                        continue
                    codes, scales = self._side_bytes(codec, keys)
                    stored = random.integers(1, 256, codes, dtype=np.uint8)
                    if codec == "int8" and not keys:
                        stored ^= 0x80  # -128 is not a code
                    size = {"int8": 80, "q4_0": 5}.get(codec, 70)
                    scale = random.uniform(0.5, 1.5, scales // 2).reshape(-1, BLOCK) / size
                    if codec == "q4_0":
                        scale *= random.choice([-1.0, 1.0], scale.shape)
                    out[block, head, keys] = stored, scale.astype(np.float16)
        return out

    def coded_block(self, block: int, seen: set[int]) -> Raw:
        hidden = [t for t in range(BLOCK) if block * BLOCK + t not in seen]
        codes, scales = [], []
        for layer in range(2):
            for head in range(self.kv_heads):
                for keys in (True, False):
                    codec = self.key_codec if keys else self.value_codec
                    sizes = self._side_bytes(codec, keys)
                    if layer != self.layer:
                        codes.append(np.full(sizes[0], 0xFF, np.uint8))
                        scales.append(np.full(sizes[1], 0xFF, np.uint8))
                    elif codec == "exact":
                        codes.append(self._exact_side(block, head, keys))
                    else:
                        stored, scale = self._codes[block, head, keys]
                        scale = scale.copy()
                        scale[:, hidden] = np.nan
                        codes.append(stored)
                        scales.append(scale.view(np.uint8).reshape(-1))
        joined = np.concatenate([*codes, *scales])
        return np.concatenate([joined, np.zeros(-len(joined) % 64, np.uint8)])

    def tables(self, first: int, tokens: int) -> tuple[list[Raw | None], list[Raw | None]]:
        """The exact and coded blocks that the tokens [first, first + tokens) need."""
        exact: set[int] = set()
        coded: set[int] = set()
        for position in range(first, first + tokens):
            begin, end = self.coded_blocks(position)
            for key in range(position + 1):
                sink = self.sinking(position) and key < self.sink_tokens
                if key < self.first_key(position) and not sink:
                    continue
                (coded if begin <= key // BLOCK < end else exact).add(key)
        if coded and self.exact_first and self.key_codec != "exact" and rotated(self.key_codec):
            exact.update(range(BLOCK))  # for the centre
        exact_blocks = {key // BLOCK for key in exact}
        coded_blocks = {key // BLOCK for key in coded}
        return (
            [self.exact_block(b, exact) if b in exact_blocks else None for b in range(self.blocks)],
            [self.coded_block(b, coded) if b in coded_blocks else None for b in range(self.blocks)],
        )

    # --- values of the bytes ---

    @cached_property
    def exact(self) -> tuple[F64, F64]:
        keys, values = (
            (widen(x) if self.dtype == "bf16" else x).astype(np.float64) for x in self.exact_numbers
        )
        return keys, values

    def _decoded_side(self, keys: bool) -> F64:
        """(positions, kv_heads, coded_dim), rotated back, keys without the centre."""
        codec, dims = self.key_codec if keys else self.value_codec, coded_dim(self.head_dim)
        side = np.zeros((self.blocks * BLOCK, self.kv_heads, dims))
        side[..., : self.head_dim] = self.exact[0 if keys else 1]
        for block in range(self.blocks if codec != "exact" else 0):
            for head in range(self.kv_heads):
                stored, scale = self._codes[block, head, keys]
                numbers = decode(unpack(stored, codec, keys, dims), scale, codec)
                x = numbers.astype(np.float64)
                if rotated(codec):
                    x = x @ rotation(dims).T
                side[block * BLOCK : (block + 1) * BLOCK, head] = x
        return side

    @cached_property
    def decoded(self) -> tuple[F64, F64]:
        """Like ``exact``, for the codes; keys also have the part that a rounded query needs."""
        return self._decoded_side(True), self._decoded_side(False)[..., : self.head_dim]

    def coded_scores(self, q: F32, kv: int) -> F64:
        """Scores of queries (n, head_dim) with all keys as codes, (n, positions). Queries are
        rounded to bytes, except for q4_0, which is coarse."""
        dims, codec = coded_dim(self.head_dim), self.key_codec
        padded = np.zeros((len(q), dims), np.float32)
        padded[:, : self.head_dim] = q
        centre = np.zeros(self.head_dim)
        wide = padded.astype(np.float64)
        if codec not in ("exact", "q4_0"):
            if self.exact_first:
                first_keys = self.exact[0][:BLOCK, kv].astype(np.float32)
                centre = key_centre(first_keys).astype(np.float64)
            turned = hadamard(padded)
            largest = np.abs(turned).max(axis=1, keepdims=True)
            steps = np.rint(turned * (np.float32(127) / largest)).astype(np.float64)
            wide = steps * (largest.astype(np.float64) / 127) @ rotation(dims).T
        scores: F64 = wide @ self.decoded[0][:, kv].T + (q.astype(np.float64) @ centre)[:, None]
        return scores

    # --- attention ---

    def queries(self, first: int, tokens: int) -> F32:
        """Queries (tokens, heads, head_dim); the query of a position does not depend on the
        call."""
        q = normal(self.seed + 4, self.positions, self.kv_heads * self.group, self.head_dim)
        return q[first : first + tokens]

    def angles(self, first: int, tokens: int) -> tuple[F32, F32]:
        """Cosines and sines of any rotation, (tokens, head_dim / 2)."""
        turn = np.arange(first, first + tokens)[:, None] * 0.37
        angle = turn * ROPE_BASE ** (-np.arange(self.head_dim // 2) / (self.head_dim // 2))
        return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def attend(
        self,
        first: int,
        tokens: int,
        threads: int = 1,
        q: F32 | None = None,
        device: str = "cpu",
    ) -> F32:
        exact, coded = self.tables(first, tokens)
        return attend_slices([(self, first, tokens, exact, coded)], threads, q, device)

    def expected(self, first: int, tokens: int) -> F64:
        return _expected(self, first, tokens)

    def _attention(self, first: int, tokens: int) -> F64:
        scale = self.head_dim**-0.5
        queries = self.queries(first, tokens).astype(np.float64)
        out = np.zeros((*queries.shape[:2], self.value_size))
        half = self.head_dim // 2
        for t, position in enumerate(range(first, first + tokens)):
            begin, end = (BLOCK * b for b in self.coded_blocks(position))
            seen = np.arange(position + 1) >= self.first_key(position)
            cosines, sines = (x.astype(np.float64)[0] for x in self.angles(position, 1))
            for kv in range(self.kv_heads):
                keys, values = (x[: position + 1, kv].copy() for x in self.exact)
                heads = slice(kv * self.group, (kv + 1) * self.group)
                q = queries[t, heads]
                scores = q @ keys.T
                if begin < end:
                    values[begin:end] = self.decoded[1][begin:end, kv]
                    rough = self.coded_scores(q.astype(np.float32), kv)
                    scores[:, begin:end] = rough[:, begin:end]
                visible = seen.copy()
                if self.sinking(position):
                    a, b = q[:, :half], q[:, half:]
                    turned = np.concatenate(
                        [a * cosines - b * sines, b * cosines + a * sines], axis=1
                    )
                    scores[:, : self.sink_tokens] = turned @ keys[: self.sink_tokens].T
                    visible[: self.sink_tokens] = True
                logits = self._logits(scale * scores, position, heads)[:, visible]
                sinks = np.full((self.group, 1), -np.inf)
                if self.sink_logits is not None:
                    sinks[:, 0] = self.sink_logits[heads]
                most = np.maximum(logits.max(axis=1, keepdims=True), sinks)
                p = np.exp(logits - most)
                total = p.sum(axis=1, keepdims=True) + np.exp(sinks - most)
                out[t, heads] = p @ values[visible] / total
        return out

    def _logits(self, scores: F64, position: int, heads: slice) -> F64:
        """Of scaled scores (group, position + 1). A slope counts from the position of the query,
        and for the first tokens of a layer with sinks from the position to which it is turned."""
        if self.softcap:
            scores = self.softcap * np.tanh(scores / self.softcap)
        if self.slopes is None:
            return scores
        distance = np.arange(position + 1.0) - position
        if self.sinking(position):
            turned_to = self.window + self.sink_tokens - 1
            distance[: self.sink_tokens] = np.arange(self.sink_tokens) - turned_to
        found: F64 = scores + self.slopes[heads].astype(np.float64)[:, None] * distance
        return found


@cache
def _expected(one: CodedCache, first: int, tokens: int) -> F64:
    """Computed once for all tested places, because it takes longer than each of them."""
    return one._attention(first, tokens)


Slice = tuple[CodedCache, int, int, list[Raw | None], list[Raw | None]]


def attend_slices(
    slices: list[Slice], threads: int, q: F32 | None = None, device: str = "cpu"
) -> F32:
    """One step over slices of caches that differ only in positions and seed."""
    one = slices[0][0]
    assert all(
        replace(s[0], positions=0, seed=0) == replace(one, positions=0, seed=0) for s in slices
    )
    if q is None:
        q = np.concatenate([cache.queries(first, tokens) for cache, first, tokens, *_ in slices])
    angles = [cache.angles(first, tokens) for cache, first, tokens, *_ in slices]
    return kernels.attend_layer(
        q,
        [(first, tokens, exact, coded) for _, first, tokens, exact, coded in slices],
        one.kv_heads,
        one.dtype,
        one.key_codec,
        one.value_codec,
        layers=2,
        layer=one.layer,
        scale=one.head_dim**-0.5,
        threads=threads,
        window=one.window,
        sink_tokens=one.sink_tokens,
        window_blocks=one.window_blocks,
        exact_first=one.exact_first,
        sink_cosines=np.concatenate([cosines for cosines, _ in angles]),
        sink_sines=np.concatenate([sines for _, sines in angles]),
        device=device,
        value_dim=one.value_dim,
        chunk=one.chunk,
        softcap=one.softcap,
        sink_logits=one.sink_logits,
        alibi_slopes=one.slopes,
    )
