"""Reads a setting to compare: ``[python=PATH,]DEVICE[:DTYPE][:key=value]...``, or a file.

LLM checks devices and dtypes. A dtype in the place of the device is an error here, which gives the
right spelling.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from onward.errors import InvalidArgument
from onward.lab.counts.policy import Policy
from onward.load.weights.dtypes import DTYPES
from onward.message_text import nearest, shown

RESULT_SUFFIX = ".npz"
_PYTHON = "python="
KEYS = {
    "cache": "on or off; off computes the whole sequence again for every token",
    "head": "head_dtype",
    "isa": "instruction set, in its own process under ONWARD_CPU_ISA",
    "kv": "kv_dtype",
    "model": "another model than --model: a path without ':', or a model of the hub",
    "threads": "threads that compute",
    "window": "kv_window_tokens",
}
"""The keys that may follow the dtype, and their meaning."""


@dataclass(frozen=True)
class Setting:
    """One side. ``text`` is the text on the command line."""

    text: str
    device: str = "cpu"
    dtype: str = "auto"
    python: str | None = None
    """The interpreter of another build; None: this process."""
    file: str | None = None
    """A saved result. The other fields are then unused."""
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> bool:
        return self.keys.get("cache") != "off"

    @property
    def window_tokens(self) -> int:
        """The newest tokens that stay exact in a coded cache."""
        return int(self.keys.get("window", Policy.window_tokens))

    @property
    def isa(self) -> str | None:
        return self.keys.get("isa")

    @property
    def apart(self) -> bool:
        """Whether it needs its own process."""
        return self.python is not None or self.isa is not None

    def here(self) -> Setting:
        """The setting for the process that computes it."""
        keys = {key: value for key, value in self.keys.items() if key != "isa"}
        return replace(self, python=None, keys=keys)

    def llm_arguments(self, model: str | None) -> dict[str, Any]:
        """Keyword arguments of ``LLM`` for the parts that the setting gives."""
        found: dict[str, Any] = {
            "model": self.keys.get("model", model),
            "device": self.device,
            "dtype": self.dtype,
            "prefix_cache": False,  # a repeated prompt is computed again
        }
        for key, name in (("head", "head_dtype"), ("kv", "kv_dtype")):
            if key in self.keys:
                found[name] = self.keys[key]
        for key, name in (("threads", "threads"), ("window", "kv_window_tokens")):
            if key in self.keys:
                found[name] = _number(self.text, key, self.keys[key])
        return found


def parse_setting(text: str) -> Setting:
    """Read a setting. Raises InvalidArgument for another form or an unknown key."""
    if text.endswith(RESULT_SUFFIX) and not text.startswith(_PYTHON):
        return Setting(text, file=text)
    python, rest = None, text
    if text.startswith(_PYTHON):
        python, comma, rest = text.removeprefix(_PYTHON).rpartition(",")
        if not comma or not python:
            raise InvalidArgument(
                f"setting: is {shown(text)}, expected python=PATH, then a comma, DEVICE:DTYPE"
            )
    device, *parts = _parts(rest)
    if parts and parts[0].isdecimal():  # cuda:0
        device = f"{device}:{parts.pop(0)}"
    dtype = "auto"
    if parts and "=" not in parts[0]:
        dtype = parts.pop(0)
    if not device or not dtype or "=" in device:
        raise InvalidArgument(
            f"setting: is {shown(text)}, expected DEVICE:DTYPE such as cpu:bf16, "
            f"or a saved result ending in {RESULT_SUFFIX}"
        )
    if device in DTYPES:
        raise InvalidArgument(
            f"setting: is {shown(text)}, expected DEVICE:DTYPE, did you mean cpu:{device}?"
        )
    return Setting(text, device, dtype, python, keys=_keys(text, parts))


def _parts(text: str) -> list[str]:
    """Split the text at its colons, except the colon of model=user/repo:TAG."""
    parts: list[str] = []
    for part in text.split(":"):
        if parts and parts[-1].startswith("model=") and "=" not in part:
            parts[-1] += f":{part}"
        else:
            parts.append(part)
    return parts


def _keys(text: str, parts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise InvalidArgument(f"setting: {shown(text)}: has {shown(part)}, expected key=value")
        if key not in KEYS:
            raise InvalidArgument(
                f"setting: {shown(text)}: key is {shown(key)}, expected one of {', '.join(KEYS)}"
                f"{nearest(key, KEYS)}"
            )
        if key in found:
            raise InvalidArgument(f"setting: {shown(text)}: has {key} twice, expected it once")
        if key == "cache" and value not in ("on", "off"):
            raise InvalidArgument(
                f"setting: {shown(text)}: cache is {shown(value)}, expected on or off"
            )
        if key in ("threads", "window"):
            _number(text, key, value)
        found[key] = value
    return found


def _number(text: str, key: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise InvalidArgument(
            f"setting: {shown(text)}: {key} is {shown(value)}, expected a whole number"
        )
    return int(value)
