"""A cache that is deep without a long prompt having been read: the blocks of a short one, repeated.

``Engine.store_prefix`` gives out the blocks of a prefix and ``restore_prefix`` takes them back. So
512 tokens are read, their blocks are copied to every place of a prefix as long as is wanted (the
first and the newest ones to the first and the newest), and a request that begins with its tokens
goes on from there. What the model then says is noise, what it costs is not: attention takes the
same time whatever keys and values are. Knows no clock.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from onward import _core

BLOCK = 16
READ_TOKENS = 512


Blocks = list[tuple[int, bool, int, bytes]]
"""Those of a prefix: (layer group, coded, index, bytes) each."""


def fill(engine: _core.Engine, token_ids: NDArray[np.int32]) -> None:
    """Keep a prefix of these tokens, whose number is a multiple of 16, and no other. Fewer than 512
    are read as they are."""
    engine.forget_prefixes()
    if len(token_ids) <= READ_TOKENS:
        engine.store_prefix(token_ids)
        return
    deep = repeated_blocks(engine, token_ids)
    engine.forget_prefixes()
    engine.restore_prefix(token_ids, deep)


def repeated_blocks(engine: _core.Engine, token_ids: NDArray[np.int32]) -> Blocks:
    """The blocks of a prefix as long as these tokens, more than 512 and a multiple of 16; the
    first 512 of them are read, and kept."""
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
        if coded or group not in codes_of:  # in every place from the first to the last
            first, last = min(found), max(found)
            for index in range(first, last + moved + 1):
                deep.append((group, coded, index, found[first + (index - first) % len(found)]))
        else:  # exact ones beside codes: those before the codes stay, those after them move
            for index, data in found.items():
                after = index > max(codes_of[group])
                deep.append((group, coded, index + moved * after, data))
    return deep
