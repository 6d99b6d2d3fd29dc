"""whole_files: content is written whole or not at all, and other files of the folder are not
changed.
"""

from __future__ import annotations

import multiprocessing
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onward.files import whole_files
from onward.files.whole_files import remove_abandoned, whole_file, whole_folder

NOBODY = 65534


def write(target: Path, content: bytes = b"new", **options: Any) -> None:
    with whole_file(target, **options) as part:
        part.file.write(content)


def write_folder(target: Path, content: bytes = b"new") -> None:
    with whole_folder(target) as unfinished:
        (unfinished / "deep").mkdir()
        (unfinished / "deep" / "file").write_bytes(content)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[Callable[[int], object]]:
    before = os.umask(0)
    os.umask(before)
    yield os.umask
    os.umask(before)


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[None]:
    """The current folder, which every user may write to. The user of the test is not root."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    before, user = os.getcwd(), os.geteuid()
    os.chdir(folder)  # The folders above it are closed to other users.
    if user == 0:
        os.seteuid(NOBODY)
    yield
    os.seteuid(user)
    os.chdir(before)


class TestContent:
    def test_content_appears_at_the_end_of_the_block(self, tmp_path: Path) -> None:
        target = tmp_path / "f"
        target.write_bytes(b"old")
        with whole_file(target) as part:
            part.file.write(b"new")
            part.file.flush()
            assert target.read_bytes() == b"old"
            assert part.path.parent == tmp_path and part.path.read_bytes() == b"new"
        assert target.read_bytes() == b"new" and names(tmp_path) == ["f"]

    def test_content_may_be_written_by_path(self, tmp_path: Path) -> None:
        with whole_file(tmp_path / "f") as part:
            part.path.write_bytes(b"by its path")
        assert (tmp_path / "f").read_bytes() == b"by its path"

    @pytest.mark.parametrize("failure", [OSError(28, "full"), ValueError(), KeyboardInterrupt()])
    @pytest.mark.parametrize("existing", [True, False])
    def test_a_failure_keeps_the_old_content(
        self, tmp_path: Path, failure: BaseException, existing: bool
    ) -> None:
        target = tmp_path / "f"
        if existing:
            target.write_bytes(b"old")
        with pytest.raises(type(failure)), whole_file(target) as part:
            part.file.write(b"half")
            raise failure
        assert names(tmp_path) == (["f"] if existing else [])
        assert not existing or target.read_bytes() == b"old"

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    def test_a_failure_at_the_end_keeps_the_old_content(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        (tmp_path / "f").write_bytes(b"old")

        def fail(*arguments: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, call, fail)
        with pytest.raises(OSError, match="Input/output error"):
            write(tmp_path / "f")
        assert names(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"old"

    def test_a_name_of_maximal_length(self, tmp_path: Path) -> None:
        for name in ("n" * 255, "\u00e9" * 127, "\udcff" * 255):
            write(tmp_path / name)
            assert (tmp_path / name).read_bytes() == b"new"
            (tmp_path / name).unlink()
        assert names(tmp_path) == []

    def test_many_writers_of_one_target(self, tmp_path: Path) -> None:
        contents = [bytes([index]) * 100_000 for index in range(4)]
        failures: list[BaseException] = []

        def save(content: bytes) -> None:
            try:
                for _ in range(10):
                    write(tmp_path / "f", content)
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=save, args=(content,)) for content in contents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == [] and names(tmp_path) == ["f"]
        assert (tmp_path / "f").read_bytes() in contents


class TestWithoutReplacing:
    def test_an_existing_file_is_kept(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"old")
        with pytest.raises(FileExistsError), whole_file(tmp_path / "f", replace=False):
            pytest.fail("the block was entered")
        assert names(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"old"

    @pytest.mark.parametrize("links", [True, False])
    def test_a_file_that_appears_during_the_write_is_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
    ) -> None:
        """Also on file systems without hard links."""

        def refuse(*arguments: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        if not links:
            monkeypatch.setattr(os, "link", refuse)
        with pytest.raises(FileExistsError), whole_file(tmp_path / "f", replace=False) as part:
            part.file.write(b"new")
            (tmp_path / "f").write_bytes(b"of another process")
        assert names(tmp_path) == ["f"]
        assert (tmp_path / "f").read_bytes() == b"of another process"
        write(tmp_path / "g", replace=False)
        assert names(tmp_path) == ["f", "g"] and (tmp_path / "g").read_bytes() == b"new"


class TestPermissions:
    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
    def test_permissions_of_an_existing_file_are_kept(
        self, tmp_path: Path, mode: int, umask: Callable[[int], object]
    ) -> None:
        umask(0o027)
        (tmp_path / "f").write_bytes(b"old")
        (tmp_path / "f").chmod(mode)
        with whole_file(tmp_path / "f", mode=0o666) as part:
            assert mode_of(part.path) & ~mode == 0  # Not readable by more users at any time.
        assert mode_of(tmp_path / "f") == mode

    @pytest.mark.parametrize(
        ("mask", "asked", "mode"), [(0o022, 0o666, 0o644), (0o077, 0o666, 0o600), (0, 0o600, 0o600)]
    )
    def test_permissions_of_a_new_file_follow_the_umask(
        self, tmp_path: Path, umask: Callable[[int], object], mask: int, asked: int, mode: int
    ) -> None:
        umask(mask)
        write(tmp_path / "f", mode=asked)
        assert mode_of(tmp_path / "f") == mode

    def test_permissions_of_a_new_folder_follow_the_umask(
        self, tmp_path: Path, umask: Callable[[int], object]
    ) -> None:
        umask(0o027)
        write_folder(tmp_path / "d")
        assert mode_of(tmp_path / "d") == 0o750
        assert mode_of(tmp_path / "d" / "deep" / "file") == 0o640

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
    def test_the_owner_is_kept(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_bytes(b"old")
        os.chown(tmp_path / "f", NOBODY, NOBODY)
        write(tmp_path / "f")
        status = (tmp_path / "f").stat()
        assert (status.st_uid, status.st_gid) == (NOBODY, NOBODY)

    @pytest.mark.usefixtures("open_folder")
    def test_a_file_that_its_owner_protected_is_not_replaced(self) -> None:
        Path("f").write_bytes(b"old")
        Path("f").chmod(0o444)
        with pytest.raises(PermissionError):
            write(Path("f"))
        assert os.listdir(".") == ["f"] and Path("f").read_bytes() == b"old"

    @pytest.mark.usefixtures("open_folder")
    def test_a_folder_that_cannot_be_written(self) -> None:
        Path("closed").mkdir()
        Path("closed", "f").write_bytes(b"old")
        Path("closed").chmod(0o555)
        for target in (Path("closed", "f"), Path("closed", "g")):
            with pytest.raises(PermissionError):
                write(target)
        with pytest.raises(PermissionError):
            write_folder(Path("closed", "h"))
        assert os.listdir("closed") == ["f"] and Path("closed", "f").read_bytes() == b"old"
        Path("closed").chmod(0o755)

    def test_a_folder_that_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            write(tmp_path / "missing" / "f")
        with pytest.raises(IsADirectoryError):
            write(tmp_path)


class TestLinksAndDevices:
    @pytest.mark.parametrize("existing", [True, False])
    def test_a_link_is_followed(self, tmp_path: Path, existing: bool) -> None:
        (tmp_path / "place").mkdir()
        target = tmp_path / "place" / "f"
        if existing:
            target.write_bytes(b"old")
        (tmp_path / "link").symlink_to(Path("place", "f"))
        write(tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and target.read_bytes() == b"new"
        assert names(tmp_path) == ["link", "place"] and names(target.parent) == ["f"]

    def test_a_device(self) -> None:
        write(Path("/dev/null"))
        assert stat.S_ISCHR(os.stat("/dev/null").st_mode)

    def test_a_device_that_is_full(self) -> None:
        if not os.path.exists("/dev/full"):
            pytest.skip("there is no /dev/full")
        with pytest.raises(OSError, match="No space left"):
            write(Path("/dev/full"))
        assert stat.S_ISCHR(os.stat("/dev/full").st_mode)

    def test_a_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            write(tmp_path / "pipe")
            assert os.read(reader, 10) == b"new"
        finally:
            os.close(reader)
        assert names(tmp_path) == ["pipe"]

    def test_an_open_file_of_the_process_is_written_to(self, tmp_path: Path) -> None:
        with open(tmp_path / "f", "w+b", buffering=0) as file:
            write(Path(f"/dev/fd/{file.fileno()}"))
            file.seek(0, os.SEEK_END)
            file.write(b" and more")
        assert (tmp_path / "f").read_bytes() == b"new and more"


class TestTemporaries:
    @pytest.mark.parametrize(
        "name",
        [
            ".vim.onward.swp",
            ".onward-x.part",
            ".f.onward.123.part",
            "{prefix}12-0123456789abcdef.part.bak",
            "{prefix}x-0123456789abcdef.part",
            "{prefix}12-0123456789ABCDEF.part",
            "{prefix}12-0123456789abcde.part",
            "x{prefix}12-0123456789abcdef.part",
            "{other}12-0123456789abcdef.part",
        ],
    )
    def test_other_files_are_never_removed(self, tmp_path: Path, name: str) -> None:
        target = tmp_path / "f"
        prefix, other = (whole_files._prefix(path) for path in (target, tmp_path / "g"))
        neighbour = tmp_path / name.format(prefix=prefix, other=other)
        neighbour.write_bytes(b"precious")
        write(target)
        write(target)
        assert neighbour.read_bytes() == b"precious" and len(names(tmp_path)) == 2

    @pytest.mark.parametrize("kind", ["file", "folder"])
    def test_temporary_files_of_a_killed_writer_are_removed_by_the_next_one(
        self, tmp_path: Path, kind: str
    ) -> None:
        target = tmp_path / "f"
        killed(target, kind)
        (left,) = names(tmp_path)
        assert left.startswith(whole_files._prefix(target))
        write(tmp_path / "g")
        assert names(tmp_path) == [left, "g"]  # The temporary is for another target.
        (write if kind == "file" else write_folder)(target)
        assert names(tmp_path) == ["f", "g"]

    def test_temporary_files_of_a_living_writer_are_kept(self, tmp_path: Path) -> None:
        target = tmp_path / "f"
        with whole_file(target) as first:
            first.file.write(b"first")
            write(target, b"second")
            remove_abandoned(target)
            assert first.path.exists() and target.read_bytes() == b"second"
        assert target.read_bytes() == b"first" and names(tmp_path) == ["f"]
        with whole_folder(tmp_path / "d") as unfinished:
            (unfinished / "x").write_bytes(b"x")
            remove_abandoned(tmp_path / "d")
            assert (unfinished / "x").exists()
        assert names(tmp_path) == ["d", "f"]

    def test_without_locks_files_are_written_and_no_temporary_is_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on some network file systems, where it is unknown whether a writer still runs."""

        def refuse(*arguments: object) -> None:
            raise OSError(37, "No locks available")

        monkeypatch.setattr(whole_files.fcntl, "flock", refuse)
        with whole_file(tmp_path / "f") as first:
            write(tmp_path / "f", b"second")
            assert first.path.exists() and (tmp_path / "f").read_bytes() == b"second"
        write_folder(tmp_path / "d")
        assert names(tmp_path) == ["d", "f"]

    def test_a_link_with_the_name_of_a_temporary_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "x").write_bytes(b"x")
        target = tmp_path / "f"
        name = whole_files._prefix(target) + "12-0123456789abcdef.part"
        (tmp_path / name).symlink_to(tmp_path / "precious")
        write(target)
        assert (tmp_path / "precious" / "x").read_bytes() == b"x"

    @pytest.mark.parametrize("kind", ["file", "folder"])
    def test_a_temporary_file_removed_before_its_lock_is_made_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        """Another writer may see it between its creation and its lock."""
        removed: list[str] = []
        really_open = os.open

        def open_late(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            made = kind == "folder" or flags & os.O_CREAT
            if not removed and made and str(path).endswith(".part"):
                removed.append(str(path))
                if kind == "folder":
                    os.rmdir(path)
                else:
                    descriptor = really_open(path, flags, *rest, **more)
                    os.unlink(path)
                    return descriptor
            return really_open(path, flags, *rest, **more)

        monkeypatch.setattr(os, "open", open_late)
        (write if kind == "file" else write_folder)(tmp_path / "f")
        assert len(removed) == 1 and names(tmp_path) == ["f"]


class TestFolders:
    def test_a_folder_appears_whole(self, tmp_path: Path) -> None:
        with whole_folder(tmp_path / "d") as unfinished:
            (unfinished / "x").write_bytes(b"x")
            assert not (tmp_path / "d").exists()
        assert names(tmp_path) == ["d"] and names(tmp_path / "d") == ["x"]

    @pytest.mark.parametrize("failure", [OSError(28, "full"), KeyboardInterrupt()])
    def test_a_failure_leaves_nothing(self, tmp_path: Path, failure: BaseException) -> None:
        with pytest.raises(type(failure)), whole_folder(tmp_path / "d") as unfinished:
            (unfinished / "x").write_bytes(b"x")
            raise failure
        assert names(tmp_path) == []

    @pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
    def test_a_folder_that_appears_during_the_write_is_kept(
        self, tmp_path: Path, kind: str
    ) -> None:
        target = tmp_path / "d"
        make = {
            "file": lambda: target.write_bytes(b"precious"),
            "folder": target.mkdir,
            "dangling link": lambda: target.symlink_to("nowhere"),
        }[kind]
        with pytest.raises(FileExistsError), whole_folder(target) as unfinished:
            (unfinished / "x").write_bytes(b"x")
            make()
        assert names(tmp_path) == ["d"]
        assert kind != "file" or target.read_bytes() == b"precious"
        assert kind != "folder" or names(target) == []


def killed(target: Path, kind: str) -> None:
    """Let a process be killed in the middle of a write."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_write_and_be_killed, args=(target, kind))
    process.start()
    process.join()
    assert process.exitcode == -9


def _write_and_be_killed(target: Path, kind: str) -> None:
    if kind == "file":
        with whole_file(target) as part:
            part.file.write(b"half")
            part.file.flush()
            os.kill(os.getpid(), 9)
    else:
        with whole_folder(target) as unfinished:
            (unfinished / "x").write_bytes(b"x")
            os.kill(os.getpid(), 9)
