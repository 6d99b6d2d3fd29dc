"""quantize: reads the files of a model and writes the files of a smaller model.

It checks the arguments and then runs the steps in order: files, text, layers, output.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onward import _core
from onward.errors import ArgumentTypeError, InvalidArgument
from onward.load.hub import ModelFiles, find_model
from onward.load.weights import open_checkpoint
from onward.options.values import check_integer, shown
from onward.quantization import calibration as texts
from onward.quantization.block_formats import FORMATS
from onward.quantization.gguf_output import require_gguf
from onward.quantization.rewriting import MatrixError, Rewriting

METHODS = ("gptq", "round")
KEEP = "keep"
HEADS = (*FORMATS, KEEP)
CALIBRATION_TOKENS = 16384
MAX_THREADS = 1024


@dataclass(frozen=True)
class Quantization:
    """The result of ``quantize``."""

    output: str
    format: str
    head: str
    method: str
    calibration_tokens: int
    """Number of tokens that were used; 0 for the method "round"."""
    bytes_before: int
    """Bytes of all weights, before and after."""
    bytes_after: int
    seconds: float
    matrices: tuple[MatrixError, ...]
    """Errors in the order of the layers; empty for the method "round"."""


def quantize(
    model: str | os.PathLike[str] | None,
    output: str | os.PathLike[str],
    *,
    format: str = "int4",
    head: str = "int8",
    method: str = "gptq",
    calibration: str | os.PathLike[str] | None = None,
    calibration_tokens: int = CALIBRATION_TOKENS,
    threads: int | None = None,
) -> Quantization:
    """Write a model again with its matrices in blocks of 4 or 8 bits.

    Args:
        model: a folder, a .gguf file or a model of the hub; None is the default model.
        output: a path where nothing is yet; folders above it are made. A .gguf file becomes a
            .gguf file (which needs the extra ``quantize``), a folder becomes a folder.
        format: of the matrices of all layers, in blocks of 32 values: "int4" (GGUF's Q4_0: 4 bits
            and a float16 scale, 4.5 bits a weight), "int4-min" (Q4_1: a float16 minimum as well,
            5 bits) or "int8" (Q8_0, 8.5 bits).
        head: of the embedding and the output head, rounded to the nearest; "keep" leaves them.
        method: "gptq" (Frantar et al. 2022, arXiv:2210.17323, with inputs that come through what
            is quantised already) or "round", to the nearest as GGUF's converters do, which needs
            neither text nor tokenizer.
        calibration: a file of UTF-8 text; None is the package's own calibration.txt and topics of
            Python's help (onward doctor --docs quantization).
        calibration_tokens: tokens of it that are used, spread evenly over the text.
        threads: of the core; None is the number of processors this process may use. numpy's
            linear algebra has its own.

    Returns:
        What was done, with the error of each matrix (rows, columns) under calibration.

    Raises:
        InvalidArgument: an option that cannot be; an output that exists or cannot be written; text
            that cannot be read, is too short, or has tokens that the model has not.
        IoError: the output cannot be written to its end; nothing is left of it.
        ArgumentTypeError: an argument of the wrong type.
        ModelNotFound: no model under that name.
        MissingExtra: a .gguf file without the package that writes it, a hub id without the client.
        ConfigError: a config, or a GGUF file's metadata, that cannot be used.
        WeightError: tensors that are missing, damaged or not finite, or a matrix whose rows are no
            multiple of 32 values.
        TokenizerError: no tokenizer, or one that cannot be used; not for the method "round".
        NumericsError: what a matrix meets in calibration leaves the finite numbers.
    """
    began = time.perf_counter()
    target = _checked_path(output)
    layers = FORMATS[_one_of("format", format, FORMATS)]
    top = FORMATS.get(_one_of("head", head, HEADS))
    _one_of("method", method, METHODS)
    count = check_integer("calibration_tokens", calibration_tokens, texts.LEAST_TOKENS, 1 << 24)
    computing = _core.default_threads() if threads is None else threads
    check_integer("threads", computing, 1, MAX_THREADS)
    files = find_model(model)
    _check_output(files, target)
    checkpoint = open_checkpoint(files)
    try:
        work = Rewriting(files, checkpoint)
        work.check_rows(layers, top)
        used = 0
        if method == "gptq":
            text = texts.text_of(calibration)
            ids = texts.sequences(work.tokenizer(), text, count, work.max_context)
            used = int(ids.size)
        if top is not None:
            work.round_tops(top)
        if method == "gptq":
            work.calibrate_layers(layers, ids, computing)
        else:
            work.round_layers(layers)
        work.write(target, layers, {"format": format, "head": head, "method": method})
        before, after = work.sizes()
    finally:
        checkpoint.close()
    return Quantization(
        output=str(target),
        format=format,
        head=head,
        method=method,
        calibration_tokens=used,
        bytes_before=before,
        bytes_after=after,
        seconds=time.perf_counter() - began,
        matrices=tuple(work.errors),
    )


def _one_of(name: str, value: str, choices: Mapping[str, object] | tuple[str, ...]) -> str:
    if not isinstance(value, str):
        raise ArgumentTypeError(f"{name}: is {shown(value)}, expected one of {', '.join(choices)}")
    if value not in choices:
        raise InvalidArgument(f"{name}: is {shown(value)}, expected one of {', '.join(choices)}")
    return value


def _checked_path(output: str | os.PathLike[str]) -> Path:
    if not isinstance(output, (str, os.PathLike)) or not str(output):
        raise ArgumentTypeError(f"output: is {shown(output)}, expected a path")
    return Path(output).expanduser()


def _check_output(files: ModelFiles, target: Path) -> None:
    if os.path.lexists(target):
        raise InvalidArgument(f"output: {target} exists, expected a path where nothing is yet")
    if files.kind == "gguf":
        require_gguf()
        if target.suffix != ".gguf":
            raise InvalidArgument(
                f"output: is {target} for a GGUF file, expected a name that ends in .gguf"
            )
    elif target.suffix == ".gguf":
        raise InvalidArgument(
            f"output: is {target} for a folder, which becomes a folder: expected another name"
        )
    _make_parent(target.parent)


def _make_parent(parent: Path) -> None:
    """Check the output path before the work begins."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if not os.access(parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as failure:
        raise InvalidArgument(
            f"output: {parent}: {failure.strerror}, expected a folder that can be written to"
        ) from failure
