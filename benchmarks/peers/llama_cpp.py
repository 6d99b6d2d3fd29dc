"""llama.cpp through llama-cpp-python: one request after another, as its interface has it.

The library below can decode several sequences in one batch, and llama.cpp's own server does; the
Python interface does not offer it. Knows nothing of other engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from peers.contest import Absent, Clock, Request
from peers.source_model import SourceModel

INSTALL = 'CMAKE_ARGS="-DGGML_NATIVE=ON" pip install llama-cpp-python (compiles for minutes)'


class LlamaCpp:
    """One GGUF file in one context."""

    serial = True

    def __init__(self, source: SourceModel, weights: str, threads: int, context: int) -> None:
        """``weights``: "as shipped", or the name of the type that the matrices are rewritten in."""
        llama_cpp = _package()
        path = source.path
        if weights != "as shipped":
            path = source.converted(f"{weights}.gguf", lambda out: _write(source, out, weights))
        self._llama = llama_cpp.Llama(
            str(path),
            n_ctx=context,
            n_batch=512,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )
        self.name = f"llama.cpp {path.stem.rpartition('.')[2]}"
        self.setting = f"llama-cpp-python {llama_cpp.__version__}, weights {weights}"

    def prepare(self, requests: Sequence[Request], clock: Clock) -> str:
        self.run(requests[:4])
        return "one after another"

    def run(self, requests: Sequence[Request]) -> list[list[int]]:
        return [self._one(request) for request in requests]

    def close(self) -> None:
        self._llama.close()

    def _one(self, request: Request) -> list[int]:
        self._llama.reset()  # else a prompt like the last one would not be read again
        tokens = self._llama.generate(list(request.prompt), temp=0.0, repeat_penalty=1.0)
        return list(islice(tokens, request.new_tokens))


def _package() -> Any:
    try:
        import llama_cpp
    except ImportError:
        raise Absent(INSTALL) from None
    return llama_cpp


def _write(source: SourceModel, path: Path, weights: str) -> None:
    """The file again, its matrices dequantised and stored as F32 or BF16."""
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
