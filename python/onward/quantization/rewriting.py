"""One model while it is quantised: the tensors of the source, the blocks made so far, and the
writing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onward.errors import InvalidArgument, IoError, WeightError
from onward.load.architectures.parts import Part, PlannedTensor, stored_shapes
from onward.load.hub import ModelFiles
from onward.load.loading import check_headers, plan_of, read_spec
from onward.load.weights import Checkpoint, Tensor
from onward.load.weights.finite import check_finite
from onward.load.weights.part_reader import gathered, read_part, stored_bytes
from onward.machine.progress import ProgressBar
from onward.message_text import label
from onward.quantization.block_formats import (
    BLOCK,
    F32,
    BlockFormat,
    check_range,
    rounded_plainly,
    rows_of,
    values_of,
)
from onward.quantization.folder_output import write_folder
from onward.quantization.fused_tensors import check_calibration, rows_name, stacked
from onward.quantization.gguf_output import write_gguf
from onward.quantization.layer_quantizer import Rounded, quantised_layer
from onward.quantization.layer_stream import MATRICES, LayerStream
from onward.spec import DecoderSpec
from onward.text.gguf.tokenizer import read_tokenizer as read_gguf_tokenizer
from onward.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class MatrixError:
    """The error of the outputs of one matrix on the calibration inputs: the root mean square of
    the difference from the original, as a share of that of the outputs. Tokens are weighted as
    in calibration (layer_quantizer.py)."""

    name: str
    """Name of the tensor in the file."""
    plain: float
    """The error of rounding to the nearest."""
    calibrated: float


TOPS = ("embed", "head")


class Rewriting:
    """A checkpoint, with blocks in place of some of its tensors."""

    def __init__(self, files: ModelFiles, checkpoint: Checkpoint) -> None:
        self._files = files
        self._checkpoint = checkpoint
        self._spec: DecoderSpec = read_spec(checkpoint)
        plan = plan_of(self._spec, checkpoint)
        check_headers(plan, checkpoint, self._spec)
        self._plan = {planned.name: planned for planned in plan}
        self._stored = stored_shapes(plan)
        self._made: dict[str, Tensor] = {}  # by the names of the file
        self.errors: list[MatrixError] = []

    def check_rows(self, layers: BlockFormat, top: BlockFormat | None) -> None:
        """Check the shapes.

        Raises:
            WeightError: the rows of a matrix are no multiple of a block.
        """
        for name, planned in self._plan.items():
            format_ = layers if _is_layer_matrix(name) else top if name in TOPS else None
            if format_ is None:
                continue
            for part in planned.parts:
                self._check_part(part, format_)

    def _check_part(self, part: Part, format_: BlockFormat) -> None:
        where = f"{self._checkpoint.file_of(part.tensor)}: tensor {label(part.tensor)}"
        if part.transposed or part.columns is not None:
            raise WeightError(
                f"{where} is stored as (inputs, outputs), expected (outputs, inputs): the blocks "
                f"of {format_.name} are along the inputs"
            )
        if part.stored[-1] % BLOCK:
            raise WeightError(
                f"{where} has rows of {part.stored[-1]} values, expected a multiple of {BLOCK} for "
                f"{format_.name}"
            )

    def round_tops(self, format_: BlockFormat) -> None:
        """Round the embedding to the nearest, and the head where it is a matrix of its own."""
        for name in TOPS:
            if name in self._plan:
                for source in self._plan[name].sources:
                    self._round(source, format_)

    def round_layers(self, format_: BlockFormat) -> None:
        """Round every matrix of every layer to the nearest."""
        for name, planned in self._plan.items():
            if _is_layer_matrix(name):
                for source in planned.sources:
                    self._round(source, format_)

    def _round(self, name: str, format_: BlockFormat) -> None:
        tensor = self._checkpoint.tensor(name)
        if tensor.dtype == format_.dtype:
            return  # the tensor has this format already
        blocks = rounded_plainly(self._values(name, format_), format_)
        self._made[name] = replace(blocks.to_tensor(), shape=tensor.shape)

    def calibrate_layers(self, format_: BlockFormat, ids: NDArray[np.int32], threads: int) -> None:
        """Quantise every matrix of every layer by calibration with token ids (sequences,
        length)."""
        names = [f"layers.{i}.{name}" for i in range(self._spec.num_layers) for name in MATRICES]
        check_calibration(self._plan, names, self._stored)
        embedding = self._plan["embed"].sources[0]
        original = self._checkpoint.tensor(embedding)
        if ids.max() >= original.shape[0]:
            raise InvalidArgument(
                f"calibration: the tokenizer gives id {ids.max()}, "
                f"expected one of the model's {original.shape[0]} tokens"
            )
        stream, original_stream = (
            LayerStream(self._spec, rows_of(table, ids.reshape(-1)), ids.shape[1], threads)
            for table in (self._made.get(embedding) or original, original)
        )
        total = self._spec.num_layers * len(MATRICES)
        done = 0
        with ProgressBar(f"quantising {self._files.name}") as progress:

            def count(_: str) -> None:
                nonlocal done
                done += 1
                progress(done, total)

            for layer in range(self._spec.num_layers):
                parts = self._parts(f"layers.{layer}.", format_)
                results = quantised_layer(stream, original_stream, parts, format_, count)
                for name, rounded in results.items():
                    self._take(self._plan[f"layers.{layer}.{name}"], rounded)

    def _take(self, planned: PlannedTensor, rounded: list[Rounded]) -> None:
        for part, made in zip(planned.parts, rounded, strict=True):
            self.errors.append(MatrixError(rows_name(part), made.plain_error, made.error))
        for source in planned.sources:
            made_parts = [
                (part, made.tensor)
                for part, made in zip(planned.parts, rounded, strict=True)
                if part.tensor == source
            ]
            self._made[source] = stacked(self._checkpoint.tensor(source), made_parts)
            self._checkpoint.release(source)

    def _parts(self, prefix: str, format_: BlockFormat) -> Mapping[str, list[Tensor]]:
        planned = {
            name.removeprefix(prefix): planned
            for name, planned in self._plan.items()
            if name.startswith(prefix)
        }
        for name in MATRICES:
            for source in planned[name].sources:
                self._values(source, format_)  # checks that the format can hold the values
        return {
            name: [self._part(part) for part in weight.parts] for name, weight in planned.items()
        }

    def _part(self, part: Part) -> Tensor:
        """A part whose buffer holds its own rows alone."""
        return gathered(read_part(self._checkpoint, part))

    @property
    def max_context(self) -> int:
        """Largest number of tokens of one sequence."""
        return self._spec.max_context

    def _values(self, name: str, format_: BlockFormat) -> F32:
        values = values_of(self._checkpoint.tensor(name))
        if (wrong := check_range(values, format_)) is not None:
            raise WeightError(
                f"{self._checkpoint.file_of(name)}: tensor {label(name)} {wrong} for "
                f"{format_.name}; the model cannot be written in this format"
            )
        return values

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model.

        Raises:
            TokenizerError: the model has none.
        """
        if self._files.kind == "folder":
            return Tokenizer.from_folder(self._files.path)
        return read_gguf_tokenizer(self._checkpoint.metadata)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        for source in self._stored:
            yield source, self._made.get(source) or self._checkpoint.tensor(source)

    def write(self, target: Path, layers: BlockFormat, said: Mapping[str, str]) -> None:
        """Write the result: a file for a file, a folder for a folder.

        Raises:
            WeightError: a tensor that is copied as it is has values that are not finite. The
                others were checked when they were rounded.
        """
        for source in self._stored:
            if source not in self._made:
                check_finite(self._checkpoint, source)
        try:
            check = self._checkpoint.check_unchanged
            if self._files.kind == "gguf":
                parts = [Path(source.path) for source in self._checkpoint.sources()]
                write_gguf(parts, target, layers.dtype, self._made, check)
            else:
                config = self._checkpoint.config
                write_folder(self._files.path, target, config, said, self._tensors(), check)
        except FileExistsError as failure:
            raise InvalidArgument(
                f"output: {target} was written by another process meanwhile, expected a path "
                "where nothing is yet"
            ) from failure
        except OSError as failure:
            reason = failure.strerror or failure
            raise IoError(f"{target}: cannot write: {reason}") from failure

    def sizes(self) -> tuple[int, int]:
        """Bytes of all weights, before and after."""
        before = sum(stored_bytes(self._checkpoint, source) for source in self._stored)
        return before, sum(tensor.buffer.nbytes for _, tensor in self._tensors())


def _is_layer_matrix(name: str) -> bool:
    return name.startswith("layers.") and name.rpartition(".")[2] in MATRICES
