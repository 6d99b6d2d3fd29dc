"""A pack gives a native program the same ids and bits on every instruction set of this machine.
Each runs in its own process, selected with ONWARD_CPU_ISA, through the C interface.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from builders.packs import pack
from builders.seeded_folder import write_seeded
from onward import _core

CHILD = """
import ctypes, hashlib, json, sys
import numpy as np
from builders.c_interface import CModel, call
from onward import _core
handle = ctypes.c_void_p()
call("onward_model_open", sys.argv[1].encode(), None, ctypes.byref(handle))
with CModel(handle.value) as model, model.engine(threads=2) as engine:
    prompt = [int(id) for id in sys.argv[2:]]
    logits = engine.logits(prompt, model.info().vocab_size)
    tokens = engine.complete(prompt, max_new_tokens=24, ignore_eos=1)
    print(json.dumps([_core.kernels.selected(), tokens, hashlib.sha256(logits).hexdigest()]))
"""
PROMPT = [5, 17, 200, 3, 99, 42] * 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers and 320 tokens."""
    return write_seeded(tmp_path_factory.mktemp("model"), vocab_size=320)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "int8", "int4"])
def test_ids_and_logits_of_every_instruction_set(
    dtype: str, folder: Path, tmp_path: Path, run_python: Callable[..., CompletedProcess[str]]
) -> None:
    path = tmp_path / "model.onward"
    pack(folder, path, dtype=dtype)
    reported = {}
    for isa in _core.kernels.available():
        child = run_python(CHILD, path, *PROMPT, ONWARD_CPU_ISA=isa)
        assert child.returncode == 0, child.stderr
        name, *reported[isa] = json.loads(child.stdout)
        assert name == isa
    assert "generic" in reported
    for isa, found in reported.items():
        assert found == reported["generic"], isa
    ((tokens,), _) = reported["generic"]
    assert len(tokens) == 24 and len(set(tokens)) > 1
