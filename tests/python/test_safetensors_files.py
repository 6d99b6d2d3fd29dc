"""Folders with safetensors weights: which files are used, their content, and every kind of broken
file.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.checkpoints import (
    TINY,
    Stored,
    config_of,
    random_weights,
    safetensors_bytes,
    stored,
    with_header,
    write_folder,
)
from onward.errors import ConfigError, LoadError, WeightError
from onward.load import architectures
from onward.load.hub import find_model
from onward.load.loading import check_headers, read_spec
from onward.load.weights import open_checkpoint
from onward.load.weights.safetensors import INDEX_NAME, SafetensorsCheckpoint

HEAD = "lm_head.weight"
EMBED = "model.embed_tokens.weight"


def check(folder: Path) -> SafetensorsCheckpoint:
    """Open a folder and compare its config with its tensors."""
    checkpoint = open_checkpoint(find_model(folder))
    spec = read_spec(checkpoint)
    check_headers(architectures.tensor_plan(spec), checkpoint, spec)
    assert isinstance(checkpoint, SafetensorsCheckpoint)
    return checkpoint


def values(checkpoint: SafetensorsCheckpoint, name: str) -> np.ndarray:
    tensor = checkpoint.tensor(name)
    assert tensor.dtype == "F32"
    return np.frombuffer(tensor.buffer, "<f4").reshape(tensor.shape)


def write_tensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    path.write_bytes(safetensors_bytes({name: stored(v) for name, v in tensors.items()}))


def write_shards(folder: Path, shards: dict[str, dict[str, np.ndarray]]) -> dict[str, str]:
    """Write each shard; return the weight map in which the last file with a name has it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(TINY))
    for file_name, tensors in shards.items():
        write_tensors(folder / file_name, tensors)
    return {name: file_name for file_name, tensors in shards.items() for name in tensors}


def write_index(folder: Path, weight_map: object) -> None:
    (folder / INDEX_NAME).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_tensors_are_the_bytes_of_the_file(tmp_path: Path, dtype: str) -> None:
    weights = random_weights(TINY)
    checkpoint = check(write_folder(tmp_path / "m", weights=weights, dtype=dtype))
    assert checkpoint.names() == set(weights)
    for name, array in weights.items():
        tensor = checkpoint.tensor(name)
        assert (tensor.dtype, tensor.shape) == (dtype, array.shape)
        assert tensor.buffer.readonly
        assert bytes(tensor.buffer) == stored(array, dtype).data
    checkpoint.release(HEAD)  # pages are read again when they are looked at again
    assert bytes(checkpoint.tensor(HEAD).buffer) == stored(weights[HEAD], dtype).data


def test_buffers_outlive_the_checkpoint(tmp_path: Path) -> None:
    weights = random_weights(TINY)
    checkpoint = check(write_folder(tmp_path / "m", weights=weights))
    head = values(checkpoint, HEAD)
    checkpoint.close()
    checkpoint.close()
    assert (head == weights[HEAD]).all()


def test_generation_config_is_read(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    assert check(folder).generation_config == {}
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    assert check(folder).generation_config == {"eos_token_id": [2, 7]}
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"^generation_config\.json: "):
        check(folder)


# Which files count.


def test_shards_by_index_and_stray_file_ignored(tmp_path: Path) -> None:
    weights = random_weights(TINY)
    first = {name: array for name, array in weights.items() if name != HEAD}
    stale = {**weights, HEAD: -weights[HEAD]}
    weight_map = write_shards(
        tmp_path, {"model-1.safetensors": {**first, HEAD: stale[HEAD]}, "model-2.safetensors": {}}
    )
    write_tensors(tmp_path / "model-2.safetensors", {HEAD: weights[HEAD]})
    write_tensors(tmp_path / "old.safetensors", stale)
    write_index(tmp_path, {**weight_map, HEAD: "model-2.safetensors"})
    checkpoint = check(tmp_path)
    assert (values(checkpoint, HEAD) == weights[HEAD]).all()
    assert checkpoint.file_of(HEAD) == "model-2.safetensors"


def test_missing_shard_is_named(tmp_path: Path) -> None:
    weights = random_weights(TINY)
    head = {HEAD: weights.pop(HEAD)}
    write_index(tmp_path, write_shards(tmp_path, {"a.safetensors": weights, "b.safetensors": head}))
    check(tmp_path)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(WeightError, match=r"b\.safetensors is listed, but not in the folder"):
        check(tmp_path)


def test_tensor_that_the_index_promises_and_the_shard_lacks(tmp_path: Path) -> None:
    weights = random_weights(TINY)
    head = {HEAD: weights.pop(HEAD)}
    weight_map = write_shards(tmp_path, {"a.safetensors": weights, "b.safetensors": head})
    write_index(tmp_path, {**weight_map, "model.norm.weight": "b.safetensors"})
    with pytest.raises(WeightError, match=r"^b\.safetensors: tensor model\.norm\.weight is miss"):
        check(tmp_path)


def test_several_files_without_index(tmp_path: Path) -> None:
    weights = random_weights(TINY)
    head = {HEAD: weights.pop(HEAD)}
    write_shards(tmp_path, {"a.safetensors": weights, "b.safetensors": head})
    assert (values(check(tmp_path), HEAD) == head[HEAD]).all()
    write_tensors(tmp_path / "c.safetensors", head)
    with pytest.raises(WeightError, match=rf"^c\.safetensors: tensor {HEAD} is also in b\.safe"):
        check(tmp_path)


def test_second_copy_in_mistrals_own_names_is_ignored(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    write_tensors(folder / "consolidated.safetensors", {"tok_embeddings.weight": np.ones((2, 2))})
    check(folder)


def test_folder_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    with pytest.raises(WeightError, match=r"no weights found, expected model\.safetensors or"):
        check(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(WeightError, match=r"pytorch_model\.bin is a pickle"):
        check(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "../other/model.safetensors",
        "OUTSIDE",
        "a/../../other/model.safetensors",
        "sub/model.safetensors",
        "..\\other\\model.safetensors",
        "model\0.safetensors",
        "model\n.safetensors",
        "x" * 300 + ".safetensors",
        "pytorch_model.bin",
        "",
        ".",
        "..",
        7,
        None,
        ["model.safetensors"],
    ],
)
def test_index_cannot_name_a_file_outside_the_folder(tmp_path: Path, name: object) -> None:
    outside = write_folder(tmp_path / "other")
    folder = write_folder(tmp_path / "m")
    (folder / "sub").mkdir()
    write_tensors(folder / "sub" / "model.safetensors", random_weights(TINY))
    if name == "OUTSIDE":
        name = str(outside / "model.safetensors")
    weight_map: dict[str, object] = {tensor: "all.safetensors" for tensor in random_weights(TINY)}
    (folder / "model.safetensors").rename(folder / "all.safetensors")
    write_index(folder, {**weight_map, HEAD: name})
    with pytest.raises(WeightError, match=rf"^{INDEX_NAME}: {HEAD} is mapped to .*plain name"):
        check(folder)


@pytest.mark.parametrize("weight_map", [None, [], {}, "model.safetensors", 3])
def test_index_without_weight_map(tmp_path: Path, weight_map: object) -> None:
    write_index(write_folder(tmp_path / "m"), weight_map)
    (tmp_path / "m" / "model.safetensors").unlink()
    with pytest.raises(WeightError, match="weight_map is not an object with entries"):
        check(tmp_path / "m")


def test_hub_cache_layout_of_links_works(tmp_path: Path) -> None:
    plain = write_folder(tmp_path / "plain")
    blobs, snapshot = tmp_path / "repo" / "blobs", tmp_path / "repo" / "snapshots" / "0a1b"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    names = {"config.json": "c0ffee", "model.safetensors": "facade"}
    for name, blob in names.items():
        (plain / name).rename(blobs / blob)
        (snapshot / name).symlink_to(Path("../../blobs") / blob)
    write_index(snapshot, {tensor: "model.safetensors" for tensor in random_weights(TINY)})
    assert (values(check(snapshot), HEAD) == random_weights(TINY)[HEAD]).all()
    (blobs / "facade").unlink()
    with pytest.raises(WeightError, match=r"model\.safetensors is listed, but not in the folder"):
        check(snapshot)


# What the tensors must be.


def test_tied_and_untied_heads(tmp_path: Path) -> None:
    untied, tied = config_of(), config_of(tie_word_embeddings=True)
    weights = random_weights(untied)
    without = {name: array for name, array in weights.items() if name != HEAD}
    check(write_folder(tmp_path / "1", untied, weights))
    check(write_folder(tmp_path / "2", tied, without))
    check(write_folder(tmp_path / "3", tied, {**without, HEAD: weights[EMBED]}))
    with pytest.raises(WeightError, match=rf"missing tensors: {HEAD}; tie_word_embeddings"):
        check(write_folder(tmp_path / "4", untied, without))


def test_missing_and_unexpected_tensors_are_listed(tmp_path: Path) -> None:
    weights = random_weights(TINY)
    lost = ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.up_proj.weight"]
    fewer = {name: array for name, array in weights.items() if name not in lost}
    with pytest.raises(WeightError, match=f"missing tensors: {lost[0]}, {lost[1]}$"):
        check(write_folder(tmp_path / "m", weights=fewer))
    extra = {f"model.layers.{i}.self_attn.q_proj.bias": np.ones(4) for i in range(12)}
    with pytest.raises(WeightError, match=r"llama has no place.*layers\.0\..* and 4 more$"):
        check(write_folder(tmp_path / "m", weights={**weights, **extra}))
    buffers = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": np.ones(4) for i in range(2)}
    check(write_folder(tmp_path / "m", weights={**weights, **buffers}))
    # The reference library saves the matrices of an expert of size 0, too.
    empty = {"model.layers.0.mlp.shared_experts.up_proj.weight": np.ones((0, 32), np.float32)}
    check(write_folder(tmp_path / "m", weights={**weights, **empty}))


def test_misshapen_tensor_gives_both_shapes(tmp_path: Path) -> None:
    weights = {**random_weights(TINY), "model.norm.weight": np.ones(33)}
    with pytest.raises(
        WeightError,
        match=r"^model\.safetensors: tensor model\.norm\.weight has shape \(33,\), "
        r"expected \(32,\) by the config$",
    ):
        check(write_folder(tmp_path / "m", weights=weights))
    wider = config_of(vocab_size=17)
    with pytest.raises(WeightError, match=r"has shape \(16, 32\), expected \(17, 32\)"):
        check(write_folder(tmp_path / "m", wider, random_weights(TINY)))


@pytest.mark.parametrize("dtype", ["F8_E4M3", "I8", "U8", "BOOL"])
def test_unsupported_dtype_is_named(tmp_path: Path, dtype: str) -> None:
    folder = write_folder(tmp_path / "m")
    tensors = {name: stored(array) for name, array in random_weights(TINY).items()}
    tensors[HEAD] = Stored(dtype, (16, 32), bytes(16 * 32))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    with pytest.raises(
        WeightError, match=rf"tensor {HEAD} has unsupported dtype {dtype}, expected"
    ):
        check(folder)


# Broken files. Each case is (header, data) or the whole file.

F32_2 = '"a": {"dtype": "F32", "shape": [2], "data_offsets": %s}'
ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def of_header(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, str) else json.dumps(header)
    return with_header(text.encode(), data)


def ranges(a: str, b: str, size: int) -> bytes:
    both = F32_2 % a + ", " + (F32_2 % b).replace('"a"', '"b"', 1)
    return of_header("{" + both + "}", bytes(size))


BROKEN: dict[str, bytes] = {
    "empty": b"",
    "7 bytes": bytes(7),
    "length 0": bytes(8),
    "length 2**64 - 1": struct.pack("<Q", 2**64 - 1) + bytes(92),
    "length 2**64 - 8": struct.pack("<Q", 2**64 - 8) + bytes(92),
    "length 2**63": struct.pack("<Q", 2**63) + bytes(92),
    "length 10**6 in 100 bytes": struct.pack("<Q", 10**6) + bytes(92),
    "no JSON": of_header("hello"),
    "list": of_header([1, 2]),
    "deep": with_header(b'{"a":' + b"[" * 100_000, b""),
    "not UTF-8": with_header(b'{"\xff": 1}', b""),
    "overlap": ranges("[0, 8]", "[4, 12]", 12),
    "same range twice": ranges("[0, 8]", "[0, 8]", 8),
    "hole": ranges("[0, 8]", "[12, 20]", 20),
    "trailing bytes": of_header({"a": ONE}, bytes(12)),
    "reversed": of_header("{" + F32_2 % "[8, 0]" + "}", bytes(8)),
    "negative": of_header("{" + F32_2 % "[-8, 0]" + "}", bytes(8)),
    "float offsets": of_header("{" + F32_2 % "[0.0, 8.0]" + "}", bytes(8)),
    "one offset": of_header("{" + F32_2 % "[0]" + "}", bytes(8)),
    "no offsets": of_header('{"a": {"dtype": "F32", "shape": [2]}}', bytes(8)),
    "end past the file": of_header("{" + F32_2 % "[0, 8]" + "}", bytes(4)),
    "shape larger than range": of_header({"a": {**ONE, "shape": [3]}}, bytes(8)),
    "negative shape": of_header({"a": {**ONE, "shape": [-2]}}, bytes(8)),
    "product wraps to 0": of_header(
        {"a": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]}}
    ),
    "square wraps to 0": of_header(
        {"a": {"dtype": "F32", "shape": [2**32, 2**32], "data_offsets": [0, 0]}}
    ),
    "unknown dtype": of_header({"a": {**ONE, "dtype": "F33"}}, bytes(4)),
    "metadata is a number": of_header({"__metadata__": 1, "a": ONE}, bytes(4)),
    "name twice": of_header('{"a": %s, "a": %s}' % ((json.dumps(ONE),) * 2), bytes(4)),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file_is_an_error_that_names_it(tmp_path: Path, case: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "model.safetensors").write_bytes(BROKEN[case])
    with pytest.raises(WeightError, match=r"^model\.safetensors( header)?: "):
        SafetensorsCheckpoint(tmp_path)


def test_broken_files_are_refused_quickly_and_without_a_signal(tmp_path: Path) -> None:
    for number, data in enumerate(BROKEN.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(TINY))
        (folder / "model.safetensors").write_bytes(data)
    code = (
        "import resource, sys, time\n"
        "from pathlib import Path\n"
        "from onward.errors import Error\n"
        "from onward.load.weights.safetensors import SafetensorsCheckpoint\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "slowest = 0\n"
        "for folder in Path(sys.argv[1]).iterdir():\n"
        "    start = time.perf_counter()\n"
        "    try: SafetensorsCheckpoint(folder); raise SystemExit(f'{folder} was accepted')\n"
        "    except Error: slowest = max(slowest, time.perf_counter() - start)\n"
        "print(slowest, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    slowest, grown_kb = done.stdout.split()
    assert float(slowest) < 1
    assert int(grown_kb) < 50_000


@pytest.mark.parametrize("cut", [4, 4096])
def test_truncated_file_gives_both_sizes(tmp_path: Path, cut: int) -> None:
    folder = write_folder(tmp_path / "m")
    path = folder / "model.safetensors"
    size = path.stat().st_size
    os.truncate(path, size - cut)
    with pytest.raises(
        WeightError, match=rf"^model\.safetensors: has {size - cut} bytes, expected {size} "
    ):
        check(folder)


def accepted(data: bytes, tmp_path: Path) -> SafetensorsCheckpoint:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "model.safetensors").write_bytes(data)
    return SafetensorsCheckpoint(tmp_path)


def test_unusual_but_valid_files_are_accepted(tmp_path: Path) -> None:
    def entry(dtype: str, shape: list[int], begin: int, end: int, **more: Any) -> dict[str, Any]:
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}

    two = struct.pack("<ff", 1.5, -2.0)
    unordered = {"b": entry("F32", [1], 4, 8), "a": entry("F32", [1], 0, 4)}
    assert values(accepted(of_header(unordered, two), tmp_path), "b") == -2.0
    empty = accepted(of_header({"a": entry("F32", [0, 5], 0, 0)}), tmp_path)
    assert empty.tensor("a").shape == (0, 5)
    empty.release("a")
    scalar = accepted(of_header({"a": entry("F32", [], 0, 4)}, two[:4]), tmp_path)
    assert values(scalar, "a") == 1.5
    extra = accepted(of_header({"a": entry("F32", [2], 0, 8, note="x")}, two), tmp_path)
    assert values(extra, "a").tolist() == [1.5, -2.0]
    spaces = json.dumps({"a": entry("F32", [2], 0, 8)})
    for text in (spaces + "     ", "  " + spaces):
        assert values(accepted(of_header(text, two), tmp_path), "a").tolist() == [1.5, -2.0]
    odd = {"u": entry("U8", [1], 0, 1), "a": entry("F32", [2], 1, 9)}
    checkpoint = accepted(of_header(odd, b"\7" + two), tmp_path)
    assert struct.unpack("<ff", checkpoint.tensor("a").buffer) == (1.5, -2.0)
    with pytest.raises(WeightError, match="tensor u has dtype U8, expected F32, F16 or BF16"):
        checkpoint.tensor("u")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_weight_file_that_is_no_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    make(tmp_path / "model.safetensors")
    with pytest.raises(WeightError, match=r"^model\.safetensors: is not a regular file"):
        check(tmp_path)


def test_files_are_not_left_open(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "config.json").write_text("{}")
    (bad / "model.safetensors").write_bytes(BROKEN["overlap"])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        check(folder).close()
        with pytest.raises(LoadError):
            SafetensorsCheckpoint(bad)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
