"""Writes files and folders atomically: each appears at once, complete, or not at all.

The content is written beside the target under a name that only this module uses, flushed to the
disk, and renamed. If the process is killed or the disk is full, the target stays as it was. The
next writer of the same target removes what a killed process left. All files of this package are
written in this way.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_ATTEMPTS = 8
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class Part(NamedTuple):
    """The unfinished file."""

    path: Path
    file: BinaryIO


@contextlib.contextmanager
def whole_file(target: Path, *, replace: bool = True, mode: int = 0o666) -> Iterator[Part]:
    """A new file that replaces ``target`` when the block ends without an exception.

    A link is followed: the file that it leads to is replaced, and the link stays. An existing file
    keeps its permissions; a new one gets ``mode`` less the umask. Devices, pipes and the open files
    of a process, such as /dev/stdout, are written to directly.

    Args:
        target: the file; its folder must exist.
        replace: if False, an existing target raises FileExistsError, at the start or at the end.
        mode: permissions of a new file.

    Raises:
        OSError: the file cannot be written; the target is unchanged. PermissionError also for a
            file of this user that is protected against writing.
    """
    try:
        old = os.stat(target)
    except FileNotFoundError:
        old = None
    if old is not None and (not stat.S_ISREG(old.st_mode) or _is_open_file(target)):
        with open(target, "wb") as file:  # IsADirectoryError for a folder
            yield Part(target, file)
        return
    target = Path(os.path.realpath(target))
    if old is not None:
        if not replace:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if old.st_uid == os.geteuid():
            os.close(os.open(target, os.O_WRONLY))  # A rename would ignore the protection.
    remove_abandoned(target)
    path, descriptor = _created(target, mode if old is None else 0o600)
    try:
        with open(descriptor, "wb") as file:
            if old is not None:
                _keep_permissions(file.fileno(), old)
            yield Part(path, file)
            file.flush()
            os.fsync(file.fileno())
            if replace:
                os.replace(path, target)
            else:
                _move_to_free_name(path, target)
        _sync_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A new folder that becomes ``target`` when the block ends without an exception.

    Raises:
        OSError: the target exists, or the folder cannot be written; the target is unchanged.
    """
    target = Path(os.path.realpath(target))
    remove_abandoned(target)
    path, descriptor = _created(target, None)
    try:
        yield path
        for place, _, names in os.walk(path):
            for name in names:
                _sync_file(Path(place) / name)
            _sync_folder(Path(place))
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        os.rename(path, target)
        _sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def remove_abandoned(target: Path) -> None:
    """Remove what killed writers of ``target`` left: files and folders with a name that this
    module uses for that target, unless a process holds their lock."""
    pattern = re.compile(re.escape(_prefix(target)) + r"[0-9]+-[0-9a-f]{16}\.part")
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_unlocked(Path(entry.path))


def _prefix(target: Path) -> str:
    """A hash stands for the name of the target, which may have the greatest possible length."""
    return f".onward-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]}-"


def _created(target: Path, mode: int | None) -> tuple[Path, int]:
    """A new file with this mode, or a folder if ``mode`` is None, beside the target; and its
    descriptor, which holds a lock."""
    for _ in range(_ATTEMPTS):
        name = f"{_prefix(target)}{os.getpid()}-{secrets.token_hex(8)}.part"
        path = target.with_name(name)
        # Until it is locked, another writer may regard it as abandoned and remove it.
        if mode is None:
            os.mkdir(path)
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
        else:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        # Some network file systems have no locks. Then the file is never regarded as abandoned.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(path), os.fstat(descriptor)):
                return path, descriptor
        os.close(descriptor)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _remove_unlocked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    finally:
        os.close(descriptor)


def _keep_permissions(descriptor: int, old: os.stat_result) -> None:
    """Give the new file the permissions of the old one, and its owner and group if this process
    may set them."""
    new = os.fstat(descriptor)
    for is_kept, owner, group in (
        (new.st_gid == old.st_gid, -1, old.st_gid),
        (new.st_uid == old.st_uid, old.st_uid, -1),
    ):
        if not is_kept:
            with contextlib.suppress(OSError):
                os.fchown(descriptor, owner, group)
    new = os.fstat(descriptor)
    mode = stat.S_IMODE(old.st_mode)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        mode &= ~(stat.S_ISUID | stat.S_ISGID)
    if stat.S_IMODE(new.st_mode) != mode:  # File systems without permissions refuse fchmod.
        os.fchmod(descriptor, mode)


def _is_open_file(target: Path) -> bool:
    """Whether the path names an open file of a process. Another file in its place would not
    receive what that process writes later."""
    path = os.path.abspath(target)
    return path in ("/dev/stdout", "/dev/stderr") or path.startswith(("/dev/fd/", "/proc/"))


def _move_to_free_name(path: Path, target: Path) -> None:
    """Rename without replacing: a hard link fails if the name is taken."""
    try:
        os.link(path, target)
    except OSError as failure:
        if failure.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.replace(path, target)
    else:
        os.unlink(path)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: Path) -> None:
    """Make a rename survive a power failure, on file systems that support it."""
    with contextlib.suppress(OSError):
        _sync_file(path)
