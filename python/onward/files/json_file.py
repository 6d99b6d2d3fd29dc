"""Reads a JSON file from an untrusted source.

The standard parser accepts more than JSON (NaN, repeated keys) and fails in several ways. Here
every fault of a file becomes one kind of error that names the file.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from onward.errors import ConfigError, LoadError
from onward.files.contents import START_BYTES, unexpected_content
from onward.message_text import label, sentence

SIZE_LIMIT_BYTES = 4 << 20
"""More than any config or weight index of a supported family needs (the largest seen: 1.2 MB)."""


def read_json_object(
    path: Path,
    what: str,
    *,
    limit_bytes: int = SIZE_LIMIT_BYTES,
    error: type[LoadError] = ConfigError,
) -> dict[str, Any]:
    """Return the object that the file holds.

    ``what`` names the file in messages ("config.json", "tokenizer_config.json"). ``error`` is the
    class that is raised for a file that is absent, too large, or no JSON object.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{what}: {path} is not a regular file")
        if status.st_size > limit_bytes:
            raise error(
                f"{what}: {path} has {status.st_size} bytes, expected at most {limit_bytes}"
            )
        with open(path, "rb") as file:
            data = file.read(limit_bytes + 1)
    except FileNotFoundError:
        raise error(f"{what}: {path} does not exist") from None
    except OSError as failure:
        raise error(f"{what}: cannot read {path}: {failure.strerror}") from failure
    if len(data) > limit_bytes:
        raise error(f"{what}: {path} has more than {limit_bytes} bytes")
    return parse_json_object(data, what, error=error)


def parse_json_object(
    data: bytes, what: str, *, error: type[LoadError] = ConfigError
) -> dict[str, Any]:
    """Return the object in ``data``: UTF-8 without a byte order mark, plain JSON, no repeated
    key."""
    if not data.strip():
        raise error(f"{what}: is empty, expected a JSON object")
    if data.startswith(b"\xef\xbb\xbf"):
        raise error(f"{what}: starts with a byte order mark, expected plain UTF-8 without one")

    def refuse_constant(literal: str) -> NoReturn:
        raise error(f"{what}: holds {literal}, which is not JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise error(f"{what}: key {label(key)!r} occurs twice in one object")
                seen.add(key)
        return result

    if (found := _other_content(data)) is not None:
        raise error(f"{what}: is {found}")
    try:
        value = json.loads(
            data.decode("utf-8"), parse_constant=refuse_constant, object_pairs_hook=unique
        )
    except UnicodeDecodeError as failure:
        raise error(f"{what}: byte {failure.start} is not valid UTF-8") from None
    except RecursionError:
        raise error(f"{what}: is nested too deeply") from None
    except LoadError:
        raise
    except ValueError as failure:  # JSONDecodeError, or an integer of thousands of digits
        raise error(f"{what}: is not valid JSON: {sentence(failure)}") from None
    if not isinstance(value, dict):
        raise error(f"{what}: holds {_kind(value)}, expected a JSON object")
    return value


def _other_content(data: bytes) -> str | None:
    """What ``data`` is, if its first character cannot begin a JSON text."""
    return None if data.lstrip()[:1] in b'{["' else unexpected_content(data[:START_BYTES])


def _kind(value: object) -> str:
    names = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
