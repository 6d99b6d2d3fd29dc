"""Output that appears at once and whole: written under a name of its own, then renamed.

Knows no format.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from onward.errors import InvalidArgument


@contextlib.contextmanager
def appearing(target: Path, *, folder: bool) -> Iterator[Path]:
    """An empty folder or file beside ``target``, which takes its place when the block is through
    and is removed when it fails. InvalidArgument where it cannot be written."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        if folder:
            part.mkdir()
        else:
            part.open("xb").close()
        try:
            yield part
            os.replace(part, target)
        except BaseException:
            _remove(part, folder)
            raise
    except OSError as failure:
        reason = failure.strerror or failure
        raise InvalidArgument(f"output: cannot write {target}: {reason}") from failure


def _remove(part: Path, folder: bool) -> None:
    if folder:
        shutil.rmtree(part, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            part.unlink()
