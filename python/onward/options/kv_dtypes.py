"""The values of ``kv_dtype``: how the keys and the values of the cache are stored.

One name for both, or one for each ("int8/turbo4", or a tuple). Floats are exact: what the model
computed, rounded to the cache's dtype and no further. The codecs are the core's
(csrc/backend/kv_codecs.h); they apply to all blocks but the newest ones and the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from onward import _core
from onward.errors import ArgumentTypeError, InvalidArgument
from onward.message_text import nearest, shown

FLOATS = ("f32", "f16", "bf16")
CODES = tuple(_core.kv_codecs())
# Names that stand for a codec of the keys and another one of the values.
_PAIRS = {"turbo8v4": ("int8", "turbo4")}


def _bytes(name: str) -> int:
    """Of a key and a value of a common size, to sort the names."""
    keys, values = _PAIRS.get(name, (name, name))
    return _core.kv_vector_bytes(keys, 128, True) + _core.kv_vector_bytes(values, 128, False)


KV_DTYPES = ("auto", *FLOATS, *sorted((*CODES, *_PAIRS), key=_bytes, reverse=True))
"""Every name that may stand alone; largest first."""


@dataclass(frozen=True)
class KvDtypes:
    """How keys and values are stored once their block is no longer an exact one."""

    keys: str
    """One of CODES, or ``exact``."""
    values: str
    exact: str
    """The dtype of exact blocks, keys and values alike: one of FLOATS."""

    @property
    def coded(self) -> bool:
        """Whether keys or values are coded, so that some blocks differ from the exact ones."""
        return self.keys in CODES or self.values in CODES

    @property
    def codecs(self) -> tuple[str, str]:
        """Keys and values in the core's names: one of CODES, or "exact" for floats."""
        keys, values = (side if side in CODES else "exact" for side in (self.keys, self.values))
        return keys, values

    @property
    def name(self) -> str:
        """The shortest name of this choice, with "auto" resolved."""
        if self.keys == self.values:
            return self.keys
        for name, pair in _PAIRS.items():
            if pair == (self.keys, self.values):
                return name
        return f"{self.keys}/{self.values}"


def parse_kv_dtype(value: object, exact: str) -> KvDtypes:
    """The choice that ``value`` names, for a model whose cache is ``exact`` by default.

    "auto" is ``exact``. A float dtype becomes the dtype of the exact blocks. They hold keys and
    values in one dtype, so two different float dtypes are refused.

    Raises InvalidArgument for an unknown name and for two float dtypes, ArgumentTypeError for a
    value that is neither a text nor a tuple.
    """
    if exact not in FLOATS:
        raise InvalidArgument(f"exact: is {shown(exact)}, expected one of {', '.join(FLOATS)}")
    keys, values = _sides(value)
    floats = {side for side in (keys, values) if side in FLOATS}
    if len(floats) > 1:
        raise InvalidArgument(
            f"kv_dtype: names {keys} for keys and {values} for values, expected one float dtype: "
            "an exact block holds both in the same"
        )
    chosen = floats.pop() if floats else exact
    keys, values = (chosen if side == "auto" else side for side in (keys, values))
    return KvDtypes(keys, values, chosen)


def _sides(value: object) -> tuple[str, str]:
    """The names for keys and for values; "auto" stays."""
    expected = 'a name, "K/V" or a tuple of two names'
    if isinstance(value, str):
        if "/" not in value:
            _check_name(value, value, KV_DTYPES)
            return _PAIRS.get(value, (value, value))
        parts: tuple[object, ...] = tuple(value.split("/"))
    elif isinstance(value, tuple):
        parts = value
    else:
        kind = type(value).__name__
        raise ArgumentTypeError(f"kv_dtype: is {shown(value)} ({kind}), expected {expected}")
    if len(parts) != 2:
        raise InvalidArgument(
            f"kv_dtype: is {shown(value)}, {len(parts)} names, expected one, or two: keys/values"
        )
    names = [_check_name(part, value, _ALONE) for part in parts]
    return names[0], names[1]


_ALONE = tuple(name for name in KV_DTYPES if name not in _PAIRS)
"""The names that a side may have."""


def _check_name(name: object, value: object, names: tuple[str, ...]) -> str:
    if not isinstance(name, str):
        kind = type(name).__name__
        raise ArgumentTypeError(f"kv_dtype: is {shown(value)}, holds a {kind}, expected names")
    if name not in names:
        found = shown(name) if name == value else f"{shown(name)} in {shown(value)}"
        more = ", or two of them as keys/values" if names is KV_DTYPES else " for each side"
        raise InvalidArgument(
            f"kv_dtype: is {found}, expected one of {', '.join(names)}{more}{nearest(name, names)}"
        )
    return name
