"""The dtype in which each matrix is packed: by rule, and in opened models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.checkpoints import (
    TINY,
    TINY_GGUF,
    Stored,
    config_of,
    gguf_bytes,
    gguf_name,
    random_blocks,
    random_weights,
    safetensors_bytes,
    stored,
    write_folder,
)
from builders.core_engine import Shape, new_engine, spec_of
from builders.seeded_folder import write_seeded
from onward import LLM, _core
from onward.errors import InvalidArgument
from onward.load import architectures
from onward.load.hub import ModelFiles, find_model
from onward.load.loading import load_model
from onward.load.weights.checkpoint import STORAGE
from onward.load.weights.dtypes import (
    DTYPES,
    HEAD_DTYPES,
    PACKED_DTYPES,
    WeightDtypes,
    choose_dtypes,
)

EMBED, HEAD = "embed_tokens", "lm_head"
CACHE = {"f32": "f32", "f16": "f16", "bf16": "bf16", "int8": "f16", "int4": "f16"}


def chosen(
    dtype: str = "auto",
    head_dtype: str | None = None,
    *,
    tied: bool = False,
    rest: str = "BF16",
    **kinds: str,
) -> WeightDtypes:
    """For the tiny model, with other dtypes for the tensors whose name ends with a given text."""
    spec = architectures.read_spec(config_of(tie_word_embeddings=tied))

    def of(source: str) -> str:
        found = (kind for end, kind in kinds.items() if source.endswith(f"{end}.weight"))
        return next(found, rest)

    return choose_dtypes(architectures.tensor_plan(spec), of, dtype, head_dtype)


def layers(dtypes: WeightDtypes) -> set[str]:
    return {dtype for name, dtype in dtypes.matrices.items() if name.startswith("layers.")}


def heads(dtypes: WeightDtypes) -> tuple[str, str]:
    return dtypes.matrices["embed"], dtypes.matrices["head"]


def difference(found: NDArray[np.float32], exact: NDArray[np.float32]) -> float:
    """The root mean square of the difference, relative to the deviation of the logits."""
    return float(np.sqrt(((found - exact) ** 2).mean()) / exact.std())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeded(tmp_path_factory.mktemp("m") / "seeded", hidden_size=96, num_layers=3)


class TestAuto:
    @pytest.mark.parametrize(
        ("kind", "name", "packed"),
        [
            *(("F32", "f32", "f32"), ("F16", "f16", "f16"), ("BF16", "bf16", "bf16")),
            *(("Q8_0", "int8", "q8_0"), ("Q4_0", "int4", "q4_0"), ("Q4_1", "int4", "q4_1")),
            *(("Q4_K", "int4", "q4_1"), ("Q5_K", "int8", "q8_0"), ("Q6_K", "int8", "q8_0")),
            *(("Q5_0", "int8", "q8_0"), ("Q5_1", "int8", "q8_0")),
        ],
    )
    def test_a_file_of_one_dtype(self, kind: str, name: str, packed: str) -> None:
        for norms in (kind, "F32", "F16"):  # only matrices count
            dtypes = chosen(rest=kind, norm=norms, layernorm=norms)
            assert (dtypes.name, dtypes.cache) == (name, CACHE[name])
            assert set(dtypes.matrices.values()) == {packed}
            assert not any(matrix.endswith("norm") for matrix in dtypes.matrices)

    @pytest.mark.parametrize("two", [("F16", "BF16"), ("F32", "BF16"), ("F16", "F32")])
    @pytest.mark.parametrize("where", [EMBED, HEAD, "q_proj", "down_proj"])
    def test_two_kinds_of_floats_are_f32(self, two: tuple[str, str], where: str) -> None:
        for rest, other in (two, two[::-1]):
            dtypes = chosen(rest=rest, **{where: other})
            assert (dtypes.name, dtypes.cache) == ("f32", "f32")
            assert set(dtypes.matrices.values()) == {"f32"}

    def test_each_matrix_of_a_quantised_file_keeps_its_dtype(self) -> None:
        dtypes = chosen(rest="Q4_1", embed_tokens="Q8_0", lm_head="F16", down_proj="Q4_0")
        assert dtypes.name == "int4"
        assert heads(dtypes) == ("q8_0", "f16")
        assert dtypes.matrices["layers.1.down"] == "q4_0"
        assert dtypes.matrices["layers.0.qkv"] == dtypes.matrices["layers.1.gate_up"] == "q4_1"

    @pytest.mark.parametrize(
        ("v_proj", "rest", "packed"),
        [
            *(("Q6_K", "Q4_K", "q8_0"), ("Q4_1", "Q4_K", "q4_1"), ("Q4_0", "Q4_1", "q8_0")),
            *(("F16", "Q4_0", "q8_0"), ("BF16", "Q8_0", "q8_0"), ("Q5_0", "Q6_K", "q8_0")),
        ],
    )
    def test_parts_of_one_product_of_two_kinds(self, v_proj: str, rest: str, packed: str) -> None:
        assert chosen(rest=rest, v_proj=v_proj).matrices["layers.0.qkv"] == packed

    def test_floats_of_two_kinds_in_one_product_of_a_quantised_file(self) -> None:
        dtypes = chosen(rest="Q8_0", v_proj="F16", q_proj="BF16", k_proj="F16")
        assert dtypes.matrices["layers.0.qkv"] == "f32"
        assert (
            chosen(rest="Q8_0", v_proj="F16", q_proj="F16", k_proj="F16").matrices["layers.0.qkv"]
            == "f16"
        )

    def test_the_name_is_the_dtype_of_most_weights(self) -> None:
        assert chosen(rest="Q4_K", down_proj="Q6_K", v_proj="Q6_K").name == "int4"
        assert chosen(rest="Q6_K", v_proj="Q4_K").name == "int8"
        assert chosen(rest="Q4_0", embed_tokens="F32", lm_head="F32").name == "int4"
        few = chosen(rest="F16", v_proj="Q4_0", q_proj="Q4_0", k_proj="Q4_0")
        assert (few.name, few.cache) == ("f16", "f16")


class TestRequested:
    @pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q5_K", "Q4_1"])
    @pytest.mark.parametrize(
        ("dtype", "packed"), [("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("int8", "q8_0")]
    )
    def test_all_matrices_have_the_requested_dtype(
        self, kind: str, dtype: str, packed: str
    ) -> None:
        dtypes = chosen(dtype, rest=kind)
        assert (dtypes.name, dtypes.cache) == (dtype, CACHE[dtype])
        assert set(dtypes.matrices.values()) == {packed}

    @pytest.mark.parametrize(
        ("kind", "layer", "head"),
        [
            *(("F32", "q4_0", "q8_0"), ("BF16", "q4_0", "q8_0"), ("Q8_0", "q4_0", "q8_0")),
            *(("Q6_K", "q4_0", "q8_0"), ("Q4_0", "q4_0", "q4_0"), ("Q4_1", "q4_1", "q4_1")),
            *(("Q4_K", "q4_1", "q4_1"), ("Q5_1", "q4_0", "q8_0")),
        ],
    )
    def test_four_bits_keep_an_int8_head_unless_the_file_has_four_bits(
        self, kind: str, layer: str, head: str
    ) -> None:
        dtypes = chosen("int4", rest=kind)
        assert (dtypes.name, layers(dtypes), heads(dtypes)) == ("int4", {layer}, (head, head))
        assert dtypes.cache == "f16"

    def test_four_bits_of_mixed_files(self) -> None:
        dtypes = chosen("int4", rest="Q4_1", v_proj="Q6_K", lm_head="Q6_K", embed_tokens="Q4_0")
        assert dtypes.matrices["layers.0.qkv"] == "q4_0"
        assert dtypes.matrices["layers.0.o"] == "q4_1"
        assert heads(dtypes) == ("q4_0", "q8_0")

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("head_dtype", HEAD_DTYPES)
    def test_head_dtype_applies_only_to_the_embedding_and_the_head(
        self, dtype: str, head_dtype: str
    ) -> None:
        packed = {"int8": "q8_0", "int4": "q4_0"}.get(head_dtype, head_dtype)
        plain, dtypes = chosen(dtype), chosen(dtype, head_dtype)
        assert heads(dtypes) == (packed, packed)
        assert layers(dtypes) == layers(plain)
        assert (dtypes.name, dtypes.cache) == (plain.name, plain.cache)
        tied = chosen(dtype, head_dtype, tied=True)
        assert tied.matrices["embed"] == packed and "head" not in tied.matrices

    def test_a_head_in_four_bits_keeps_the_files_minimum(self) -> None:
        assert heads(chosen("auto", "int4", rest="Q4_K", lm_head="Q6_K")) == ("q4_1", "q4_0")


class TestModels:
    """Opened models, compared with the same weights in float32."""

    PROMPT = np.arange(3, 120, 4, dtype=np.int32)

    def share(self, llm: LLM, exact: LLM) -> float:
        return difference(llm.logits(self.PROMPT), exact.logits(self.PROMPT))

    def test_fewer_bits_are_smaller_and_further_off(
        self, folder: Path, open_llm: Callable[..., LLM]
    ) -> None:
        exact = open_llm(folder)
        sizes, shares = [exact.weight_bytes], [0.0]
        for dtype in ("f16", "int8", "int4"):
            llm = open_llm(folder, dtype=dtype)
            assert llm.dtype == dtype
            sizes.append(llm.weight_bytes)
            shares.append(self.share(llm, exact))
        assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 4
        assert shares == sorted(shares) and 0 < shares[1] < 0.002
        assert shares[2] < 0.05 and shares[3] < 0.5
        assert open_llm(folder, dtype="bf16").weight_bytes == sizes[1]

    def test_the_heads_dtype(self, folder: Path, open_llm: Callable[..., LLM]) -> None:
        exact, plain = open_llm(folder), open_llm(folder, dtype="int4")
        same = open_llm(folder, dtype="int4", head_dtype="int8")
        assert (same.logits(self.PROMPT) == plain.logits(self.PROMPT)).all()
        assert same.weight_bytes == plain.weight_bytes
        small = open_llm(folder, dtype="int4", head_dtype="int4")
        large = open_llm(folder, dtype="int4", head_dtype="f32")
        assert small.weight_bytes < plain.weight_bytes < large.weight_bytes
        assert self.share(large, exact) < self.share(plain, exact) < self.share(small, exact)
        assert {llm.dtype for llm in (same, small, large)} == {"int4"}
        rounded = open_llm(folder, dtype="f32", head_dtype="int8")
        assert rounded.dtype == "f32"
        assert 0 < self.share(rounded, exact) < 0.05

    def test_auto_of_an_f16_file_is_f16(self, tmp_path: Path, open_llm: Callable[..., LLM]) -> None:
        folder = write_seeded(tmp_path / "m", dtype="F16")
        llm = open_llm(folder, dtype="auto")
        assert llm.dtype == "f16"
        assert 0 < self.share(llm, open_llm(folder)) < 0.002

    @pytest.mark.parametrize(
        ("kind", "name"),
        [
            *(("Q8_0", "int8"), ("Q4_0", "int4"), ("Q4_1", "int4")),
            *(("Q4_K", "int4"), ("Q6_K", "int8")),
        ],
    )
    def test_a_quantised_file_is_computed_without_conversion(
        self, kind: str, name: str, tmp_path: Path
    ) -> None:
        """Its weights equal float32, exactly or nearly. Inputs and the cache are rounded."""
        config = config_of(hidden_size=256, intermediate_size=512, vocab_size=128, rope_theta=500.0)
        generator = np.random.default_rng(3)
        tensors: dict[str, Stored] = {}
        for source, array in random_weights(config).items():
            matrix = array.ndim == 2
            tensors[gguf_name(source)] = (
                random_blocks(kind, array.shape, generator) if matrix else stored(array)
            )
        sizes = {"llama.embedding_length": 256, "llama.feed_forward_length": 512}
        path = tmp_path / "blocks.gguf"
        path.write_bytes(gguf_bytes({**TINY_GGUF, **sizes}, tensors))
        auto, asked, exact = (load_model(find_model(path), of, 2) for of in ("auto", name, "f32"))
        assert auto.dtypes.name == name
        assert auto.core.weight_bytes == asked.core.weight_bytes < exact.core.weight_bytes / 3
        found, same, logits = (
            new_engine(model.core).logits(self.PROMPT) for model in (auto, asked, exact)
        )
        assert (found == same).all()
        assert 0 < difference(found, logits) < 0.1


class TestNames:
    """The core's table of dtypes (csrc/base/dtype.h) and the tables of the package agree."""

    def test_files_and_the_core_list_the_same_dtypes(self) -> None:
        builder = _core.ModelBuilder(spec_of(Shape()), "f32", 1)
        with pytest.raises(InvalidArgument) as error:
            builder.add("embed", [(b"", "none", (1, 1), None)], dtype="f32")
        known = str(error.value).split("expected one of ")[1].split(", ")
        assert {name.upper() for name in known} == set(STORAGE)

    def test_the_core_packs_the_dtypes_that_are_chosen(self) -> None:
        builder = _core.ModelBuilder(spec_of(Shape()), "f32", 1)
        with pytest.raises(InvalidArgument) as error:
            rows, columns = 300, 96
            source = (bytes(rows * columns * 4), "f32", (rows, columns), None)
            builder.add("embed", [source], dtype="q4_k")
        known = str(error.value).split("expected ")[1].replace(" or ", ", ").split(", ")
        assert set(known) == set(PACKED_DTYPES)


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "reported"),
        [
            ({"dtype": "q8_0"}, "dtype: is 'q8_0', expected one of auto, f32, f16, bf16, int8"),
            ({"dtype": "INT8"}, "dtype: is 'INT8', expected one of auto"),
            ({"dtype": "f32", "head_dtype": "auto"}, "head_dtype: is 'auto', expected None or"),
            ({"dtype": "f32", "head_dtype": "q4_1"}, "head_dtype: is 'q4_1', expected None or"),
        ],
    )
    def test_errors_are_raised_before_a_file_is_opened(
        self, arguments: dict[str, Any], reported: str, tmp_path: Path
    ) -> None:
        nowhere = ModelFiles("m", tmp_path / "nowhere", "folder")
        with pytest.raises(InvalidArgument, match=f"^{reported}"):
            load_model(nowhere, threads=1, **arguments)
        with pytest.raises(InvalidArgument, match=f"^{reported}"):
            LLM(tmp_path / "nowhere", **arguments)

    def test_a_folder_of_two_dtypes_by_files(self, tmp_path: Path) -> None:
        """The dtypes of a checkpoint's tensors reach the rule."""
        folder = write_folder(tmp_path / "m")
        for kinds, name in (({}, "bf16"), ({HEAD: "F32"}, "f32"), ({"norm": "F32"}, "bf16")):
            tensors = {}
            for source, array in random_weights(TINY).items():
                kind = next(
                    (k for end, k in kinds.items() if source.endswith(f"{end}.weight")), "BF16"
                )
                tensors[source] = stored(array, kind)
            (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
            loaded = load_model(find_model(folder), "auto", 1)
            assert loaded.dtypes.name == name
            assert loaded.core.cache_dtype == name
