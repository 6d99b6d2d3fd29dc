"""What the machine has: its memory. Knows nothing of models."""

from __future__ import annotations

from pathlib import Path


def memory_bytes() -> dict[str, int | None]:
    """Installed and available memory, where the system tells."""
    found: dict[str, int | None] = {"total": None, "available": None}
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return found
    for line in lines:
        name, _, value = line.partition(":")
        key = {"MemTotal": "total", "MemAvailable": "available"}.get(name)
        if key is not None:
            found[key] = int(value.split()[0]) * 1024
    return found
