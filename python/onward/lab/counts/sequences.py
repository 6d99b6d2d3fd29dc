"""Calculates the blocks that sequences hold in the cache, their bytes, and how many sequences fit.

A sequence of n tokens has B = ceil(n / 16) blocks. In a coded cache the newest W + 1 of them are
exact, W = ceil(window_tokens / 16), and with sinks the first one too. The others are codes:

    exact blocks = min(B, W + 1 + sinks)        coded blocks = B - exact blocks

A layer whose attention has a window w holds the positions that the next token (position n) sees:
n - w + 1 and later, which begin in block F = max(0, n - w + 1) div 16. A layer with chunks of c
positions holds those from n div c * c on. Layers of the same window, chunk and kv heads form a
group with its own blocks. A coded block of a group is rounded up to 64 bytes. With
``attention_window`` A (an approximation: the first block and the newest A tokens, the policy of
StreamingLLM) w is min(w, A), except in layers with chunks. Block 0 is also held outside the window
under that policy, and in a coded cache with sinks. Whether a block is exact depends only on its
position.

Sizes are bytes and lengths are tokens. The source is csrc/backend/cache_layout.h and csrc/cache.
Blocks that sequences share are counted once for each sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onward.lab.counts.policy import MOST_TOKENS, Policy
from onward.lab.counts.vectors import BLOCK_TOKENS, padded, pair_bytes
from onward.options.kv_dtypes import KvDtypes
from onward.spec import DecoderSpec

_CODED_BLOCK_STEP = 64
STEP_TOKENS = 256
"""Tokens of a step by default (``prefill_chunk_tokens``)."""


@dataclass(frozen=True)
class Blocks:
    """The blocks that a group of layers holds for one sequence."""

    exact: int
    coded: int


@dataclass(frozen=True)
class Group:
    """The properties that all layers of a group share."""

    window: int
    """Tokens that attention sees; 0: all."""
    chunk: int
    """Length of an attention chunk in tokens; 0: no chunks."""
    kv_heads: int
    head_dim: int
    value_dim: int

    @property
    def bounded(self) -> bool:
        return self.window > 0 or self.chunk > 0


def layer_groups(spec: DecoderSpec, policy: Policy) -> dict[Group, int]:
    """Group -> number of its layers."""
    groups: Counter[Group] = Counter()
    for layer in range(spec.num_layers):
        chunk = spec.chunk(layer)
        streamed = None if chunk else policy.attention_window
        limits = [limit for limit in (spec.window(layer), streamed) if limit]
        sizes = spec.kv_heads_of(layer), spec.head_dim_of(layer), spec.value_dim_of(layer)
        groups[Group(min(limits, default=0), chunk, *sizes)] += 1
    return dict(groups)


def group_windows(spec: DecoderSpec, policy: Policy) -> dict[int, int]:
    """Window of attention, or length of a chunk (0: all tokens) -> number of layers."""
    windows: Counter[int] = Counter()
    for group, layers in layer_groups(spec, policy).items():
        windows[group.chunk or group.window] += layers
    return dict(windows)


def blocks_held(tokens: int, window: int, coded: bool, policy: Policy, chunk: int = 0) -> Blocks:
    """The blocks that a group of layers holds for a sequence of ``tokens`` tokens.

    With B, W and F as above these are B - F blocks, and block 0 if it is held outside the window.
    The blocks of index B - (W + 1) and later are exact, and with sinks block 0 too.
    """
    blocks = blocks_for(tokens)
    in_window = max(0, tokens - window + 1) if window else 0
    first = max(in_window, tokens // chunk * chunk if chunk else 0) // BLOCK_TOKENS
    newest = blocks - first
    streams = policy.attention_window is not None and not chunk
    keeps_head = streams or (coded and policy.sinks)
    head_apart = keeps_head and first > 0
    held = newest + head_apart
    if not coded:
        return Blocks(held, 0)
    exact_from = max(0, blocks - (blocks_for(policy.window_tokens) + 1))
    exact = blocks - max(first, exact_from)
    head_held = blocks > 0 and (first == 0 or head_apart)
    if head_held and exact_from > 0:
        exact += policy.sinks  # block 0 is not one of the newest blocks
    elif head_apart:
        exact += 1  # all blocks of the sequence are still exact
    return Blocks(exact, held - exact)


def sequence_bytes(spec: DecoderSpec, dtypes: KvDtypes, tokens: int, policy: Policy) -> int:
    """The bytes of one sequence, summed over the groups of layers.

    A group has exact blocks x (layers x kv heads x 16 x bytes of an exact key and value) + coded
    blocks x (layers x kv heads x 16 x bytes of a coded key and value, rounded up to 64).
    """
    total = 0
    for group, exact_block, coded_block in _groups(spec, dtypes, policy):
        held = blocks_held(tokens, group.window, dtypes.coded, policy, group.chunk)
        total += held.exact * exact_block + held.coded * coded_block
    return total


def step_bytes(
    spec: DecoderSpec, dtypes: KvDtypes, policy: Policy, tokens: int = STEP_TOKENS
) -> int:
    """The bytes that the engine keeps free for a step of ``tokens`` tokens.

    They hold the blocks that become codes or leave a window in the step. Such blocks are returned
    at the end of the step.
    """
    total = 0
    for group, exact_block, coded_block in _groups(spec, dtypes, policy):
        if dtypes.coded:
            total += coded_block
        if dtypes.coded or group.bounded:
            total += (blocks_for(tokens) + 1) * exact_block
    return total


def _groups(
    spec: DecoderSpec, dtypes: KvDtypes, policy: Policy
) -> Iterator[tuple[Group, int, int]]:
    """Each group of layers, with the bytes of an exact block and of a coded block."""
    for group, layers in layer_groups(spec, policy).items():
        sizes = group.head_dim, group.value_dim
        exact_pair = pair_bytes(dtypes.exact, dtypes.exact, *sizes)
        coded_pair = pair_bytes(dtypes.keys, dtypes.values, *sizes)
        vectors = layers * group.kv_heads * BLOCK_TOKENS
        yield group, vectors * exact_pair, padded(vectors * coded_pair, _CODED_BLOCK_STEP)


def longest_sequence(spec: DecoderSpec, dtypes: KvDtypes, room: int, policy: Policy) -> int | None:
    """The tokens of the longest sequence that fits into ``room`` bytes, without a limit of
    positions. None: every length fits, because every layer has a window or chunks.

    The bytes change only at the start of a block. They rise with the number of blocks, except at
    one point: where block 0 is held outside the window and stops being exact. On each side of that
    point a binary search finds the answer.
    """

    def taken(blocks: int) -> int:
        """The bytes at the first token of the newest block, the most for this number of blocks."""
        return sequence_bytes(spec, dtypes, (blocks - 1) * BLOCK_TOKENS + 1, policy)

    all_exact = blocks_for(policy.window_tokens) + 1
    for begin, end in ((1, all_exact), (all_exact + 1, MOST_TOKENS // BLOCK_TOKENS)):
        if taken(end) > room:
            return (_first(begin, end, lambda blocks: taken(blocks) > room) - 1) * BLOCK_TOKENS
    return None


def sequences_that_fit(size: int, room: int) -> int:
    """Sequences of ``size`` bytes in ``room`` bytes, without shared blocks."""
    return max(0, room) // size


def blocks_for(tokens: int) -> int:
    """The number of blocks for ``tokens`` tokens."""
    return -(-tokens // BLOCK_TOKENS)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first number of [low, high] for which ``holds`` is true, by binary search.

    ``holds`` is true at ``high``, and at every number after the first one.
    """
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
