"""A llama model whose tensors are fused, transposed, stacked and shifted, as other families store
them: the weights in memory are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from builders.checkpoints import config_of, random_weights, write_folder
from closed_form import write_bytes_tokenizer
from onward.errors import InvalidArgument, WeightError
from onward.load import architectures
from onward.load.architectures.parts import Part, PlannedTensor, stored_shapes
from onward.load.architectures.row_orders import grouped, interleaved
from onward.load.hub import find_model
from onward.load.loading import opened_source, pack
from onward.quantization import quantize

CONFIG = config_of(vocab_size=256, max_position_embeddings=256, attention_bias=True)
FUSED = {"qkv", "qkv_bias", "gate_up", "attention_norm", "mlp_norm", "norm"}
ALL = FUSED | {"o", "down"}
Weights = dict[str, np.ndarray]
Plan = list[PlannedTensor]


def plain_weights() -> Weights:
    """Norms are 1.5, so that 1 can be subtracted and added without rounding."""
    weights = {name: values / 8 for name, values in random_weights(CONFIG).items()}
    return {name: np.full(32, 1.5) if "norm" in name else v for name, v in weights.items()}


def other_plan(plan: Plan, changes: set[str]) -> Plan:
    k, q, v = grouped(2, (8, 16, 8))
    changed = []
    for planned in plan:
        here, _, name = planned.name.rpartition(".")
        parts = planned.parts
        if name not in changes:
            pass
        elif name == "qkv":
            parts = tuple(Part(f"{here}.qkv", (len(r), 32), (64, 32), rows=r) for r in (q, k, v))
        elif name == "qkv_bias":
            parts = tuple(Part(f"{here}.qkv_bias", (len(r),), (64,), rows=r) for r in (q, k, v))
        elif name == "o":
            parts = (Part(f"{here}.o", (32, 32), (32, 32), transposed=True),)
        elif name == "gate_up":
            rows = interleaved(2, 64)
            parts = tuple(Part(f"{here}.gate_up", (64, 32), (128, 32), rows=r) for r in rows)
        elif name == "down":
            parts = (Part("down", (32, 64), (2, 32, 64), slice=int(here[-1])),)
        else:
            parts = tuple(Part(p.tensor, p.shape, p.stored, plus=1.0) for p in parts)
        changed.append(PlannedTensor(planned.name, parts))
    return changed


def other_weights(changes: set[str]) -> Weights:
    """The same model, with q, k and v of a layer in two groups of k, q and v."""
    weights = plain_weights()
    made = {
        name: values
        for name, values in weights.items()
        if ".self_attn.o_proj.bias" in name or "proj" not in name
    }
    for layer in range(2):
        here, there = f"layers.{layer}.", f"model.layers.{layer}."
        q, k, v = (weights[f"{there}self_attn.{x}_proj.weight"] for x in "qkv")
        made[here + "qkv"] = np.concatenate([k[:8], q[:16], v[:8], k[8:], q[16:], v[8:]])
        q, k, v = (weights[f"{there}self_attn.{x}_proj.bias"] for x in "qkv")
        made[here + "qkv_bias"] = np.concatenate([k[:8], q[:16], v[:8], k[8:], q[16:], v[8:]])
        o = there + "self_attn.o_proj.weight"
        made |= {here + "o": weights[o].T} if "o" in changes else {o: weights[o]}
        gate, up = (weights[f"{there}mlp.{x}_proj.weight"] for x in ("gate", "up"))
        made[here + "gate_up"] = np.stack([gate, up], axis=1).reshape(128, 32)
        down = there + "mlp.down_proj.weight"
        made |= {} if "down" in changes else {down: weights[down]}
    if "down" in changes:
        made["down"] = np.stack([weights[f"model.layers.{i}.mlp.down_proj.weight"] for i in (0, 1)])
    return {name: values - 1 if "norm" in name else values for name, values in made.items()}


@contextmanager
def planned_otherwise(changes: set[str]) -> Iterator[Plan]:
    """During the block, llama has the other plan."""
    plan = other_plan(architectures.tensor_plan(architectures.read_spec(CONFIG)), changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(architectures, "tensor_plan", lambda *_: plan)
        yield plan


def packed(folder: Path, dtype: str = "auto") -> list[tuple[str, str, bytes]]:
    seen: list[tuple[int, int]] = []
    files = find_model(folder)
    with opened_source(files, dtype, 1, lambda *at: seen.append(at), None, "auto", "cpu") as source:
        core = pack(source, finite=True)
        stored = stored_shapes(source.plan)
        sizes = sum(source.checkpoint.tensor(name).buffer.nbytes for name in stored)
    assert seen[-1] == (sizes, sizes)  # each tensor counts once
    return [(name, kind, bytes(data)) for name, kind, data in core.packed()]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("stored", ["F32", "F16", "BF16"])
def test_the_same_bytes_are_packed(tmp_path: Path, dtype: str, stored: str) -> None:
    plain = write_folder(tmp_path / "plain", CONFIG, plain_weights(), stored)
    other = write_folder(tmp_path / "other", CONFIG, other_weights(ALL), stored)
    expected = packed(plain, dtype)
    with planned_otherwise(ALL):
        assert packed(other, dtype) == expected


@pytest.mark.parametrize(
    ("method", "changes"), [("round", FUSED | {"down"}), ("gptq", FUSED)], ids=["round", "gptq"]
)
def test_quantised_files_keep_the_layout_of_their_tensors(
    tmp_path: Path, method: str, changes: set[str]
) -> None:
    plain = write_folder(tmp_path / "plain", CONFIG, plain_weights())
    other = write_folder(tmp_path / "other", CONFIG, other_weights(changes))

    def quantised(folder: Path) -> list[tuple[str, str, bytes]]:
        write_bytes_tokenizer(folder)
        target = folder.with_suffix(f".{method}")
        quantize(folder, target, method=method, calibration_tokens=1024, threads=1)
        return packed(target)

    expected = quantised(plain)
    assert {kind for _, kind, _ in expected} == {"f32", "q4_0", "q8_0"}
    with planned_otherwise(changes):
        assert quantised(other) == expected


def test_errors_of_calibration_name_the_rows_of_fused_tensors(tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other", CONFIG, other_weights(FUSED))
    write_bytes_tokenizer(other)
    with planned_otherwise(FUSED):
        done = quantize(other, tmp_path / "out", calibration_tokens=1024, threads=1)
    names = [matrix.name for matrix in done.matrices]
    assert names[:3] == [f"layers.0.qkv[{rows}]" for rows in ("8..55", "0..39", "24..63")]
    assert names[3] == "model.layers.0.self_attn.o_proj.weight"


@pytest.mark.parametrize(
    ("method", "changes", "error", "message"),
    [
        ("round", {"o"}, WeightError, r"tensor layers\.0\.o is stored as \(inputs, outputs\)"),
        ("gptq", {"down"}, InvalidArgument, "layers.0.down, but down has other rows, too"),
    ],
)
def test_tensors_that_cannot_be_quantised_are_refused(
    tmp_path: Path, method: str, changes: set[str], error: type[Exception], message: str
) -> None:
    changes = changes | FUSED
    other = write_folder(tmp_path / "other", CONFIG, other_weights(changes))
    write_bytes_tokenizer(other)
    with planned_otherwise(changes), pytest.raises(error, match=message):
        quantize(other, tmp_path / "out", method=method, calibration_tokens=1024, threads=1)
    assert not (tmp_path / "out").exists()
