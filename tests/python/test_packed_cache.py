"""A folder of packs: the same bits, and no tensor is read if the model has not changed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.checkpoints import (
    TINY,
    TINY_GGUF,
    Stored,
    config_of,
    gguf_bytes,
    random_blocks,
    random_weights,
    safetensors_bytes,
    stored,
    tiny_gguf_tensors,
    write_folder,
)
from builders.packed_folders import DTYPES, load, logits, packs, spoil, the_file
from builders.resources import needs_proc
from builders.seeded_folder import write_seeded
from closed_form import write_script
from onward import _core
from onward.errors import ArgumentTypeError, InvalidArgument, WeightError
from onward.load import packed_cache
from onward.load.hub import find_model
from onward.load.packed_cache import load_with_cache
from onward.load.weights.safetensors import BLOCKS_METHOD


@pytest.fixture(autouse=True)
def no_warnings(recwarn: pytest.WarningsRecorder) -> Any:
    """Warnings are errors in these tests, except where a test expects them."""
    yield
    assert [str(w.message) for w in recwarn if "packed_cache" in str(w.message)] == []


# The same model, without its tensors.


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kept_pack_gives_the_same_bits_without_reading_tensors(
    tmp_path: Path, dtype: str
) -> None:
    folder = write_seeded(tmp_path / "m")
    plain = logits(load(folder, None, dtype))
    cache = tmp_path / "cache" / "of packed"  # made where there is none
    assert logits(load(folder, cache, dtype)) == plain
    spoil(folder / "model.safetensors")
    again = load(folder, cache, dtype)
    assert logits(again) == plain
    assert again.dtypes.name == dtype
    if dtype in ("f32", "bf16"):
        assert logits(load(folder, None, dtype)) != plain  # the garbage is garbage
    else:
        with pytest.raises(WeightError, match="has values up to"):
            load(folder, None, dtype)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K"])
def test_quantised_gguf_files(tmp_path: Path, kind: str) -> None:
    """Rows of q and k in another order, and formats that are kept as they are."""
    wide = kind.endswith("K")
    config = config_of(hidden_size=256, intermediate_size=256) if wide else TINY
    generator = np.random.default_rng(3)
    tensors = {
        name: random_blocks(kind, tensor.shape, generator) if len(tensor.shape) == 2 else tensor
        for name, tensor in tiny_gguf_tensors(config).items()
    }
    sizes = {
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
    }
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({**TINY_GGUF, **sizes}, tensors))
    plain = logits(load(path, None, "auto"))
    assert logits(load(path, tmp_path / "cache", "auto")) == plain
    spoil(path)
    assert logits(load(path, tmp_path / "cache", "auto")) == plain


def test_biases_norms_of_heads_and_a_tied_head(tmp_path: Path) -> None:
    config = config_of(
        model_type="llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    )
    folder = write_folder(tmp_path / "m", config)
    qwen = config_of(model_type="qwen3", head_dim=16)
    for each in (folder, write_folder(tmp_path / "q", qwen)):
        plain = logits(load(each, None))
        assert logits(load(each, tmp_path / "cache")) == plain
        spoil(each / "model.safetensors")
        assert logits(load(each, tmp_path / "cache")) == plain


def test_the_folder_of_the_model_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "m")
    calls = packs(monkeypatch)
    plain = logits(load(folder, folder))
    assert logits(load(folder, folder)) == logits(load(folder, None)) == plain
    assert len(calls) == 2


def test_llm_and_its_draft_model_use_the_folder(
    tmp_path: Path, open_llm: Callable[..., Any]
) -> None:
    folder, draft = write_seeded(tmp_path / "m"), write_seeded(tmp_path / "d", seed=1)
    options = {"draft_model": draft, "packed_cache": str(tmp_path / "cache")}
    said = open_llm(folder, **options).generate([1, 2, 3], max_new_tokens=8).token_ids
    files = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert [name[:6] for name in files] == ["d-f32-", "m-f32-"]
    for each in (folder, draft):
        spoil(each / "model.safetensors")
    assert open_llm(folder, **options).generate([1, 2, 3], max_new_tokens=8).token_ids == said


def test_the_file_is_a_pack(tmp_path: Path, open_llm: Callable[..., Any]) -> None:
    folder = write_folder(tmp_path / "m")
    loaded = load(folder, tmp_path / "cache", "int4")
    path = the_file(tmp_path / "cache")
    assert path.name.startswith("m-int4-") and path.suffix == ".onward"
    core, texts = _core.open_pack(path, 1, verify=True)
    assert [(n, d, bytes(b)) for n, d, b in core.packed()] == [
        (n, d, bytes(b)) for n, d, b in sorted(loaded.core.packed())
    ]
    assert (texts["name"], texts["onward"]) == ("m", _core.__version__)
    assert "tokenizer.json" not in texts
    said = [
        open_llm(model, dtype="int4").generate([1, 2], max_new_tokens=4, temperature=0).token_ids
        for model in (folder, path)
    ]
    assert said[0] == said[1]


def test_the_file_of_version_0_1_is_replaced_and_never_read(tmp_path: Path) -> None:
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    plain = logits(load(folder, cache))
    path = the_file(cache)
    old = path.with_suffix(".onward-packed")
    path.rename(old)
    assert logits(load(folder, cache)) == plain
    assert the_file(cache) == path


def test_progress_reaches_the_total(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    calls: list[tuple[int, int]] = []
    for _ in range(2):
        calls.clear()
        load(folder, tmp_path / "cache", progress=lambda *call: calls.append(call))
    done, total = calls[-1]
    assert done == total > 0
    assert calls == sorted(calls)


# When the kept weights do not belong to the model.


def test_models_dtypes_and_devices_have_separate_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    a = write_folder(tmp_path / "a" / "m")
    b = write_folder(tmp_path / "b" / "m", weights=random_weights(TINY, seed=1))
    for each in (a, b):
        os.utime(each / "model.safetensors", ns=(1, 1))  # as package managers set it
    calls = packs(monkeypatch)
    first = [logits(load(each, cache, dtype)) for each in (a, b) for dtype in ("f32", "int8")]
    assert len(set(first)) == len(calls) == len(list(cache.iterdir())) == 4
    again = [logits(load(each, cache, dtype)) for each in (a, b) for dtype in ("f32", "int8")]
    assert again == first and len(calls) == 4
    load(a, cache, "auto")  # chooses f32
    assert len(calls) == 4


def test_a_changed_source_replaces_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    first = logits(load(folder, cache))
    name = the_file(cache).name
    calls = packs(monkeypatch)
    changed = random_weights(TINY, seed=1)
    write_folder(folder, weights=changed)
    second = logits(load(folder, cache))
    assert second != first and second == logits(load(folder, None))
    weights = folder / "model.safetensors"
    os.utime(weights, ns=(1, weights.stat().st_mtime_ns + 1))
    load(folder, cache)
    assert len(calls) == 3  # one of them without a cache
    write_folder(folder, config_of(rope_theta=77.0), changed)
    os.utime(weights, ns=(1, weights.stat().st_mtime_ns + 1))
    assert logits(load(folder, cache)) != second
    assert the_file(cache).name == name


def test_a_changed_config_replaces_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tensors are the same, but the config changes the computation."""
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    load(folder, cache)
    calls = packs(monkeypatch)
    (folder / "config.json").write_text(
        (folder / "config.json").read_text().replace("1e-05", "1e-03")
    )
    for _ in range(2):
        load(folder, cache)
    assert len(calls) == 1
    the_file(cache)


def test_a_change_of_the_config_about_tensors_replaces_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q4_K and Q4_0 take the same bytes, and become the same dtype."""
    generator, cache = np.random.default_rng(0), tmp_path / "cache"
    config = config_of(hidden_size=256, intermediate_size=256)
    tensors, blocks = {}, []
    for name, array in random_weights(config).items():
        tensors[name] = stored(array)
        if array.ndim == 2:
            # Masked, so that what is a scale in either format is finite.
            data = random_blocks("Q4_K", array.shape, generator).data
            data = bytes(byte & 0x3B for byte in data)
            tensors[name] = Stored("U8", (array.shape[0], len(data) // array.shape[0]), data)
            blocks.append(name)
    folder = write_folder(tmp_path / "m", config, {})
    (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    calls = packs(monkeypatch)
    found = []
    for kind in ("Q4_K", "Q4_0", "Q4_K"):
        section = {"quant_method": BLOCKS_METHOD, "tensors": dict.fromkeys(blocks, kind)}
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": section}))
        found.append([bytes(data) for _, _, data in load(folder, cache, "int8").core.packed()])
    assert found[0] == found[2] != found[1] and len(calls) == 3
    the_file(cache)


def test_another_version_is_packed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    load(folder, cache)
    calls = packs(monkeypatch)
    monkeypatch.setattr(_core, "__version__", "0.0.0")
    for _ in range(2):
        load(folder, cache)
    assert len(calls) == 1
    the_file(cache)


def test_another_layout_is_packed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is the same only between two builds of its development."""
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    facts = packed_cache.pack_facts
    with monkeypatch.context() as patched:
        patched.setattr(packed_cache, "pack_facts", lambda *a: facts(*a) | {"layout": "99"})
        load(folder, cache)
    calls = packs(monkeypatch)
    with pytest.warns(UserWarning, match=r"packed_cache: m-f32-.*has layout 99 .*packing the"):
        load(folder, cache)
    load(folder, cache)
    assert len(calls) == 1
    the_file(cache)


def test_a_changed_index_of_shards_replaces_the_file(tmp_path: Path) -> None:
    """The index decides from which shard a tensor comes."""
    folder = write_folder(tmp_path / "m")
    tensors = {name: stored(array) for name, array in random_weights(TINY, seed=1).items()}
    (folder / "other.safetensors").write_bytes(safetensors_bytes(tensors))
    os.utime(folder / "other.safetensors", ns=(1, 1))
    (folder / "model.safetensors").rename(folder / "first.safetensors")

    def index(name: str) -> None:
        weight_map = {tensor: "first.safetensors" for tensor in tensors}
        weight_map["model.norm.weight"] = "other.safetensors"
        weight_map["lm_head.weight"] = name
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    index("other.safetensors")
    first = logits(load(folder, tmp_path / "cache"))
    index("first.safetensors")
    second = logits(load(folder, tmp_path / "cache"))
    assert second != first and second == logits(load(folder, None))


# What the caller gives.


@pytest.mark.parametrize("given", ["", " ", "a\0b", __file__])
def test_a_path_that_is_not_a_folder_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(InvalidArgument, match=r"packed_cache: .*expected"):
        load_with_cache(given, find_model(write_folder(tmp_path / "m")), "f32", 1)


@pytest.mark.parametrize("given", [b"folder", 3, True])
def test_values_that_are_not_paths_are_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"packed_cache: .*expected"):
        load_with_cache(given, find_model(write_folder(tmp_path / "m")), "f32", 1)


def test_the_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from onward.cli import main

    script = write_script(tmp_path / "s", ["<pad>", "<s>", "</s>", "one,", " two."])
    for _ in range(2):
        flag = ["--packed-cache", str(tmp_path / "spoken")]
        assert main(["generate", "<s>", "--model", str(script), *flag]) == 0
        assert capsys.readouterr() == ("one, two.</s>\n", "")
        spoil(script / "model.safetensors")
    folder, cache = write_folder(tmp_path / "m"), tmp_path / "cache"
    few = ["--prefill", "4", "--depth", "none", "--repetitions", "1", "--packed-cache", str(cache)]
    for _ in range(2):
        assert main(["bench", "--model", str(folder), *few]) == 0
    the_file(cache)
    assert main(["bench", "--synthetic", "smollm2-135m", *few]) == 2
    assert "packed_cache" in capsys.readouterr().err


# Memory.


@needs_proc
def test_peak_memory_equals_the_weights(
    tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    big = write_seeded(
        tmp_path / "big", hidden_size=512, intermediate_size=2048, num_layers=8, vocab_size=16384
    )
    cache = tmp_path / "cache"
    load(big, cache)
    small = write_seeded(tmp_path / "small")
    load(small, cache)
    code = (
        "import sys, pathlib\n"
        "from builders import packed_folders as tests\n"
        "from builders.resources import peak_growth\n"
        "small, big, cache = map(pathlib.Path, sys.argv[1:])\n"
        "tests.load(small, cache)\n"
        "tests.loading.pack = None\n"
        "kept = []\n"
        "grown = peak_growth(lambda: kept.append(tests.load(big, cache)))\n"
        "print(grown / kept[0].core.weight_bytes)\n"
    )
    done = run_python(code, small, big, cache)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.15
