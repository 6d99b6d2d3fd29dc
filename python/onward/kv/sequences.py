"""The blocks that sequences hold in the cache, their bytes, and how many fit into a room.

A sequence of n tokens has B = ceil(n / 16) blocks. Where the cache is coded, the newest W + 1 of
them are exact, W = ceil(window_tokens / 16), and with sinks the first one too; the others are
codes:

    exact blocks = min(B, W + 1 + sinks)        coded blocks = B - exact blocks

A layer whose attention has a window w holds what a token about to be written at position n can
still see: positions n - w + 1 and later, so the blocks from F = max(0, n - w + 1) div 16 on. Layers
of the same window are a group with blocks of its own. With ``attention_window`` A (an
approximation: the first block and the newest A tokens, StreamingLLM's policy) w is min(w, A) and
block 0 is held as well. Which block is exact depends on its place in the sequence alone.

Sizes are bytes, lengths tokens. Blocks that sequences share are not looked at, nor what a prompt
takes beside this while a chunk of it is computed. Knows no file and no machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onward.kv.plan import MOST_TOKENS, Policy
from onward.kv.sizes import BLOCK_TOKENS, pair_bytes
from onward.kv_dtypes import KvDtypes
from onward.spec import DecoderSpec


@dataclass(frozen=True)
class Blocks:
    """Blocks that a group of layers holds of one sequence."""

    exact: int
    coded: int


def group_windows(spec: DecoderSpec, policy: Policy) -> dict[int, int]:
    """Window of attention (0: everything) -> how many layers have it."""
    groups: Counter[int] = Counter()
    for window in spec.windows or (0,) * spec.num_layers:
        limits = [limit for limit in (window, policy.attention_window) if limit]
        groups[min(limits, default=0)] += 1
    return dict(groups)


def blocks_held(tokens: int, window: int, coded: bool, policy: Policy) -> Blocks:
    """What a group of layers with that window holds of a sequence of so many tokens.

    With B, W and F of the module's head: B - F blocks and, under an ``attention_window``, block 0;
    exact are those of index B - (W + 1) and later, and block 0 with sinks.
    """
    blocks = blocks_for(tokens)
    first = max(0, tokens - window + 1) // BLOCK_TOKENS if window else 0
    newest = blocks - first
    head_apart = policy.attention_window is not None and first > 0 and blocks > 0
    held = newest + head_apart
    if not coded:
        return Blocks(held, 0)
    exact_from = max(0, blocks - (blocks_for(policy.window_tokens) + 1))
    exact = blocks - max(first, exact_from)
    head_held = blocks > 0 and (first == 0 or head_apart)
    if head_held and exact_from > 0:
        exact += policy.sinks  # block 0 is not among the newest
    elif head_apart:
        exact += 1  # the sequence is still all exact
    return Blocks(exact, held - exact)


def sequence_bytes(spec: DecoderSpec, dtypes: KvDtypes, tokens: int, policy: Policy) -> int:
    """Bytes of one sequence: for each group of layers, layers x kv heads x 16 x (exact blocks x
    bytes of an exact key and value + coded blocks x those of a coded one)."""
    exact_pair = pair_bytes(dtypes.exact, dtypes.exact, spec.head_dim)
    coded_pair = pair_bytes(dtypes.keys, dtypes.values, spec.head_dim)
    total = 0
    for window, layers in group_windows(spec, policy).items():
        held = blocks_held(tokens, window, dtypes.coded, policy)
        total += layers * (held.exact * exact_pair + held.coded * coded_pair)
    return total * spec.num_kv_heads * BLOCK_TOKENS


def longest_sequence(spec: DecoderSpec, dtypes: KvDtypes, room: int, policy: Policy) -> int | None:
    """Tokens of the longest sequence that can grow inside ``room`` bytes, if positions had no end.
    None: it never outgrows them, because every layer has a window.

    Bytes rise only where a block begins. From one block to the next they never fall, but where the
    first block leaves a window's sight or stops being exact; between those places the answer is
    found by halving.
    """

    def taken(blocks: int) -> int:
        """When the newest block has its first token: the most that it takes with so many."""
        return sequence_bytes(spec, dtypes, (blocks - 1) * BLOCK_TOKENS + 1, policy)

    begin = 1
    for end in [*sorted(_turns(spec, policy)), MOST_TOKENS // BLOCK_TOKENS]:
        if end > begin and taken(end - 1) > room:
            return (_first(begin, end - 1, lambda blocks: taken(blocks) > room) - 1) * BLOCK_TOKENS
        begin = max(begin, end)
    return None


def sequences_that_fit(size: int, room: int) -> int:
    """Sequences of so many bytes in ``room`` bytes, sharing nothing."""
    return max(0, room) // size


def blocks_for(tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // BLOCK_TOKENS)


def _turns(spec: DecoderSpec, policy: Policy) -> Iterator[int]:
    """How many blocks there are when the first one is no longer seen through a window, or, kept
    for its own sake, no longer exact."""
    for window in group_windows(spec, policy):
        if window:
            # The first n = 16 (blocks - 1) + 1 with n - window + 1 >= 16.
            yield blocks_for(BLOCK_TOKENS + window - 2) + 1
    yield blocks_for(policy.window_tokens) + 2


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first number of [low, high] from which on it holds; it does at ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
