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


def fill(engine: _core.Engine, token_ids: NDArray[np.int32]) -> None:
    """Keep a prefix of these tokens, whose number is a multiple of 16, and no other. Fewer than 512
    are read as they are."""
    short = token_ids[:READ_TOKENS]
    engine.forget_prefixes()
    blocks = engine.store_prefix(short)
    if len(token_ids) == len(short):
        return
    if len(token_ids) % BLOCK:
        raise ValueError(f"token_ids: are {len(token_ids)}, expected a multiple of {BLOCK}")
    moved = (len(token_ids) - len(short)) // BLOCK
    kinds: dict[tuple[int, bool], dict[int, bytes]] = defaultdict(dict)
    for group, coded, index, data in blocks:
        kinds[group, coded][index] = data
    codes_of = {group: found for (group, coded), found in kinds.items() if coded}
    deep: list[tuple[int, bool, int, bytes]] = []
    for (group, coded), found in kinds.items():
        if coded or group not in codes_of:  # in every place from the first to the last
            first, last = min(found), max(found)
            for index in range(first, last + moved + 1):
                deep.append((group, coded, index, found[first + (index - first) % len(found)]))
        else:  # exact ones beside codes: those before the codes stay, those after them move
            for index, data in found.items():
                after = index > max(codes_of[group])
                deep.append((group, coded, index + moved * after, data))
    engine.forget_prefixes()
    engine.restore_prefix(token_ids, deep)
