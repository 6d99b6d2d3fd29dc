"""llama.cpp through llama-cpp-python: one request after another.

llama.cpp can decode several sequences in one batch, and its server does. The Python interface does
not offer this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from engines.contest import Absent, Clock, Request, Stopwatch, Timed
from engines.source_model import SourceModel

INSTALL = 'CMAKE_ARGS="-DGGML_NATIVE=ON" pip install llama-cpp-python (compiles for minutes)'
AS_SHIPPED = "as shipped"


class LlamaCpp:
    """One GGUF file in one context."""

    serial = True

    def __init__(self, source: SourceModel, weights: str, threads: int, context: int) -> None:
        """``weights``: "as shipped", or the name of the type that the matrices are stored in."""
        llama_cpp = _package()
        path = converted(source, weights)
        self._llama = llama_cpp.Llama(
            str(path),
            n_ctx=context,
            n_batch=512,
            n_threads=threads,
            n_threads_batch=threads,
            flash_attn=True,  # the default of llama.cpp; the default of the Python interface is off
            verbose=False,
        )
        self.name = f"llama.cpp {path.stem.rpartition('.')[2]}"
        self.setting = f"llama-cpp-python {llama_cpp.__version__}, weights {weights}"

    def prepare(self, requests: Sequence[Request], clock: Clock) -> str:
        self.run(requests[:4])
        return "one after another"

    def run(self, requests: Sequence[Request]) -> list[list[int]]:
        return [list(self._tokens(request)) for request in requests]

    def follow(self, request: Request) -> Timed:
        watch = Stopwatch()
        for token in self._tokens(request):
            watch.note(token)
        return watch.timed()

    def close(self) -> None:
        self._llama.close()

    def _tokens(self, request: Request) -> Iterator[int]:
        self._llama.reset()  # otherwise a prompt with an equal beginning would not be read again
        tokens = self._llama.generate(list(request.prompt), temp=0.0, repeat_penalty=1.0)
        return islice(tokens, request.new_tokens)


def instructions() -> str:
    """The instruction sets of the build, as the library reports them: the names with value 1."""
    said = _package().llama_print_system_info().decode()
    pairs = (pair.partition("=") for pair in said.rpartition("CPU :")[2].split("|"))
    return " ".join(name.strip() for name, _, value in pairs if value.strip() == "1")


def converted(source: SourceModel, weights: str) -> Path:
    """The GGUF file of these weights. Floats are written here; the quantiser of llama.cpp writes
    the rest."""
    if weights == AS_SHIPPED:
        return source.path
    name = f"{weights}.gguf"
    if weights in ("F32", "BF16"):
        return source.converted(name, lambda out: _write(source, out, weights))
    return source.converted(name, lambda out: _quantise(converted(source, "F32"), out, weights))


def _package() -> Any:
    try:
        import llama_cpp
    except ImportError:
        raise Absent(INSTALL) from None
    return llama_cpp


def _quantise(path: Path, out: Path, weights: str) -> None:
    """Call llama_model_quantize with its defaults, which mix types (docs/benchmarks.md)."""
    llama_cpp = _package()
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{weights}")
    status = llama_cpp.llama_model_quantize(str(path).encode(), str(out).encode(), settings)
    if status:
        raise Absent(f"llama_model_quantize: {path.name} as {weights}: gave {status}, expected 0")


def _write(source: SourceModel, path: Path, weights: str) -> None:
    """Write the file with its matrices dequantised and stored as F32 or BF16."""
    reader = source.reader
    from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, LlamaFileType
    from gguf.quants import quantize

    kind = GGMLQuantizationType[weights]
    writer = GGUFWriter(path, source.metadata("general.architecture"))
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in (
            "general.architecture",
            "general.file_type",
            "general.quantization_version",
        ):
            continue
        sub_type = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], sub_type)
    writer.add_file_type(LlamaFileType[f"{'ALL' if weights == 'F32' else 'MOSTLY'}_{weights}"])
    for name, values in source.tensors():
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
