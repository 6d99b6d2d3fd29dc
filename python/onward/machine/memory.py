"""The memory of the machine: how much there is, how much this process uses, and how much it may
use.

Everything is read from files below a root folder, so that a test can bring its own files.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path("/")


@dataclass(frozen=True)
class _Names:
    """The file names of one version of control groups, and the statistic that counts cached file
    pages which the kernel drops first, child groups included."""

    limit: str
    usage: str
    reclaimable: str


_V2 = _Names("memory.max", "memory.current", "inactive_file")
_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def memory_bytes(root: Path = ROOT) -> dict[str, int | None]:
    """Installed memory, and the part that this process may still use, if the system gives it."""
    return {
        "total": _meminfo(root).get("MemTotal"),
        "available": available_memory_bytes(root),
    }


def available_memory_bytes(root: Path = ROOT) -> int | None:
    """Memory in bytes that this process may still use; None if the system does not say.

    The smallest of the memory that the kernel calls available (MemAvailable) and, for the control
    group of the process and every group above it, limit - (usage - reclaimable file pages). Swap is
    not counted.
    """
    found = [*_group_rooms(root)]
    available = _meminfo(root).get("MemAvailable")
    if available is not None:
        found.append(available)
    return min(found, default=None)


def _meminfo(root: Path) -> dict[str, int]:
    """The entries of /proc/meminfo in bytes."""
    return {
        name.rstrip(":"): int(value) * 1024 for name, value in _pairs(root / "proc" / "meminfo")
    }


def _group_rooms(root: Path) -> Iterator[int]:
    """The memory that each control group with a limit leaves to the process."""
    for line in _lines(root / "proc" / "self" / "cgroup"):
        # hierarchy:controllers:path, and for version 2 "0::path"
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        groups = root / "sys" / "fs" / "cgroup"
        if "memory" in controllers.split(","):
            names, groups = _V1, groups / "memory"
        elif number == "0" and not controllers:
            names = _V2
        else:
            continue
        # Inside a container the path may be the path on the host. Then only its last parent, the
        # root of.
        # the mounted tree, exists here, and that is the container's own group.
        parts = PurePosixPath(path).relative_to("/") if path.startswith("/") else PurePosixPath()
        if ".." in parts.parts:
            parts = PurePosixPath()
        for place in (parts, *parts.parents):
            room = _room(groups / place, names)
            if room is not None:
                yield room


def _room(group: Path, names: _Names) -> int | None:
    """The memory that one group leaves; None if it has no limit or does not exist."""
    limit, usage = _number(group / names.limit), _number(group / names.usage)
    if limit is None or usage is None:
        return None
    reclaimable = dict(_pairs(group / "memory.stat")).get(names.reclaimable, "0")
    return max(0, limit - max(0, usage - int(reclaimable)))


def _number(path: Path) -> int | None:
    """The single number in a file; None for "max" and if there is no such file."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdecimal() else None


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    """The first two words of each line whose second word is a number."""
    for line in _lines(path):
        words = line.split()
        if len(words) >= 2 and words[1].isdecimal():
            yield words[0], words[1]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []


def processor_name(root: Path = ROOT) -> str | None:
    """The name of the processor; None if the system does not say."""
    for line in _lines(root / "proc" / "cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return None


def resident_bytes(root: Path = ROOT) -> int | None:
    """Bytes that this process holds in memory now; None if the system does not say."""
    kibibytes = dict(_pairs(root / "proc" / "self" / "status")).get("VmRSS:")
    return None if kibibytes is None else int(kibibytes) * 1024


def trim_heap() -> None:
    """Return memory that malloc keeps for later to the system, if glibc is the C library.

    Each thread that has called an ``LLM`` leaves up to some tens of megabytes in malloc's arenas.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
