"""Parts of weights from tiny files: rows, orders, slices, transposed tensors and sums."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from builders.checkpoints import (
    TINY,
    TINY_GGUF,
    gguf_bytes,
    random_blocks,
    safetensors_bytes,
    stored,
    tiny_gguf_tensors,
)
from onward.errors import WeightError
from onward.load import architectures
from onward.load.architectures.parts import (
    Part,
    PlannedTensor,
    constant,
    joined,
    whole,
    with_rows,
)
from onward.load.architectures.row_orders import interleaved
from onward.load.hub import find_model
from onward.load.loading import check_headers
from onward.load.weights import Checkpoint, open_checkpoint
from onward.load.weights.part_reader import PartTensor, gathered, read_part

DTYPES = ("F32", "F16", "BF16")
NUMPY = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def opened(folder: Path, dtype: str = "F32", **tensors: np.ndarray) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(TINY))
    data = {name: stored(values, dtype) for name, values in tensors.items()}
    (folder / "model.safetensors").write_bytes(safetensors_bytes(data))
    return open_checkpoint(find_model(folder))


def values(part: PartTensor) -> np.ndarray:
    """The numbers of a part; of bf16, its bits."""
    found = gathered(part)
    return np.frombuffer(found.buffer, NUMPY[found.dtype]).reshape(found.shape)


def bits(array: np.ndarray, dtype: str) -> np.ndarray:
    """As ``values`` of an array that was stored in a dtype."""
    tensor = stored(array, dtype)
    return np.frombuffer(tensor.data, NUMPY[dtype]).reshape(array.shape)


def lies_in_the_file(part: PartTensor) -> bool:
    return part.mapped and part.buffer.readonly


@pytest.mark.parametrize("dtype", DTYPES)
class TestRowsOfTheMapping:
    """Row ranges and orders copy nothing."""

    TABLE = np.arange(24, dtype=np.float32).reshape(6, 4) / 8

    def test_a_whole_tensor(self, tmp_path: Path, dtype: str) -> None:
        part = read_part(opened(tmp_path, dtype, w=self.TABLE), whole("w", (6, 4)))
        assert lies_in_the_file(part) and part.row_order is None
        assert (values(part) == bits(self.TABLE, dtype)).all()

    def test_a_range_of_rows(self, tmp_path: Path, dtype: str) -> None:
        part = read_part(
            opened(tmp_path, dtype, w=self.TABLE), Part("w", (2, 4), (6, 4), rows=range(3, 5))
        )
        assert lies_in_the_file(part) and part.row_order is None
        assert part.buffer.nbytes == self.TABLE[3:5].size * (4 if dtype == "F32" else 2)
        assert (values(part) == bits(self.TABLE[3:5], dtype)).all()

    def test_rows_in_any_order(self, tmp_path: Path, dtype: str) -> None:
        order = np.array([4, 1, 5], np.int32)
        part = read_part(
            opened(tmp_path, dtype, w=self.TABLE), Part("w", (3, 4), (6, 4), rows=order)
        )
        assert lies_in_the_file(part) and part.row_order is not None
        assert part.row_order.tolist() == [3, 0, 4]  # of the rows 1 to 5
        assert (values(part) == bits(self.TABLE[[4, 1, 5]], dtype)).all()

    def test_every_other_row(self, tmp_path: Path, dtype: str) -> None:
        part = read_part(
            opened(tmp_path, dtype, w=self.TABLE), Part("w", (3, 4), (6, 4), rows=range(1, 6, 2))
        )
        assert lies_in_the_file(part)
        assert (values(part) == bits(self.TABLE[1::2], dtype)).all()

    def test_a_slice_of_three_dimensions(self, tmp_path: Path, dtype: str) -> None:
        experts = self.TABLE.reshape(3, 2, 4)
        part = read_part(
            opened(tmp_path, dtype, w=experts), Part("w", (1, 4), (3, 2, 4), slice=2, rows=range(1))
        )
        assert lies_in_the_file(part) and part.row_order is None
        assert (values(part) == bits(experts[2, :1], dtype)).all()

    def test_a_range_and_an_order_of_a_vector(self, tmp_path: Path, dtype: str) -> None:
        vector = self.TABLE.reshape(-1)
        checkpoint = opened(tmp_path, dtype, w=vector)
        some = read_part(checkpoint, Part("w", (3,), (24,), rows=range(5, 8)))
        assert lies_in_the_file(some) and (values(some) == bits(vector[5:8], dtype)).all()
        matrix = opened(tmp_path / "m", dtype, w=self.TABLE)
        row = read_part(matrix, Part("w", (2,), (6, 4), slice=2, rows=range(1, 3)))
        assert lies_in_the_file(row) and (values(row) == bits(self.TABLE, dtype)[2, 1:3]).all()
        order = np.array([7, 3], np.int32)
        turned = read_part(checkpoint, Part("w", (2,), (24,), rows=order))
        assert lies_in_the_file(turned) and (values(turned) == bits(vector[[7, 3]], dtype)).all()


@pytest.mark.parametrize("dtype", DTYPES)
class TestCopies:
    """Transposed tensors keep their bits; a sum is float32."""

    TABLE = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)

    def test_a_transposed_matrix(self, tmp_path: Path, dtype: str) -> None:
        part = read_part(
            opened(tmp_path, dtype, w=self.TABLE),
            Part("w", (2, 4), (4, 6), transposed=True, rows=range(2, 4)),
        )
        assert not part.mapped and part.dtype == dtype
        assert (values(part) == bits(self.TABLE, dtype).T[2:4]).all()

    def test_transposed_experts_with_gate_and_up_in_turns(self, tmp_path: Path, dtype: str) -> None:
        experts = np.stack([self.TABLE, self.TABLE + 1])
        checkpoint = opened(tmp_path, dtype, w=experts)
        for rows, first in zip(interleaved(2, 3), (0, 1), strict=True):
            part = read_part(
                checkpoint, Part("w", (3, 4), (2, 4, 6), slice=1, transposed=True, rows=rows)
            )
            assert (values(part) == bits(experts, dtype)[1].T[first::2]).all()

    def test_transposed_rows_of_a_head(self, tmp_path: Path, dtype: str) -> None:
        """Rows 2 and 3 of the file become columns."""
        part = read_part(
            opened(tmp_path, dtype, w=self.TABLE.T),
            with_rows(Part("w", (4, 6), (6, 4), transposed=True), np.array([3, 0], np.int32)),
        )
        assert (values(part) == bits(self.TABLE, dtype)[[3, 0]]).all()

    def test_a_sum(self, tmp_path: Path, dtype: str) -> None:
        vector = self.TABLE[0]
        part = read_part(opened(tmp_path, dtype, w=vector), Part("w", (6,), (6,), plus=1.0))
        kept = bits(vector, dtype)
        if dtype == "BF16":
            kept = (kept.astype(np.uint32) << 16).view(np.float32)
        assert part.dtype == "F32"
        assert (values(part) == kept.astype(np.float32) + np.float32(1)).all()

    def test_a_constant(self, tmp_path: Path, dtype: str) -> None:
        part = read_part(opened(tmp_path, dtype, w=self.TABLE), constant((3,), 1.0))
        assert (part.dtype, values(part).tolist(), part.mapped) == ("F32", [1, 1, 1], False)

    def test_computed_values(self, tmp_path: Path, dtype: str) -> None:
        part = read_part(
            opened(tmp_path, dtype, w=self.TABLE),
            Part("", (2, 3), computed=lambda shape: np.full(shape, 0.5, np.float32)),
        )
        assert (part.dtype, part.shape, part.mapped) == ("F32", (2, 3), False)
        assert (values(part) == 0.5).all()

    def test_a_row_added_to_every_row(self, tmp_path: Path, dtype: str) -> None:
        """The first row of a matrix of two, as float32, to rows and to a constant."""
        types = np.array([[1, 2, 3], [9, 9, 9]], np.float32)
        checkpoint = opened(tmp_path, dtype, w=np.ones((4, 3), np.float32), t=types)
        row = Part("t", (1, 3), (1, 3), more_rows=True, rows=range(1))
        part = Part("w", (2, 3), (4, 3), rows=range(1, 3), added=(row,))
        assert [piece.tensor for piece in part.tensors] == ["w", "t"]
        assert values(read_part(checkpoint, part)).tolist() == [[2, 3, 4]] * 2
        constant_rows = Part("", (2, 3), constant=0.0, added=(row,))
        assert not constant_rows.is_whole
        assert values(read_part(checkpoint, constant_rows)).tolist() == [[1, 2, 3]] * 2

    def test_joined_vectors(self, tmp_path: Path, dtype: str) -> None:
        scalar, vector = np.array(2.5, np.float32), np.array([1, 2, 3], np.float32)
        checkpoint = opened(tmp_path, dtype, a=scalar, b=vector)
        pieces = (Part("a", (1,), ()), Part("b", (2,), (3,), rows=range(1, 3)))
        part = read_part(checkpoint, joined(pieces))
        assert (values(part) == bits(np.array([2.5, 2, 3]), dtype)).all()


def test_columns_of_a_matrix(tmp_path: Path) -> None:
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    checkpoint = opened(tmp_path, w=table)
    part = read_part(checkpoint, Part("w", (3, 2), (3, 4), columns=range(1, 3)))
    assert values(part).tolist() == [[1, 2], [5, 6], [9, 10]]
    turned = Part("w", (4, 2), (3, 4), transposed=True, columns=range(1, 3))
    assert values(read_part(checkpoint, turned)).tolist() == [[4, 8], [5, 9], [6, 10], [7, 11]]


def test_rows_of_rows() -> None:
    part = Part("w", (4, 2), (9, 2), rows=range(1, 9, 2))
    reordered = with_rows(part, np.array([3, 0], np.int32))
    assert (reordered.shape, np.asarray(reordered.rows).tolist()) == ((2, 2), [7, 1])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Part("w", (2, 4), (6, 4)),
        lambda: Part("w", (4, 6), (6, 4), rows=range(4)),
        lambda: Part("w", (6, 4), (6, 4), transposed=True),
        lambda: Part("w", (6, 4), (2, 6, 4)),
    ],
)
def test_a_plan_with_a_wrong_shape_is_refused(wrong: Callable[[], Part]) -> None:
    with pytest.raises(ValueError, match="part of 'w': has shape"):
        wrong()


def test_a_wrong_shape_in_the_file_names_the_tensor(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, w=np.zeros((6, 4), np.float32))
    plan = [PlannedTensor("embed", (Part("w", (2, 4), (7, 4), rows=range(2)),))]
    spec = architectures.read_spec(TINY)
    message = r"model\.safetensors: tensor w has shape \(6, 4\), expected \(7, 4\) by the config"
    with pytest.raises(WeightError, match=message):
        check_headers(plan, checkpoint, spec)


def test_blocks_are_rows_but_not_columns(tmp_path: Path) -> None:
    """A GGUF file of 4-bit blocks: rows may be chosen; values may not be moved within a row."""
    tensors = tiny_gguf_tensors()
    name = "blk.0.ffn_down.weight"  # (32, 64)
    blocks = random_blocks("Q4_0", (32, 64), np.random.default_rng(0))
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(TINY_GGUF, {**tensors, name: blocks}))
    checkpoint = open_checkpoint(find_model(path))
    part = read_part(checkpoint, Part(name, (2, 64), (32, 64), rows=range(3, 5)))
    assert bytes(part.buffer) == blocks.data[3 * 36 : 5 * 36]
    with pytest.raises(WeightError, match=r"m\.gguf: tensor .*ffn_down\.weight is Q4_0"):
        read_part(checkpoint, Part(name, (64, 32), (32, 64), transposed=True))
