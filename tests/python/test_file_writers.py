"""Every writer of the package: a kill or a full disk destroys no file and leaves no temporary
file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import random
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from builders.file_writers import WRITERS, Save, Writer, save_forever, void, write_models
from onward.cli import main
from onward.lab.compare import result_file

NEIGHBOURS = (".vim.onward.swp", ".onward-x.part", ".f.onward.12.part", "g.onward")
LIMIT_BYTES = 1000
NoSpace = Callable[[Path], AbstractContextManager[None]]

by_name = pytest.mark.parametrize("name", WRITERS)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def saves(models: Path) -> Iterator[Callable[[str], Save]]:
    """The savers by name; each is prepared once."""
    made: dict[str, Save] = {}
    with ExitStack() as ends:

        def save(name: str) -> Save:
            pytest.importorskip(WRITERS[name].needs)
            if name not in made:
                made[name] = WRITERS[name].prepare(models, ends)
            return made[name]

        yield save


@pytest.fixture(scope="module")
def context() -> Any:
    """Children of a process that has imported the package once for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["builders.file_writers"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        forkserver.ensure_running()
    return context


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """A file system of 8 MB; None where this user cannot mount one."""
    place = tmp_path_factory.mktemp("disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "onward-test", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture(params=["full disk", "limit of file sizes"])
def no_space(
    request: pytest.FixtureRequest, tmp_path: Path, small_disk: Path | None
) -> tuple[Path, AbstractContextManager[None]]:
    """A folder, and a block in which nothing more can be written to it."""
    if request.param == "limit of file sizes":
        return tmp_path, file_size_limit()
    if small_disk is None:
        pytest.skip("this user cannot mount a file system")
    folder = small_disk / tmp_path.name
    folder.mkdir()
    return folder, full_disk(small_disk)


@contextlib.contextmanager
def file_size_limit() -> Iterator[None]:
    """Python ignores SIGXFSZ, so a longer file is an OSError."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def full_disk(disk: Path) -> Iterator[None]:
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass
    try:
        yield
    finally:
        filler.unlink()


def write_neighbours(folder: Path) -> None:
    for name in NEIGHBOURS:
        (folder / name).write_bytes(name.encode())


def check_folder(folder: Path, *expected: str) -> None:
    """The folder has the other files unchanged, the expected names and nothing else."""
    assert sorted(os.listdir(folder)) == sorted((*NEIGHBOURS, *expected))
    for name in NEIGHBOURS:
        assert (folder / name).read_bytes() == name.encode()


class TestKills:
    @by_name
    def test_three_kills_leave_the_old_or_the_new_file(
        self, name: str, models: Path, saves: Callable[[str], Save], context: Any, tmp_path: Path
    ) -> None:
        kill_and_check(name, models, saves(name), context, tmp_path, 3)

    @pytest.mark.slow
    @by_name
    def test_twenty_kills_leave_the_old_or_the_new_file(
        self, name: str, models: Path, saves: Callable[[str], Save], context: Any, tmp_path: Path
    ) -> None:
        left = kill_and_check(name, models, saves(name), context, tmp_path, 20)
        print(f"{name}: 20 kills, {left} left a temporary")


def kill_and_check(
    name: str, models: Path, save: Save, context: Any, place: Path, kills: int
) -> int:
    """The number of kills that left a temporary."""
    writer = WRITERS[name]
    folder = place / "folder"
    folder.mkdir()
    write_neighbours(folder)
    target = folder / writer.target
    good, began = [], time.perf_counter()
    for version in (0, 1) if writer.replaces else (0,):
        save(target, version)
        good.append(writer.read(target))
    took = (time.perf_counter() - began) / len(good)
    chance = random.Random(name)
    left = 0
    for kill in range(kills):
        ours, theirs = context.Pipe(duplex=False)
        arguments = (name, models, target, place / f"aside-{kill}", theirs)
        child = context.Process(target=save_forever, args=arguments)
        child.start()
        theirs.close()
        assert ours.recv() == "ready"
        time.sleep(chance.uniform(0, 3 * took))
        child.kill()
        child.join()
        assert child.exitcode == -9  # It was saving until then.
        ours.close()
        if target.exists():
            assert writer.read(target) in good
        else:
            assert not writer.replaces
        left += len(os.listdir(folder)) > len(NEIGHBOURS) + target.exists()
        if not writer.replaces and target.exists():
            os.rename(target, place / f"seen-{kill}")
        save(target, 0)
        assert writer.read(target) == good[0]
        check_folder(folder, writer.target)
    return left


@by_name
def test_without_space_the_old_file_stays(
    name: str,
    saves: Callable[[str], Save],
    no_space: tuple[Path, AbstractContextManager[None]],
) -> None:
    folder, nothing_fits = no_space
    writer, save = WRITERS[name], saves(name)
    target = folder / writer.target
    write_neighbours(folder)
    if writer.replaces:
        save(target, 0)
        before = writer.read(target)
    with nothing_fits, pytest.raises(writer.error) as failure:
        save(target, 1)
    assert "\n" not in str(failure.value)
    check_folder(folder, *[writer.target] * writer.replaces)
    assert not writer.replaces or writer.read(target) == before
    save(target, 1)  # There is space again.
    check_folder(folder, writer.target)


def test_the_check_finds_a_writer_that_overwrites_in_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The check of a full disk can fail."""

    def prepare(models: Path, ends: ExitStack) -> Save:
        return lambda path, version: void(path.write_bytes(bytes([version]) * 9999))

    monkeypatch.setitem(WRITERS, "in place", Writer("f", prepare, OSError))
    with ExitStack() as ends:
        save = prepare(tmp_path, ends)
        with pytest.raises(AssertionError):
            test_without_space_the_old_file_stays(
                "in place", lambda name: save, (tmp_path, file_size_limit())
            )


class TestCommands:
    def test_pack_beside_a_swap_file(
        self, models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_neighbours(tmp_path)
        command = ["pack", str(models / "model"), "-o", str(tmp_path / "vim.onward")]
        assert main(command) == 0
        assert main([*command, "--force"]) == 0
        check_folder(tmp_path, "vim.onward")

    @pytest.mark.parametrize("mode", [0o600, 0o640])
    def test_pack_keeps_the_mode(self, models: Path, tmp_path: Path, mode: int) -> None:
        target = tmp_path / "m.onward"
        target.write_bytes(b"old")
        target.chmod(mode)
        assert main(["pack", str(models / "model"), "-o", str(target), "--force"]) == 0
        assert stat.S_IMODE(target.stat().st_mode) == mode
        assert main(["pack", "--verify", str(target)]) == 0

    def test_failed_commands_keep_the_old_file(
        self,
        models: Path,
        no_space: tuple[Path, AbstractContextManager[None]],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        folder, nothing_fits = no_space
        model = str(models / "model")
        saved, pack, out = folder / "a.npz", folder / "m.onward", folder / "out"
        saved.write_bytes((models / "f32.npz").read_bytes())
        pack.write_bytes(b"old")
        compare = ["compare", "cpu:f32", "--model", model, "--no-speed", "--max-new-tokens", "4"]
        commands = {
            str(saved): [*compare, "--save-a", str(saved)],
            str(pack): ["pack", model, "-o", str(pack), "--force"],
            str(out): ["quantize", model, "-o", str(out), "--method", "round"],
        }
        if importlib.util.find_spec("gguf") is not None:
            source, file = str(models / "model.gguf"), str(folder / "out.gguf")
            commands[file] = ["quantize", source, "-o", file, "--method", "round"]
        with nothing_fits:
            for path, command in commands.items():
                assert main(command) == 1, command
                error = capsys.readouterr().err
                assert error.count("\n") == 1, error
                assert "cannot write: " in error and os.path.basename(path) in error
        result_file.load(str(saved))
        assert saved.read_bytes() == (models / "f32.npz").read_bytes()
        assert pack.read_bytes() == b"old"
        assert sorted(os.listdir(folder)) == ["a.npz", "m.onward"]
