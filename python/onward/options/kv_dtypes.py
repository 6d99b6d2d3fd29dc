"""What a caller may ask for as ``kv_dtype``: in what the keys and the values of the cache are kept.

One name for both, or one for each ("int8/turbo4", or a tuple). Floats are exact: what the model
computed, rounded to the cache's dtype and no further. The others are codes, for all blocks but the
newest ones and the first. Knows names; not how anything is coded, nor how many bytes it takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.message_text import nearest, shown

FLOATS = ("f32", "f16", "bf16")
CODES = ("int8", "q4_0", "turbo4", "turbo3", "turbo2")
# Names that stand for a code of the keys and another of the values.
_PAIRS = {"turbo8v4": ("int8", "turbo4")}
KV_DTYPES = ("auto", *FLOATS, "int8", "turbo8v4", "q4_0", "turbo4", "turbo3", "turbo2")
"""Every name that may stand alone; largest first."""


@dataclass(frozen=True)
class KvDtypes:
    """What keys and values are kept in once their block is no longer an exact one."""

    keys: str
    """One of CODES, or ``exact``."""
    values: str
    exact: str
    """The dtype of exact blocks, keys and values alike: one of FLOATS."""

    @property
    def coded(self) -> bool:
        """Whether there are codes at all, so that some blocks differ from the exact ones."""
        return self.keys in CODES or self.values in CODES

    @property
    def codecs(self) -> tuple[str, str]:
        """Keys and values in the core's names: one of CODES, or "exact" for floats."""
        keys, values = (side if side in CODES else "exact" for side in (self.keys, self.values))
        return keys, values

    @property
    def name(self) -> str:
        """The shortest name that gives the same, "auto" resolved."""
        if self.keys == self.values:
            return self.keys
        for name, pair in _PAIRS.items():
            if pair == (self.keys, self.values):
                return name
        return f"{self.keys}/{self.values}"


def parse_kv_dtype(value: object, exact: str) -> KvDtypes:
    """What ``value`` asks for, in a model whose cache is ``exact``.

    "auto" is ``exact``. A float dtype that is named becomes the dtype of the exact blocks, and
    since those hold keys and values in one dtype, two different ones are refused.

    Raises InvalidArgument for a name that there is not and for two float dtypes, ArgumentTypeError
    for what is neither text nor two of them.
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
    """The names for keys and for values, "auto" among them."""
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
"""The names that one side may have."""


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
