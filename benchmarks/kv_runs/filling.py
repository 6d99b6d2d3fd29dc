"""Fills a cache to a large depth without reading a long prompt, by repeating the blocks of a short
one.

``Engine.store_prefix`` returns the blocks of a prefix and ``restore_prefix`` restores them. So 512
tokens are read, and their blocks are copied to every position of a longer prefix (the first and
newest blocks to the first and newest positions). A request that begins with its tokens continues
from there. The output is then noise, but its cost is right, because the time of attention does not
depend on the values of keys and values.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from onward import _core

BLOCK = 16
READ_TOKENS = 512


Blocks = list[tuple[int, bool, int, bytes]]
"""The blocks of a prefix: (layer group, coded, index, bytes)."""


def fill(engine: _core.Engine, token_ids: NDArray[np.int32]) -> None:
    """Keep a prefix of these tokens and no other. Their number must be a multiple of 16. Fewer than
    512 tokens are read normally."""
    engine.forget_prefixes()
    if len(token_ids) <= READ_TOKENS:
        engine.store_prefix(token_ids)
        return
    deep = repeated_blocks(engine, token_ids)
    engine.forget_prefixes()
    engine.restore_prefix(token_ids, deep)


def repeated_blocks(engine: _core.Engine, token_ids: NDArray[np.int32]) -> Blocks:
    """The blocks of a prefix with the length of these tokens, which is above 512 and a multiple of
    16. The first 512 tokens are read and kept."""
    if len(token_ids) % BLOCK:
        raise ValueError(f"token_ids: are {len(token_ids)}, expected a multiple of {BLOCK}")
    blocks = engine.store_prefix(token_ids[:READ_TOKENS])
    moved = (len(token_ids) - READ_TOKENS) // BLOCK
    kinds: dict[tuple[int, bool], dict[int, bytes]] = defaultdict(dict)
    for group, coded, index, data in blocks:
        kinds[group, coded][index] = data
    codes_of = {group: found for (group, coded), found in kinds.items() if coded}
    deep: Blocks = []
    for (group, coded), found in kinds.items():
        if coded or group not in codes_of:  # at every position from the first to the last
            first, last = min(found), max(found)
            for index in range(first, last + moved + 1):
                deep.append((group, coded, index, found[first + (index - first) % len(found)]))
        else:  # exact blocks with codes: the ones before the codes stay, the ones after them move
            for index, data in found.items():
                after = index > max(codes_of[group])
                deep.append((group, coded, index + moved * after, data))
    return deep
