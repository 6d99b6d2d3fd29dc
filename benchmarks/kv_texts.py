"""Three texts for measuring the codes of keys and values, taken from Debian packages.

They are parts of two novels and a handbook. The texts and the parts were chosen before any code was
tried on them. apt fetches the packages; they are unpacked in the work folder, not installed. Each
part is compared with a SHA-256. On a machine without apt, copy the .txt files from another machine:

    python benchmarks/kv_texts.py FOLDER
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

CUT_BEGIN = 20_000  # characters; the text begins with the first paragraph after this
CUT_CHARACTERS = 30_000


@dataclass(frozen=True)
class Text:
    name: str
    about: str
    package: str
    version: str
    """The version of the package in Debian 12, which the digest is for."""
    file: str
    """The path in the package."""
    paragraphs: Callable[[Path], str]
    """The file has paragraphs separated by blank lines."""
    sha256: str
    """SHA-256 of the text in UTF-8."""


def find(folder: Path) -> dict[str, str]:
    """The texts by name; missing ones are fetched."""
    return {text.name: _find(text, folder) for text in TEXTS}


def _find(text: Text, folder: Path) -> str:
    path = folder / f"{text.name}.txt"
    if not path.exists():
        cut = _cut(text.paragraphs(_unpacked(text, folder)))
        _check(text, cut, f"{text.package}: {text.name}")
        path.write_bytes(cut.encode())
    cut = path.read_bytes().decode()
    _check(text, cut, str(path))
    return cut


def _unpacked(text: Text, folder: Path) -> Path:
    """The file of the package."""
    root = folder / text.package
    if not (root / text.file).exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            raise SystemExit(
                f"{text.name}: needs apt-get and dpkg to fetch {text.package}, found none: on a "
                f"Debian run python benchmarks/kv_texts.py FOLDER, and copy its .txt files to "
                f"{folder}"
            )
        root.mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "--quiet", "download", text.package], root, text)
        for package in root.glob("*.deb"):
            _run(["dpkg", "-x", package.name, "."], root, text)
    if not (root / text.file).exists():
        raise SystemExit(f"{text.package}: has no {text.file}, expected what {text.version} has")
    return root / text.file


def _run(command: list[str], folder: Path, text: Text) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(
            f"{text.name}: {' '.join(command)} failed, expected {text.package} "
            f"(seen: {text.version}, Debian 12); apt-get update may help:\n{done.stderr.strip()}"
        )


def _check(text: Text, cut: str, where: str) -> None:
    found = hashlib.sha256(cut.encode()).hexdigest()
    if found != text.sha256:
        raise SystemExit(
            f"{where}: is another text, SHA-256 {found}, expected {text.sha256}, "
            f"the cut of {text.package} {text.version}"
        )


def _cut(paragraphs: str) -> str:
    begin = paragraphs.index("\n\n", CUT_BEGIN) + 2
    return paragraphs[begin : begin + CUT_CHARACTERS]


def _joined(lines: list[str]) -> str:
    """Join the lines of each paragraph; paragraphs are separated by a blank line."""
    groups: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            groups[-1].append(line.strip())
        elif groups[-1]:
            groups.append([])
    return "\n\n".join(" ".join(group) for group in groups if group)


def _sawyer(path: Path) -> str:
    return _joined(path.read_text("utf-8", errors="replace").replace("\r", "").split("\n"))


def _handbook(path: Path) -> str:
    """Keep only prose: no tables, listings or headings."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        lines = [line for line in stream.read().split("\n") if not re.search(r"[|+]", line)]
    return "\n\n".join(
        paragraph
        for paragraph in _joined(lines).split("\n\n")
        if len(paragraph) >= 120 and paragraph[-1] in ".:!?)" and "____" not in paragraph
    )


def _persuasion(path: Path) -> str:
    for lines in _r_texts(path.read_bytes()):
        if lines and "PERSUASION" in lines[0].upper():
            return _joined(lines)
    raise SystemExit(f"{path}: has no text that begins with PERSUASION")


def _r_texts(data: bytes) -> Iterator[list[str]]:
    """The vectors of strings in the lazy-load database of R. Each object is a big-endian length, a
    letter for its compression unless it is zlib, and the compressed stream."""
    place = 0
    while place < len(data):
        kind = data[place + 4 : place + 5]
        stream: bz2.BZ2Decompressor | lzma.LZMADecompressor | zlib._Decompress
        if kind == b"2":
            stream, begin = bz2.BZ2Decompressor(), place + 5
        elif kind == b"Z":
            stream, begin = lzma.LZMADecompressor(), place + 5
        else:
            stream, begin = zlib.decompressobj(), place + 4
        raw = stream.decompress(data[begin:])
        place = len(data) - len(stream.unused_data)
        yield _r_strings(raw)


def _r_strings(raw: bytes) -> list[str]:
    """The strings after the header of a vector. Each has four bytes of flags (the last is 9), a
    length and its bytes. A missing string has length -1."""
    found: list[str] = []
    place = raw.find(b"\x00\x00\x00\x10") + 8
    while place + 8 <= len(raw) and raw[place + 3] == 9:
        length = max(int.from_bytes(raw[place + 4 : place + 8], "big", signed=True), 0)
        found.append(raw[place + 8 : place + 8 + length].decode("utf-8", "replace"))
        place += 8 + length
    return found


TEXTS = (
    Text(
        "austen",
        "a novel, Persuasion",
        "r-cran-janeaustenr",
        "1.0.0-1",
        "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb",
        _persuasion,
        "f2ae31f4a9a0005a9f117f61752c591e2618afb85a9b011eee00da10731b6b75",
    ),
    Text(
        "sawyer",
        "a novel, Tom Sawyer",
        "golang-github-klauspost-compress-dev",
        "1.15.12+ds1-3",
        "usr/share/gocode/src/github.com/klauspost/compress/testdata/Mark.Twain-Tom.Sawyer.txt",
        _sawyer,
        "b53feeea4fc7b8a6215f6d4df70b05d44977119d242ccca63b39c1707a521e52",
    ),
    Text(
        "debref",
        "a handbook, the Debian Reference",
        "debian-reference-en",
        "2.100",
        "usr/share/debian-reference/debian-reference.en.txt.gz",
        _handbook,
        "26c0cd037747dda748a9b28b61a8f85ae499f5dbefa39dc9ed0bd51244dc5028",
    ),
)

if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python benchmarks/kv_texts.py FOLDER")
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    for name, cut in find(where).items():
        print(f"{where / name}.txt: {len(cut)} characters")
