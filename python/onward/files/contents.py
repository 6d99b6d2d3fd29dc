"""Names the content of a file that is not the kind of file that its name promises.

Downloads and clones that failed leave a few well-known kinds of content under the name of a model
file. The first bytes show which kind it is.
"""

from __future__ import annotations

import re
from pathlib import Path

START_BYTES = 512
"""Number of bytes at the beginning of a file that ``unexpected_content`` needs."""
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_HTML = re.compile(rb"(?is)\s*(<!--.{0,400}-->\s*)?<(!doctype html|html|head)\b")
_MAGIC = (
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"\xfd7zXZ\x00", "an xz archive; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstandard archive; unpack it first"),
    (b"BZh", "a bzip2 archive; unpack it first"),
    (
        b"PK\x03\x04",
        "a zip archive, as PyTorch writes its .bin and .pt files, which can run code and are not "
        "read; expected the model's .safetensors files",
    ),
    (b"GGUF", "a GGUF file; give it a name that ends in .gguf and pass its path"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05](\x95.{8})?[\x8a(}c]", re.DOTALL)


def unexpected_content(start: bytes) -> str | None:
    """What a file with these first bytes is, and what to do about it; None if it is not known.

    Call it only for a file that is already known to be wrong: some of the signatures are short.
    """
    if start.startswith(_LFS_POINTER):
        return "a git-lfs pointer, not the file itself; fetch it with: git lfs pull"
    if _HTML.match(start):
        return "an HTML page, which a failed download leaves; download the file again"
    for magic, meaning in _MAGIC:
        if start.startswith(magic):
            return meaning
    if _PICKLE.match(start):
        return (
            "a pickle, as PyTorch writes its .bin files, which can run code and is not read; "
            "expected the model's .safetensors files"
        )
    return None


def first_bytes(path: Path) -> bytes:
    """The first bytes of a regular file; empty if it cannot be read."""
    try:
        if not path.is_file():
            return b""
        with open(path, "rb") as file:
            return file.read(START_BYTES)
    except OSError:
        return b""
