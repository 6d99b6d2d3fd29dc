"""GGUF files of the families: the spec and the weights are those of the folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.checkpoints import write_folder
from builders.gguf_cases import CASES
from onward import LLM
from onward.errors import ConfigError
from onward.load import architectures
from onward.load.architectures.model_types import GGUF_ARCHITECTURES
from onward.load.hub import find_model
from onward.load.loading import check_headers, plan_of, read_spec
from onward.load.weights import open_checkpoint
from onward.load.weights.gguf import GgufCheckpoint
from onward.load.weights.part_reader import gathered, read_part
from onward.spec import DecoderSpec

gguf = pytest.importorskip("gguf")


def opened(path: Path) -> tuple[DecoderSpec, dict[str, list[bytes]]]:
    """The spec of a model, and for each weight of the core the bytes of its parts."""
    checkpoint = open_checkpoint(find_model(path))
    spec = read_spec(checkpoint)
    plan = plan_of(spec, checkpoint)
    check_headers(plan, checkpoint, spec)
    weights = {
        planned.name: [
            bytes(gathered(read_part(checkpoint, part)).buffer) for part in planned.parts
        ]
        for planned in plan
    }
    checkpoint.close()
    return spec, weights


@pytest.mark.parametrize("name", CASES)
def test_spec_and_weights_are_those_of_the_folder(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    weights = case.weights()
    folder = write_folder(tmp_path / "folder", case.config, weights)
    path = tmp_path / "model.gguf"
    path.write_bytes(case.file(case.tensors(weights)))
    (expected, theirs), (found, ours) = opened(folder), opened(path)
    assert found == expected
    assert [key for key in theirs if theirs[key] != ours[key]] == []


@pytest.mark.parametrize("name", CASES)
def test_a_required_key_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    path = tmp_path / "model.gguf"
    for key in case.required:
        types = GGUF_ARCHITECTURES[case.architecture]
        if types.get(key) == case.config["model_type"]:
            continue  # without it the file is of another type
        path.write_bytes(case.file({}, **{key: ...}))
        missing = re.escape(f"model.gguf: {case.architecture}.{key} is missing")
        with pytest.raises(ConfigError, match=missing):
            GgufCheckpoint(path)


@pytest.mark.parametrize("name", CASES)
def test_keys_are_those_of_the_gguf_package(name: str) -> None:
    """Also of the table of the family, for keys that no case has."""
    case = CASES[name]
    known = {
        value.removeprefix("{arch}.")
        for group in vars(gguf.Keys).values()
        if isinstance(group, type)
        for value in vars(group).values()
        if isinstance(value, str) and value.startswith("{arch}.")
    }
    assert {*case.required, *case.optional} <= known
    family = architectures.gguf_family(str(case.config["model_type"]))
    assert {*family.required, *family.optional, *family.same} <= known | {"rope.scaling.finetuned"}


@pytest.mark.parametrize("name", CASES)
def test_tensors_have_the_names_of_the_gguf_package(name: str) -> None:
    case = CASES[name]
    spec = architectures.read_spec(case.config)
    arch = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == case.architecture)
    known = {
        gguf.TENSOR_NAMES[tensor].format(bid=layer)
        for tensor in gguf.MODEL_TENSORS[arch]
        for layer in range(spec.num_layers)
    }
    tensors = case.tensors(case.weights())
    assert {name.rpartition(".")[0] for name in tensors} <= known
    plan = architectures.tensor_plan(spec, tensors, layout="gguf")
    assert {source for planned in plan for source in planned.sources} == set(tensors)


def test_every_architecture_has_a_case() -> None:
    expected = {kind for types in GGUF_ARCHITECTURES.values() for kind in types.values()}
    assert {case.config["model_type"] for case in CASES.values()} == expected


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("starcoder2", "attention.sliding_window", 7, "starcoder2.attention.sliding_window is 7"),
        ("olmo", "attention.layer_norm_epsilon", 1e-6, "layer_norm_epsilon is .*, expected 1e-05"),
        ("mpt", "attention.max_alibi_bias", 4.0, "max_alibi_bias is 4.0, expected 8.0"),
        ("granite", "rope.scaling.finetuned", False, "finetuned is False, expected True"),
        ("falcon", "tensor_data_layout", "plain", "tensor_data_layout is 'plain', expected jplo"),
        ("gemma2", "rope.dimension_count", 4, "rope.dimension_count is 4, expected the width of"),
        ("stablelm", "rope.dimension_count", 9, "rope.dimension_count is 9, expected at most"),
        ("olmo3", "attention.sliding_window_pattern", [True], "has 1 values, expected 3"),
        ("gemma3", "attention.sliding_window_pattern", "x", "sliding_window_pattern is 'x'"),
        ("qwen3_moe", "expert_weights_scale", 2.5, "qwen3moe.expert_weights_scale is 2.5"),
        ("gpt2", "rope.freq_base", 500.0, "gpt2.rope.freq_base is 500.0"),
        ("qwen2_moe", "expert_count", "4", "num_experts is '4'"),
    ],
)
def test_a_value_that_another_network_would_have(
    tmp_path: Path, name: str, key: str, value: Any, message: str
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(CASES[name].file({}, **{key: value}))
    with pytest.raises(ConfigError, match=message):
        checkpoint = GgufCheckpoint(path)
        architectures.read_spec({"vocab_size": 16, **checkpoint.config}, "x")


def test_older_and_fused_tensors(tmp_path: Path) -> None:
    """Each expert alone (files of 2023), gates and inputs in one, and q, k and v in one."""
    case = CASES["mixtral"]
    weights = case.weights()
    tensors = case.tensors(weights)
    expected = opened(write_folder(tmp_path / "folder", case.config, weights))
    alone = dict(tensors)
    for part in ("gate", "up", "down"):
        for layer in range(3):
            for expert, values in enumerate(alone.pop(f"blk.{layer}.ffn_{part}_exps.weight")):
                alone[f"blk.{layer}.ffn_{part}.{expert}.weight"] = values
    fused = dict(tensors)
    for layer in range(3):
        block = f"blk.{layer}."
        pair = [fused.pop(f"{block}ffn_{part}_exps.weight") for part in ("gate", "up")]
        fused[f"{block}ffn_gate_up_exps.weight"] = np.concatenate(pair, axis=1)
        three = [fused.pop(f"{block}attn_{part}.weight") for part in "qkv"]
        fused[f"{block}attn_qkv.weight"] = np.concatenate(three)
    for own in (alone, fused):
        path = tmp_path / "model.gguf"
        path.write_bytes(case.file(own))
        assert opened(path) == expected


def test_a_shared_gate_of_one_dimension(tmp_path: Path) -> None:
    """Older converters drop a dimension of 1."""
    case = CASES["qwen2_moe"]
    weights = case.weights()
    tensors = case.tensors(weights)
    for name in tensors:
        if name.endswith("ffn_gate_inp_shexp.weight"):
            tensors[name] = tensors[name].reshape(-1)
    path = tmp_path / "model.gguf"
    path.write_bytes(case.file(tensors))
    assert opened(path) == opened(write_folder(tmp_path / "folder", case.config, weights))


def test_27b_of_gemma2_has_another_scale(tmp_path: Path) -> None:
    """Of 46 layers: hidden_size / num_attention_heads = 4608 / 32, not the size of a head."""
    path = tmp_path / "model.gguf"
    sizes: dict[str, object] = {"block_count": 46, "embedding_length": 48}
    path.write_bytes(CASES["gemma2"].file({}, **sizes))
    assert GgufCheckpoint(path).config["query_pre_attn_scalar"] == 48 // 4


def test_longrope_is_two_tensors(tmp_path: Path) -> None:
    """With the factor of attention that the converter computed."""
    case = CASES["phi3"]
    weights = case.weights()
    factors = {"short": [1.0, 1.5], "long": [2.0, 4.0]}
    scaling = {
        "rope_type": "longrope",
        "short_factor": factors["short"],
        "long_factor": factors["long"],
        "original_max_position_embeddings": 32,
        "attention_factor": 1.25,
    }
    folder = write_folder(tmp_path / "folder", {**case.config, "rope_scaling": scaling}, weights)
    tensors = case.tensors(weights)
    for kind, values in factors.items():
        tensors[f"rope_factors_{kind}.weight"] = np.array(values, np.float32)
    keys: dict[str, object] = {
        "rope__scaling__original_context_length": 32,
        "rope__scaling__attn_factor": 1.25,
    }
    path = tmp_path / "model.gguf"
    path.write_bytes(case.file(tensors, **keys))
    assert opened(path) == opened(folder)
    del tensors["rope_factors_long.weight"]
    path.write_bytes(case.file(tensors, **keys))
    with pytest.raises(ConfigError, match="needs both tensors rope_factors_long"):
        GgufCheckpoint(path)


@pytest.mark.parametrize("name", ["gemma2", "mixtral"])
def test_logits_are_the_same_bits(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    weights = {key: 0.2 * values for key, values in case.weights().items()}
    folder = write_folder(tmp_path / "folder", case.config, weights)
    path = tmp_path / "model.gguf"
    path.write_bytes(case.file(case.tensors(weights)))
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
    logits = []
    for model in (folder, path):
        with LLM(model, dtype="f32", threads=1) as llm:
            logits.append(llm.logits(prompt))
    assert np.ptp(logits[0]) > 0.1
    assert np.array_equal(*logits)


def test_a_file_without_an_output_matrix_is_tied(tmp_path: Path) -> None:
    case = CASES["llama"]
    tensors = case.tensors(case.weights())
    path = tmp_path / "model.gguf"
    path.write_bytes(case.file(tensors))
    assert not opened(path)[0].tied_head
    del tensors["output.weight"]
    path.write_bytes(case.file(tensors))
    assert opened(path)[0].tied_head
