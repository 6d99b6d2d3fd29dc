"""Opens a GGUF file with all of its parts, and checks that they belong together.

A model in parts has files NAME-00001-of-00003.gguf and so on. Each says which part it is and how
many there are (`split.no`, `split.count`); the first has the metadata of the model.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from onward.errors import WeightError
from onward.load.weights.gguf_reader import GgufHeader, read_gguf_header
from onward.load.weights.mapped_file import MappedFile
from onward.message_text import label, labels, shown

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
SPLIT_KEYS = ("split.no", "split.count", "split.tensors.count")


class GgufPart(NamedTuple):
    """One file, mapped, and its header."""

    file: MappedFile
    header: GgufHeader

    @property
    def name(self) -> str:
        return self.file.path.name

    def whole_number(self, key: str, default: int) -> int:
        value = self.header.metadata.get(key, default)
        if type(value) is not int or value < 0:
            raise WeightError(f"{self.name}: {key} is {shown(value)}, expected a whole number")
        return value


def open_parts(path: Path) -> list[GgufPart]:
    """The file at ``path``, or all parts of the model that it is a part of, the first one first.

    Raises:
        WeightError: a file is malformed, a part is missing or belongs to another model.
    """
    parts: list[GgufPart] = []
    try:
        opened = _opened(path, parts)
        count = opened.whole_number("split.count", 1)
        if count > 1:
            paths = _paths(opened, count)
            at = opened.whole_number("split.no", 0)
            parts[:] = [opened if i == at else _opened(p, parts) for i, p in enumerate(paths)]
            _check(parts)
    except BaseException:
        for part in parts:
            part.file.close()
        raise
    return parts


def _opened(path: Path, parts: list[GgufPart]) -> GgufPart:
    """Open one file. It is in ``parts`` at once, so that an error closes it."""
    file = MappedFile(path)
    try:
        parts.append(GgufPart(file, read_gguf_header(file.content, path.name)))
    except BaseException:
        file.close()
        raise
    return parts[-1]


def _paths(part: GgufPart, count: int) -> list[Path]:
    """The paths of all parts by the name of one."""
    number = part.whole_number("split.no", 0) + 1
    path = part.file.path
    match = _NAME.fullmatch(path.name)
    said = (0, 0) if match is None else (int(match["number"]), int(match["count"]))
    if match is None or number > count or said != (number, count):
        raise WeightError(
            f"{label(path.name)}: is part {number} of {count} by its metadata, expected the name "
            f"that it was made with, NAME-{number:05}-of-{count:05}.gguf, and the other parts "
            "beside it"
        )
    names = [f"{match['stem']}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]
    missing = [name for name in names if not path.with_name(name).exists()]
    if missing:
        raise WeightError(
            f"{label(path.name)}: is part {number} of {count}, and these parts are missing beside "
            f"it: {labels(missing)}"
        )
    return [path.with_name(name) for name in names]


def _check(parts: list[GgufPart]) -> None:
    holder: dict[str, str] = {}
    for i, part in enumerate(parts):
        found = (part.whole_number("split.no", 0), part.whole_number("split.count", 1))
        if found != (i, len(parts)):
            raise WeightError(
                f"{label(part.name)}: split.no and split.count are {found[0]} and {found[1]}, "
                f"expected {i} and {len(parts)}; is it a part of another model?"
            )
        for name in part.header.tensors:
            if name in holder:
                raise WeightError(
                    f"{label(part.name)}: tensor {label(name)} is in {label(holder[name])} as well"
                )
            holder[name] = part.name
    total = parts[0].whole_number("split.tensors.count", len(holder))
    if total != len(holder):
        raise WeightError(
            f"{label(parts[0].name)}: split.tensors.count is {total}, but the parts have "
            f"{len(holder)} tensors; expected parts of one model"
        )
