"""Folders of packs that are damaged, hostile, full, write-protected or shared: never an error."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from builders.checkpoints import (
    write_folder,
)
from builders.core_engine import new_engine
from builders.packed_folders import DTYPES, PROMPT, load, logits, spoil, the_file
from builders.seeded_folder import write_seeded
from onward.load import packing


class Full:
    free = 10


@pytest.fixture(autouse=True)
def no_warnings(recwarn: pytest.WarningsRecorder) -> Any:
    """Warnings are errors in these tests, except where a test expects them."""
    yield
    assert [str(w.message) for w in recwarn if "packed_cache" in str(w.message)] == []


# Damage.


@pytest.mark.parametrize("kept", [0, 7, 8, 100, 0.5, 0.99])
def test_truncated_files_are_packed_again(tmp_path: Path, kept: float) -> None:
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    plain = logits(load(folder, cache))
    path = the_file(cache)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if 0 < kept < 1 else int(kept)])
    with pytest.warns(UserWarning, match=r"packed_cache: m-f32-.*packing the model's own"):
        assert logits(load(folder, cache)) == plain
    assert the_file(cache).read_bytes() == whole
    assert logits(load(folder, cache)) == plain


def test_a_flipped_bit_of_a_header_is_at_most_a_warning(tmp_path: Path) -> None:
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    plain = logits(load(folder, cache))
    path = the_file(cache)
    whole = path.read_bytes()
    header_bytes = int.from_bytes(whole[:8], "little")
    generator = np.random.default_rng(0)
    places = [*range(64), *generator.integers(64, 8 * (8 + header_bytes), 120)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in places:
            damaged = bytearray(whole)
            damaged[place // 8] ^= 1 << place % 8
            path.write_bytes(damaged)
            assert logits(load(folder, cache)) == plain, place
            assert the_file(cache) == path


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("norm"),
        lambda tensors: tensors.update(norms=tensors["norm"]),
        lambda tensors: tensors.update(norm=np.zeros(16, np.float32)),
        lambda tensors: tensors.update(embed=np.zeros(1, np.uint8)),
        lambda tensors: tensors.update(embed=np.zeros(0, np.uint8)),
        lambda tensors: tensors.update({"layers.0.qkv": np.zeros(1 << 20, np.uint8)}),
    ],
)
def test_valid_files_of_wrong_tensors_are_packed_again(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    from safetensors.numpy import load_file

    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    plain = logits(load(folder, cache))
    path = the_file(cache)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    tensors = {n: a for n, a in load_file(path).items() if not n.startswith("padding")}
    change(tensors)
    dtypes = {np.dtype(np.float32): "f32", np.dtype(np.uint8): "u8"}
    written = [(n, dtypes[a.dtype], memoryview(a.tobytes())) for n, a in tensors.items()]
    packing.write_pack(path, metadata, written)
    with pytest.warns(UserWarning, match=r"packed_cache: m-f32-.*weights: .*packing the model's"):
        assert logits(load(folder, cache)) == plain


def test_garbage_in_weights_does_no_harm(tmp_path: Path) -> None:
    """Garbage of the right size is used as weights and gives only wrong numbers."""
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    for dtype in DTYPES:
        load(folder, cache, dtype)
    for path in cache.iterdir():
        spoil(path, 8 + int.from_bytes(path.read_bytes()[:8], "little"))
    for dtype in DTYPES:
        new_engine(load(folder, cache, dtype).core).logits(PROMPT)


def test_a_folder_in_place_of_the_file_is_a_warning(tmp_path: Path) -> None:
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    plain = logits(load(folder, cache))
    path = the_file(cache)
    path.unlink()
    path.mkdir()
    with pytest.warns(UserWarning, match="packed_cache") as found:
        assert logits(load(folder, cache)) == plain
    assert ["packing" in str(w.message) for w in found] == [True, False]
    assert "cannot write" in str(found[1].message)
    assert list(cache.iterdir()) == [path]


# Writing.


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match=r"packed_cache: m-f32-.*cannot write: Not a directory"):
        loaded = load(folder, tmp_path / "file" / "below")
    with pytest.warns(UserWarning, match="cannot write: File name too long"):
        load(folder, tmp_path / ("x" * 300))
    assert logits(loaded) == logits(load(folder, None))


def test_a_read_only_folder(tmp_path: Path) -> None:
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    load(folder, cache, "f32")
    cache.chmod(0o500)
    if os.access(cache, os.W_OK):
        pytest.skip("nothing is read-only for root")
    load(folder, cache, "f32")  # reads what is there
    with pytest.warns(UserWarning, match="cannot write: Permission denied"):
        load(folder, cache, "bf16")


def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    with monkeypatch.context() as patched:
        patched.setattr(packing.shutil, "disk_usage", lambda _: Full)
        with pytest.warns(UserWarning, match=r"cannot write: .* bytes to write, 10 free"):
            load(folder, cache)
    assert list(cache.iterdir()) == []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.warns(UserWarning, match="cannot write: File too large"):
            loaded = load(folder, cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(cache.iterdir()) == []
    assert logits(loaded) == logits(load(folder, None))


def test_ctrl_c_while_writing_leaves_no_file(tmp_path: Path) -> None:
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    seen: list[int] = []

    def interrupt(done: int, total: int) -> None:
        if seen and done < seen[-1]:  # the second pass
            raise KeyboardInterrupt
        seen.append(done)

    with pytest.raises(KeyboardInterrupt):
        load(folder, cache, progress=interrupt)
    assert list(cache.iterdir()) == []


def test_two_processes_at_once(tmp_path: Path, child_environment: dict[str, str]) -> None:
    """Each process finds no file or a complete one. One file remains."""
    folder, cache = write_seeded(tmp_path / "m"), tmp_path / "cache"
    code = (
        "import sys, warnings, pathlib, hashlib\n"
        "from builders import packed_folders as tests\n"
        "warnings.simplefilter('error')\n"
        "folder, cache = map(pathlib.Path, sys.argv[1:])\n"
        "for _ in range(20):\n"
        "    for path in cache.glob('m-*'): path.unlink(missing_ok=True)\n"
        "    found = tests.logits(tests.load(folder, cache))\n"
        "    print(hashlib.sha256(found).hexdigest())\n"
    )
    command = [sys.executable, "-c", code, str(folder), str(cache)]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment)
        for _ in range(2)
    ]
    reported = [child.communicate(timeout=60)[0].split() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    expected = hashlib.sha256(logits(load(folder, None))).hexdigest()
    assert reported == [[expected] * 20] * 2
    the_file(cache)


def test_threads_at_once(tmp_path: Path) -> None:
    folder, cache = write_seeded(tmp_path / "m"), tmp_path / "cache"
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(logits(load(folder, cache)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [logits(load(folder, None))] * 4
