"""The history of typed messages, in a file that only its owner can read.

The file has one JSON string per line, so that a multi-line message is one entry.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from pathlib import Path

from onward.files.whole_files import whole_file

ENTRIES = 1000
"""The most entries that are kept."""
_MOST_BYTES = 4 << 20
VARIABLE = "ONWARD_HISTORY"


class History:
    """The entries, oldest first, and their file. Without a file (None) nothing is saved."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.entries: list[str] = []
        if path is not None:
            try:
                self.entries = _read(path)
            except OSError as failure:
                self._give_up(failure)

    def add(self, text: str) -> None:
        """Add a text, unless it is equal to the last entry."""
        if not text.strip() or self.entries[-1:] == [text]:
            return
        self.entries.append(text)
        if self._path is None:
            return
        try:
            _append(self._path, text)
        except OSError as failure:
            self._give_up(failure)

    def _give_up(self, failure: OSError) -> None:
        """Report once that no further entries are saved."""
        reason = failure.strerror or failure
        print(f"onward: note: {self._path}: no history is saved: {reason}", file=sys.stderr)
        self._path = None


def history_path() -> Path | None:
    """The file that ONWARD_HISTORY names (None if it is empty), by default ``chat_history`` in
    the folder ``onward`` of the state folder of the XDG specification."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named).expanduser() if named else None
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()
    return folder / "onward" / "chat_history"


def _read(path: Path) -> list[str]:
    """The last entries. Lines that are not entries are skipped."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return []
    if not stat.S_ISREG(status.st_mode):
        raise OSError(0, "it is not a file")
    with open(path, "rb") as file:
        file.seek(max(status.st_size - _MOST_BYTES, 0))
        lines = file.read().decode("utf-8", "replace").splitlines()
    entries = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, str):
                entries.append(entry)
    kept = entries[-ENTRIES:]
    if len(lines) > 2 * ENTRIES or status.st_size > _MOST_BYTES:
        _rewrite(path, kept)
    return kept


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    with open(os.open(path, flags, 0o600), "ab") as file:
        file.write(json.dumps(text).encode() + b"\n")


def _rewrite(path: Path, entries: list[str]) -> None:
    with whole_file(path, mode=0o600) as part:
        part.file.writelines(json.dumps(entry).encode() + b"\n" for entry in entries)
