"""What the cache blocks of a session depend on, so that a session file is accepted or refused.

The model is identified by a hash of its spec and of samples of its packed weights. This takes
milliseconds and distinguishes two fine-tunings. The dtypes and the settings of the cache count,
too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from onward import _core
from onward.message_text import shown
from onward.spec import to_fields

if TYPE_CHECKING:
    from onward.load.loading import LoadedModel
    from onward.options.cache import CacheOptions

BLOCK_TOKENS = _core.kv_block_tokens
"""Tokens of a block of the cache."""
_SAMPLES = 64
_SAMPLE_BYTES = 64

Origin = dict[str, str]
_MEANINGS = {
    "weights": "weights in",
    "model": "model",
    "kv_dtype": "kv_dtype",
    "kv_floats": "exact keys and values in",
    "kv_window_tokens": "kv_window_tokens",
    "kv_sinks": "kv_sinks",
    "attention_window": "attention_window",
    "block_layout": "layout of cache blocks",
}
"""What has to be equal, in the order of comparison, with its name in messages."""


def origin_of(loaded: LoadedModel, options: CacheOptions, version: str) -> Origin:
    """The origin of the sessions of a loaded model. The version is only for people who read the
    file."""
    kv = loaded.kv
    matrices = "+".join(sorted(set(loaded.dtypes.matrices.values())))
    return {
        "weights": f"{loaded.dtypes.name} ({matrices})",
        "model": f"{loaded.files.name} ({fingerprint(loaded)})",
        "kv_dtype": kv.name,
        "kv_floats": kv.exact,
        # Without codes all blocks are exact, and these settings have no effect on them.
        "kv_window_tokens": str(options.kv_window_tokens) if kv.coded else "none",
        "kv_sinks": str(options.kv_sinks) if kv.coded else "none",
        "attention_window": str(options.attention_window).lower(),
        "block_layout": str(_core.block_layout),
        "onward": version,
    }


def fingerprint_in(origin: Origin) -> str:
    """The result of ``fingerprint``."""
    return origin["model"].rpartition("(")[2].removesuffix(")")


def difference(found: Mapping[str, object], expected: Origin) -> str | None:
    """The first entry that differs, with both values; None if all are equal."""
    for key, meaning in _MEANINGS.items():
        ours, theirs = expected[key], found.get(key)
        same = ours == theirs
        if key == "model" and isinstance(theirs, str):
            # The name is only for the message: a model may have been moved.
            same = ours.rpartition("(")[2] == theirs.rpartition("(")[2]
        if not same:
            return f"{meaning} {shown(theirs)}, expected {shown(ours)}"
    return None


def fingerprint(loaded: LoadedModel) -> str:
    """Hash of the spec, and of the name, dtype, size and some bytes of every weight. A pack
    stores the fingerprint of its model, because sampling would read much of a file that is read
    on demand."""
    if "fingerprint" in loaded.texts:
        return loaded.texts["fingerprint"]
    digest = hashlib.sha256(json.dumps(to_fields(loaded.spec), sort_keys=True).encode())
    for name, dtype, data in loaded.core.packed():
        digest.update(f"{name} {dtype} {data.nbytes}".encode())
        step = max(data.nbytes // _SAMPLES, _SAMPLE_BYTES)
        for begin in range(0, data.nbytes, step):
            digest.update(data[begin : begin + _SAMPLE_BYTES])
    return digest.hexdigest()[:32]
