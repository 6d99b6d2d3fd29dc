"""Which files of a folder are used, and a tied model that also has an output head: as in
transformers 5.24.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.packs import pack
from closed_form import (
    IMPOSSIBLE,
    Tensors,
    base_config,
    base_tensors,
    table_tensors,
    write_folder,
    write_safetensors,
)
from onward.errors import WeightError
from onward.load.weights.safetensors import INDEX_NAME

HEAD, EMBED = "lm_head.weight", "model.embed_tokens.weight"
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
BESIDE = (
    "adapter_model.safetensors",
    "consolidated.safetensors",
    "consolidated-00001-of-00001.safetensors",
    "model.fp16.safetensors",
    "model-00001-of-00001.safetensors",
    "optimizer.safetensors",
    "a.safetensors",
    "z.safetensors",
)


def saying(token: int) -> Tensors:
    """A model whose most likely token after token 1 is ``token``."""
    table = np.full((8, 8), IMPOSSIBLE, np.float32)
    table[:, token] = 0
    return table_tensors(base_config(), table)


def next_token(llm: Any, prompt: int = 1) -> int:
    return int(llm.logits([prompt])[0].argmax())


def write_index(folder: Path, weight_map: dict[str, str]) -> None:
    (folder / INDEX_NAME).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def write_shards(folder: Path, tensors: Tensors) -> dict[str, str]:
    """Two shards, with the head in the second. Returns the map for an index, which is not
    written."""
    rest = {name: values for name, values in tensors.items() if name != HEAD}
    write_safetensors(folder / SHARDS[0], rest)
    write_safetensors(folder / SHARDS[1], {HEAD: tensors[HEAD]})
    return {name: SHARDS[1] if name == HEAD else SHARDS[0] for name in tensors}


class TestUsedFiles:
    @pytest.mark.parametrize("other", BESIDE)
    def test_a_single_file_is_used_without_other_files(
        self, tmp_path: Path, open_llm: Any, other: str
    ) -> None:
        write_folder(tmp_path, base_config(), saying(5))
        write_safetensors(tmp_path / other, {**saying(6), "more.weight": np.ones(3)})
        assert next_token(open_llm(tmp_path)) == 5
        (tmp_path / other).write_bytes(b"no tensors")
        assert next_token(open_llm(tmp_path)) == 5

    @pytest.mark.parametrize("other", BESIDE)
    def test_shards_of_an_index_are_used_without_other_files(
        self, tmp_path: Path, open_llm: Any, other: str
    ) -> None:
        write_folder(tmp_path, base_config(), {})
        (tmp_path / "model.safetensors").unlink()
        write_index(tmp_path, write_shards(tmp_path, saying(5)))
        write_safetensors(tmp_path / other, {**saying(6), "more.weight": np.ones(3)})
        assert next_token(open_llm(tmp_path)) == 5

    def test_a_single_file_has_priority_over_an_index(self, tmp_path: Path, open_llm: Any) -> None:
        write_folder(tmp_path, base_config(), saying(5))
        weight_map = write_shards(tmp_path, saying(6))
        write_index(tmp_path, weight_map)
        assert next_token(open_llm(tmp_path)) == 5
        (tmp_path / INDEX_NAME).write_text("no index")
        assert next_token(open_llm(tmp_path)) == 5
        write_index(tmp_path, weight_map)
        (tmp_path / "model.safetensors").unlink()
        assert next_token(open_llm(tmp_path)) == 6

    def test_a_shard_outside_the_index_is_ignored(self, tmp_path: Path, open_llm: Any) -> None:
        write_folder(tmp_path, base_config(), {})
        (tmp_path / "model.safetensors").unlink()
        write_shards(tmp_path, saying(6))
        write_safetensors(tmp_path / "right.safetensors", saying(5))
        write_index(tmp_path, dict.fromkeys(saying(5), "right.safetensors"))
        assert next_token(open_llm(tmp_path)) == 5

    def test_a_tensor_outside_the_index_is_ignored(self, tmp_path: Path, open_llm: Any) -> None:
        """A named shard may have tensors outside the index. They are ignored."""
        write_folder(tmp_path, base_config(), {})
        (tmp_path / "model.safetensors").unlink()
        weight_map = write_shards(tmp_path, saying(5))
        write_safetensors(tmp_path / SHARDS[1], {HEAD: saying(5)[HEAD], "more.weight": [1.0]})
        write_index(tmp_path, weight_map)
        assert next_token(open_llm(tmp_path)) == 5


# Every value of the embedding is one of float16 and of bfloat16.
EMBEDDING = np.float32(0.125) * np.add.outer(np.arange(8), 2 * np.arange(8) % 5 - 7.0)
TOKENS = [1, 5, 2, 7]


def tied_tensors(head: np.ndarray | None = None) -> Tensors:
    tensors = base_tensors(base_config())
    tensors[EMBED] = EMBEDDING.astype(np.float32)
    del tensors[HEAD]
    return tensors if head is None else {**tensors, HEAD: head}


def write_tied(folder: Path, matrix: np.ndarray | None = None, /, **dtypes: str) -> Path:
    """``matrix`` is the head. ``embed`` and ``head`` are the dtypes in the file."""
    stored = {EMBED: dtypes.get("embed", "F32"), HEAD: dtypes.get("head", "F32")}
    config = base_config(tie_word_embeddings=True)
    return write_folder(folder, config, tied_tensors(matrix), dtypes=stored)


class TestTiedHeadOfEqualValues:
    @pytest.mark.parametrize("embed", ["F32", "F16", "BF16"])
    @pytest.mark.parametrize("head", ["F32", "F16", "BF16"])
    def test_an_equal_head_changes_no_bit(
        self, tmp_path: Path, open_llm: Any, embed: str, head: str
    ) -> None:
        alone = write_tied(tmp_path / "alone", embed=embed)
        both = write_tied(tmp_path / "both", EMBEDDING, embed=embed, head=head)
        for dtype in ("auto", "f32", "bf16", "int8"):
            expected, found = open_llm(alone, dtype=dtype), open_llm(both, dtype=dtype)
            assert found.dtype == expected.dtype and found.spec.tied_head
            assert found.weight_dtypes == expected.weight_dtypes
            assert found.logits(TOKENS).tobytes() == expected.logits(TOKENS).tobytes()

    @pytest.mark.parametrize("row", [0, 3, 7])
    def test_one_different_value_is_found(
        self, tmp_path: Path, open_llm: Any, monkeypatch: pytest.MonkeyPatch, row: int
    ) -> None:
        """Also if the matrices are compared in parts of a few values."""
        monkeypatch.setattr("onward.load.loading._COMPARED_BYTES", 40)
        same = open_llm(write_tied(tmp_path / "same", EMBEDDING, head="F16"))
        assert same.spec.tied_head
        head = EMBEDDING.copy()
        head[row, row] += 1
        for dtype in ("F32", "F16"):
            with pytest.warns(UserWarning, match="lm_head.weight differs from model.embed_tokens"):
                other = open_llm(write_tied(tmp_path / f"other-{dtype}", head, head=dtype))
            assert not other.spec.tied_head


class TestTiedHeadOfOtherValues:
    """The head has the rows of the embedding in reverse order, and so do the logits."""

    @pytest.mark.parametrize("head", ["F32", "F16", "BF16"])
    def test_embedding_and_head_are_both_used(
        self, tmp_path: Path, open_llm: Any, head: str
    ) -> None:
        expected = open_llm(write_tied(tmp_path / "tied"), dtype="f32").logits(TOKENS)
        folder = write_tied(tmp_path / "other", EMBEDDING[::-1], head=head)
        with pytest.warns(UserWarning, match="differs"):
            llm = open_llm(folder, dtype="f32")
        assert not llm.spec.tied_head
        np.testing.assert_array_equal(llm.logits(TOKENS), expected[:, ::-1])

    def test_the_warning_names_the_line_of_the_caller(self, tmp_path: Path, open_llm: Any) -> None:
        from onward import LLM

        folder = write_tied(tmp_path / "other", EMBEDDING[::-1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            LLM(folder).close()
        [warning] = caught
        assert warning.filename == __file__
        assert str(warning.message) == (
            "model.safetensors: tensor lm_head.weight differs from model.embed_tokens.weight, "
            "though the config ties them; both are used, as if tie_word_embeddings were false"
        )

    def test_a_pack_and_packed_weights(self, tmp_path: Path, open_llm: Any) -> None:
        folder = write_tied(tmp_path / "other", EMBEDDING[::-1])
        with pytest.warns(UserWarning, match="differs"):
            expected = open_llm(folder).logits(TOKENS)
        with pytest.warns(UserWarning, match="differs"):
            pack(folder, tmp_path / "other.onward")
        assert open_llm(tmp_path / "other.onward").logits(TOKENS).tobytes() == expected.tobytes()
        for _ in range(2):
            with pytest.warns(UserWarning, match="differs"):
                llm = open_llm(folder, packed_cache=tmp_path / "kept")
            assert llm.logits(TOKENS).tobytes() == expected.tobytes()

    def test_a_head_of_another_shape_is_an_error(self, tmp_path: Path, open_llm: Any) -> None:
        folder = write_tied(tmp_path / "short", EMBEDDING[:7])
        with (
            pytest.warns(UserWarning, match="differs"),
            pytest.raises(WeightError, match=r"lm_head\.weight has shape \(7, 8\), expected \(8, "),
        ):
            open_llm(folder)
