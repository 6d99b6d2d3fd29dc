"""Loading: the chosen dtype, progress, and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from builders.checkpoints import TINY, config_of, random_weights, write_folder
from onward.load.hub import find_model
from onward.load.loading import load_model


def test_config_too_large_for_the_tensors_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m")
    huge = {"hidden_size": 1 << 20, "intermediate_size": 1 << 20, "vocab_size": 1 << 24}
    huge["num_hidden_layers"] = 4096
    (folder / "config.json").write_text(json.dumps(config_of(**huge)))
    code = (
        "import resource, sys\n"
        "from onward.load.hub import find_model\n"
        "from onward.load.loading import load_model\n"
        "from onward.errors import WeightError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: load_model(find_model(sys.argv[1]), 'auto', 1)\n"
        "except WeightError as error: print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    message, grown_kb = done.stdout.strip().splitlines()
    assert "missing tensors" in message
    assert int(grown_kb) < 100_000


def test_progress_counts_the_bytes_of_the_tensors(tmp_path: Path) -> None:
    pytest.importorskip("onward._core")
    weights = random_weights(TINY)
    folder = write_folder(tmp_path / "m", weights=weights)
    calls: list[tuple[int, int]] = []
    model = load_model(find_model(folder), "auto", 1, lambda *call: calls.append(call))
    total = sum(array.nbytes for array in weights.values())
    assert calls[-1] == (total, total)
    assert calls == sorted(calls)
    assert (model.dtypes.name, model.spec.num_layers, model.files.name) == ("f32", 2, "m")
    assert model.config == TINY


def test_a_bf16_model_takes_the_memory_of_its_file(tmp_path: Path) -> None:
    pytest.importorskip("onward._core")
    config = config_of(hidden_size=512, intermediate_size=2048, vocab_size=8192)
    config["num_attention_heads"] = 8
    folder = write_folder(tmp_path / "m", config, dtype="BF16")
    code = (
        "import sys\n"
        "from onward.load.hub import find_model\n"
        "from onward.load.loading import load_model\n"
        "def load(name): return load_model(find_model(name), 'auto', 1)\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "load(sys.argv[2])\n"
        "before = resident()\n"
        "model = load(sys.argv[1])\n"
        "print(model.dtypes.name, resident() - before)\n"
    )
    small = write_folder(tmp_path / "small")
    command = [sys.executable, "-c", code, str(folder), str(small)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    dtype, grown = done.stdout.split()
    assert dtype == "bf16"
    assert int(grown) < 1.1 * (folder / "model.safetensors").stat().st_size + (2 << 20)
