"""onward.quantize: whole models as input and output, and refusals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onward
from builders.checkpoints import (
    TINY_GGUF,
    config_of,
    gguf_bytes,
    random_blocks,
    random_weights,
    stored,
    tiny_gguf_tensors,
)
from builders.checkpoints import write_folder as write_tiny_folder
from builders.seeded_folder import write_seeded
from builders.tiny_tokenizers import gguf_byte_level
from closed_form import write_bytes_tokenizer
from onward.errors import (
    ArgumentTypeError,
    InvalidArgument,
    IoError,
    MissingExtra,
    NumericsError,
    TokenizerError,
    WeightError,
)
from onward.load.hub import find_model
from onward.load.weights import open_checkpoint
from onward.load.weights.checkpoint import STORAGE
from onward.quantization.block_formats import FORMATS, rounded_plainly, values_of
from onward.quantization.calibration import default_text
from onward.quantization.quantizer import CALIBRATION_TOKENS

gguf = pytest.importorskip("gguf")

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
GGUF_Q, GGUF_EMBED = "blk.0.attn_q.weight", "token_embd.weight"
EMBED = "model.embed_tokens.weight"
FEW: dict[str, Any] = {"calibration_tokens": 1024, "threads": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of bytes: a text has as many tokens as bytes."""
    path = write_seeded(tmp_path_factory.mktemp("seeded") / "model", num_layers=2)
    write_bytes_tokenizer(path)
    (path / "notes.md").write_text("kept")
    return path


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "tiny.gguf"
    metadata = {**TINY_GGUF, **gguf_byte_level(), "llama.context_length": 512}
    vocab = len(metadata["tokenizer.ggml.tokens"])
    tensors = tiny_gguf_tensors(config_of(vocab_size=vocab))
    path.write_bytes(gguf_bytes(metadata, tensors))
    return path


def write_blocks(path: Path, dtype: str) -> Path:
    """A model whose matrices are all of that dtype, in rows that every block divides."""
    metadata: dict[str, Any] = {**TINY_GGUF, **gguf_byte_level(), "llama.context_length": 512}
    metadata |= {"llama.embedding_length": 256, "llama.feed_forward_length": 256}
    vocab = len(metadata["tokenizer.ggml.tokens"])
    config = config_of(vocab_size=vocab, hidden_size=256, intermediate_size=256)
    tensors = tiny_gguf_tensors(config)
    generator = np.random.default_rng(3)
    for name, tensor in tensors.items():
        if len(tensor.shape) == 1:
            continue
        if STORAGE[dtype][0] > 1:
            tensors[name] = random_blocks(dtype, tensor.shape, generator)
        else:
            numbers = generator.standard_normal(tensor.shape).astype(np.float32)
            tensors[name] = stored(numbers * np.float32(0.1), dtype)
    path.write_bytes(gguf_bytes(metadata, tensors))
    return path


def values(path: Path, name: str) -> np.ndarray:
    checkpoint = open_checkpoint(find_model(path))
    try:
        return values_of(checkpoint.tensor(name)).copy()
    finally:
        checkpoint.close()


def dtypes(path: Path) -> dict[str, str]:
    checkpoint = open_checkpoint(find_model(path))
    try:
        return {name: checkpoint.describe(name)[0] for name in checkpoint.names()}
    finally:
        checkpoint.close()


class TestFolder:
    @pytest.mark.parametrize("format_", FORMATS)
    def test_calibrated(
        self, folder: Path, tmp_path: Path, open_llm: Callable[..., Any], format_: str
    ) -> None:
        done = onward.quantize(folder, tmp_path / "out", format=format_, head="keep", **FEW)
        kinds = dtypes(tmp_path / "out")
        assert kinds[Q_PROJ] == FORMATS[format_].dtype
        assert kinds[EMBED] == kinds["model.norm.weight"] == "F32"
        assert (tmp_path / "out" / "notes.md").read_text() == "kept"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
        assert len(done.matrices) == 14
        assert done.matrices[0].name == Q_PROJ
        assert np.mean([m.calibrated for m in done.matrices]) < 0.9 * np.mean(
            [m.plain for m in done.matrices]
        )
        assert done.bytes_after < done.bytes_before
        assert done.calibration_tokens == 1024
        llm = open_llm(tmp_path / "out")
        assert llm.generate("Hi", max_new_tokens=3).usage.completion_tokens == 3

    @pytest.mark.slow
    def test_calibration_brings_the_logits_closer(
        self, folder: Path, tmp_path: Path, open_llm: Callable[..., Any]
    ) -> None:
        """Of the whole model; ``test_calibrated`` compares the errors of its matrices."""
        ids = [*b"An ordinary sentence that nobody has calibrated with."]
        expected = open_llm(folder).logits(ids)
        errors = {}
        for method in ("round", "gptq"):
            onward.quantize(
                folder, tmp_path / method, method=method, **{**FEW, "calibration_tokens": 8192}
            )
            errors[method] = np.linalg.norm(open_llm(tmp_path / method).logits(ids) - expected)
        assert errors["gptq"] < 0.9 * errors["round"]

    @pytest.mark.parametrize(
        "changes",
        [
            {"model_type": "qwen2"},  # biases of q, k, v
            {"model_type": "qwen3", "head_dim": 32},  # norms of q and k, o wider than the stream
            {"model_type": "mistral", "sliding_window": 8},
            {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
        ],
        ids=["qwen2", "qwen3", "mistral", "biases"],
    )
    def test_families(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        config = config_of(vocab_size=256, max_position_embeddings=256, **changes)
        weights = random_weights(config)
        for value in weights.values():
            value *= 0.2 if value.ndim == 2 else 1
        source = write_tiny_folder(tmp_path / "source", config, weights)
        write_bytes_tokenizer(source)
        done = onward.quantize(source, tmp_path / "out", format="int8", **FEW)
        assert max(m.calibrated for m in done.matrices) < 0.05
        with onward.LLM(source, dtype="f32") as llm, onward.LLM(tmp_path / "out") as quantised:
            expected, found = (each.logits(list(range(99))) for each in (llm, quantised))
        assert np.corrcoef(expected.reshape(-1), found.reshape(-1))[0, 1] > 0.9

    def test_two_runs_give_the_same_bytes(self, folder: Path, tmp_path: Path) -> None:
        for name, threads in (("a", 1), ("b", 2)):
            onward.quantize(folder, tmp_path / name, **{**FEW, "threads": threads})
        first, second = ((tmp_path / n / "model.safetensors").read_bytes() for n in "ab")
        assert first == second

    def test_plain_rounding_needs_no_tokenizer(self, tmp_path: Path) -> None:
        source = write_seeded(tmp_path / "bare", dtype="BF16")
        done = onward.quantize(source, tmp_path / "out", method="round", head="int4-min")
        expected = rounded_plainly(values(source, Q_PROJ), FORMATS["int4"])
        assert np.array_equal(values(tmp_path / "out", Q_PROJ), expected.values())
        assert dtypes(tmp_path / "out")[EMBED] == "Q4_1"
        assert (done.matrices, done.calibration_tokens) == ((), 0)
        with pytest.raises(TokenizerError):
            onward.quantize(source, tmp_path / "other", **FEW)

    def test_a_quantised_model_can_be_quantised_again(self, folder: Path, tmp_path: Path) -> None:
        onward.quantize(folder, tmp_path / "int8", method="round", format="int8")
        onward.quantize(tmp_path / "int8", tmp_path / "again", method="round", format="int8")
        first, second = (
            (tmp_path / n / "model.safetensors").read_bytes() for n in ("int8", "again")
        )
        assert first == second

    def test_automatic_dtype_is_that_of_block_files(self, folder: Path, tmp_path: Path) -> None:
        onward.quantize(folder, tmp_path / "out", method="round")
        with onward.LLM(tmp_path / "out", threads=1) as llm:
            assert llm.dtype == "int4"


class TestGguf:
    def test_metadata_and_other_tensors_are_kept(self, gguf_file: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.gguf"
        onward.quantize(gguf_file, out, format="int4-min", method="round")
        before, after = gguf.GGUFReader(gguf_file), gguf.GGUFReader(out)
        changed = {"general.file_type", "general.quantization_version"}
        kept = {n: f for n, f in before.fields.items() if not n.startswith("GGUF.")}
        for name, field in kept.items():
            assert after.fields[name].contents() == field.contents(), name
            assert after.fields[name].types == field.types, name
        assert after.fields["general.file_type"].contents() == 3
        added = {n for n in after.fields if not n.startswith("GGUF.")} - set(kept)
        assert added == changed
        assert [t.name for t in after.tensors] == [t.name for t in before.tensors]
        kinds = {tensor.name: tensor.tensor_type.name for tensor in after.tensors}
        assert kinds["blk.0.attn_q.weight"] == kinds["blk.1.ffn_down.weight"] == "Q4_1"
        assert kinds["token_embd.weight"] == kinds["output.weight"] == "Q8_0"
        assert kinds["blk.0.attn_norm.weight"] == "F32"

    def test_rows_keep_the_order_of_the_file(self, gguf_file: Path, tmp_path: Path) -> None:
        """The rows of q are interleaved in a llama file. The blocks keep their places."""
        out = tmp_path / "out.gguf"
        onward.quantize(gguf_file, out, method="round")
        original = values(gguf_file, GGUF_Q)  # in the file's order
        expected = rounded_plainly(original, FORMATS["int4"]).values()
        assert np.array_equal(values(out, GGUF_Q), expected)

    def test_calibrated(
        self, gguf_file: Path, tmp_path: Path, open_llm: Callable[..., Any]
    ) -> None:
        """The weights of this model are large, so that any error in them spreads quickly."""
        out = tmp_path / "out.gguf"
        done = onward.quantize(gguf_file, out, format="int8", **FEW)
        assert all(0 < m.calibrated < 0.1 for m in done.matrices)
        ids = list(range(64))
        expected = open_llm(gguf_file).logits(ids)
        found = open_llm(out).logits(ids)
        assert np.corrcoef(expected.reshape(-1), found.reshape(-1))[0, 1] > 0.9

    @pytest.mark.parametrize("dtype", STORAGE)
    def test_any_stored_dtype_is_a_source(self, tmp_path: Path, dtype: str) -> None:
        source, out = write_blocks(tmp_path / "source.gguf", dtype), tmp_path / "out.gguf"
        onward.quantize(source, out, format="int8", head="keep", method="round")
        original = values(source, GGUF_Q)
        expected = rounded_plainly(original, FORMATS["int8"]).values()
        assert np.array_equal(values(out, GGUF_Q), original if dtype == "Q8_0" else expected)
        kinds = dtypes(out)
        assert (kinds[GGUF_Q], kinds[GGUF_EMBED]) == ("Q8_0", dtype)
        assert np.array_equal(values(out, GGUF_EMBED), values(source, GGUF_EMBED))

    @pytest.mark.parametrize(
        "dtype",
        ["Q4_K", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Q6_K", "Q5_1"))],
    )
    def test_calibrated_from_blocks(
        self, tmp_path: Path, open_llm: Callable[..., Any], dtype: str
    ) -> None:
        """Rows of q and k have the order of llama in the file, and of the network in products."""
        source, out = write_blocks(tmp_path / "source.gguf", dtype), tmp_path / "out.gguf"
        done = onward.quantize(source, out, format="int8", **FEW)
        assert all(0 < m.calibrated < 0.1 for m in done.matrices)
        ids = list(range(64))
        expected = open_llm(source, dtype="f32").logits(ids)
        found = open_llm(out, dtype="f32").logits(ids)
        assert np.corrcoef(expected.reshape(-1), found.reshape(-1))[0, 1] > 0.99

    def test_without_the_package(
        self, gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "gguf", None)
        with pytest.raises(MissingExtra, match=r"pip install 'gguf>=0\.10'"):
            onward.quantize(gguf_file, tmp_path / "out.gguf")


def outputs(folder: Path, gguf_file: Path, into: Path) -> list[tuple[Path, Path]]:
    """Both kinds of sources, and the target of each."""
    return [(folder, into / "out"), (gguf_file, into / "out.gguf")]


class TestWriting:
    def test_files_of_other_programs_stay(
        self, folder: Path, gguf_file: Path, tmp_path: Path
    ) -> None:
        for source, out in outputs(folder, gguf_file, tmp_path):
            other = out.with_name(out.name + ".unfinished")
            other.write_text("of somebody else")
            onward.quantize(source, out, method="round")
            assert other.read_text() == "of somebody else"
            assert out.exists()
        assert len(list(tmp_path.iterdir())) == 4

    @pytest.mark.parametrize("failure", [OSError(28, "No space left"), KeyboardInterrupt()])
    def test_a_failure_leaves_no_file(
        self,
        folder: Path,
        gguf_file: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        failure: BaseException,
    ) -> None:
        def fail(*arguments: object) -> None:
            raise failure

        expected = IoError if isinstance(failure, OSError) else KeyboardInterrupt
        for source, out in outputs(folder, gguf_file, tmp_path):
            for call in ("os.rename", "os.link"):
                monkeypatch.setattr(call, fail)
            with pytest.raises(expected):
                onward.quantize(source, out, method="round")
            assert list(tmp_path.iterdir()) == []

    def test_folders_above_it_are_made(self, folder: Path, gguf_file: Path, tmp_path: Path) -> None:
        for source, out in outputs(folder, gguf_file, tmp_path / "a" / "b"):
            onward.quantize(source, out, method="round")
            assert out.exists()

    def test_a_place_that_cannot_be_written_is_refused_before_the_work(
        self, folder: Path, gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def work(*arguments: object) -> None:
            raise AssertionError("began")

        monkeypatch.setattr("onward.quantization.quantizer.open_checkpoint", work)
        (tmp_path / "file").write_text("")
        for source, out in outputs(folder, gguf_file, tmp_path / "file" / "folder"):
            with pytest.raises(InvalidArgument, match=r"output: .*expected a folder that can be"):
                onward.quantize(source, out)
        monkeypatch.setattr("os.access", lambda *arguments: False)
        for source, out in outputs(folder, gguf_file, tmp_path):
            with pytest.raises(InvalidArgument, match="Permission denied, expected a folder"):
                onward.quantize(source, out)


def test_the_default_text_is_enough_for_the_default_tokens() -> None:
    text = default_text()
    assert len(text.encode()) > 3.5 * CALIBRATION_TOKENS
    assert "Apache License" not in text  # what docs/quantization.md measures on


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"format": "int3"}, "format: is 'int3', expected one of int4, int4-min, int8"),
            ({"head": "f16"}, "head: is 'f16', expected one of int4, int4-min, int8, keep"),
            ({"method": "awq"}, "method: is 'awq', expected one of gptq, round"),
            ({"calibration_tokens": 3}, "calibration_tokens: is 3, expected an integer from 128"),
            ({"threads": 0}, "threads: is 0, expected an integer from 1"),
            ({"calibration": "no-such.txt"}, "calibration: cannot read no-such.txt: No such file"),
        ],
    )
    def test_options(
        self, folder: Path, tmp_path: Path, options: dict[str, Any], problem: str
    ) -> None:
        with pytest.raises(InvalidArgument) as caught:
            onward.quantize(folder, tmp_path / "out", **options)
        assert problem in str(caught.value)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("option", ["format", "head", "method"])
    def test_names_of_another_type_are_refused(
        self, folder: Path, tmp_path: Path, option: str
    ) -> None:
        for value in ([], {}, None, 4):
            with pytest.raises(ArgumentTypeError) as caught:
                onward.quantize(folder, tmp_path / "out", **{option: value})
            assert f"{option}: is {value}, expected one of" in str(caught.value)

    def test_outputs(self, folder: Path, gguf_file: Path, tmp_path: Path) -> None:
        with pytest.raises(InvalidArgument, match=r"output: .* exists, expected a path"):
            onward.quantize(folder, tmp_path)
        with pytest.raises(InvalidArgument, match=r"expected a name that ends in .gguf"):
            onward.quantize(gguf_file, tmp_path / "out")
        with pytest.raises(InvalidArgument, match="which becomes a folder"):
            onward.quantize(folder, tmp_path / "out.gguf")
        with pytest.raises(ArgumentTypeError, match="output: is None"):
            onward.quantize(folder, None)  # type: ignore[arg-type]

    def test_texts(self, folder: Path, tmp_path: Path) -> None:
        short, odd = tmp_path / "short.txt", tmp_path / "odd.txt"
        short.write_text("Too short.")
        odd.write_bytes(b"\xff" * 1000)
        with pytest.raises(InvalidArgument, match="the text has 10 tokens, expected at least 128"):
            onward.quantize(folder, tmp_path / "out", calibration=short)
        with pytest.raises(InvalidArgument, match=r"odd.txt: byte 0 is not UTF-8, expected text"):
            onward.quantize(folder, tmp_path / "out", calibration=odd)

    def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(self, tmp_path: Path) -> None:
        source = write_seeded(tmp_path / "few", vocab_size=96)
        write_bytes_tokenizer(source)
        with pytest.raises(InvalidArgument, match=r"gives id .* one of the model.s 96"):
            onward.quantize(source, tmp_path / "out", **FEW)

    def test_rows_that_are_no_multiple_of_a_block(self, tmp_path: Path) -> None:
        source = write_seeded(tmp_path / "odd", intermediate_size=40)
        with pytest.raises(WeightError) as caught:
            onward.quantize(source, tmp_path / "out", method="round")
        assert "down_proj.weight has rows of 40 values, expected a multiple of 32" in str(
            caught.value
        )

    def test_weights_that_are_not_finite(self, tmp_path: Path) -> None:
        source = write_seeded(tmp_path / "odd")
        write_bytes_tokenizer(source)
        path = source / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-4] + np.float32(np.nan).tobytes())
        with pytest.raises(WeightError, match=r"lm_head.weight has values that are not finite"):
            onward.quantize(source, tmp_path / "out", **FEW)

    def test_inputs_whose_squares_overflow_are_an_error(self, tmp_path: Path) -> None:
        """They are, their squares are not."""
        config = config_of(vocab_size=256, max_position_embeddings=256)
        weights = random_weights(config)
        weights["model.layers.1.input_layernorm.weight"] *= np.float32(1e25)
        source = write_tiny_folder(tmp_path / "source", config, weights)
        write_bytes_tokenizer(source)
        with pytest.raises(NumericsError) as caught:
            onward.quantize(source, tmp_path / "out", **FEW)
        assert "layers.1.qkv: calibration: " in str(caught.value)
        assert "products of its inputs are not finite, expected finite ones" in str(caught.value)
        assert not (tmp_path / "out").exists()

    def test_a_moment_without_a_factor(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*arguments: object) -> None:
            raise np.linalg.LinAlgError("Matrix is not positive definite")

        monkeypatch.setattr("onward.quantization.layer_quantizer.quantised", fail)
        with pytest.raises(NumericsError, match=r"layers.0.qkv: calibration: the second moment"):
            onward.quantize(folder, tmp_path / "out", **FEW)
