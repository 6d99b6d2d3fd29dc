"""The llama.cpp process of numerics.py: writes GGUF files with llama.cpp's quantiser, and its
logits.

It runs in an environment with llama-cpp-python and imports nothing of this repository.

    python llama_logits.py write SOURCE OUT TYPE           TYPE: F32, F16, Q8_0, Q4_0, Q4_K_M, ...
    python llama_logits.py logits MODEL IDS.npy OUT.npy [--threads N] [--exact]

``logits`` reads the number of a window from each line of stdin, writes its logits to OUT.npy and
prints a line. So only one window is on the disk at a time.
"""

from __future__ import annotations

import argparse
import sys

import llama_cpp
import numpy as np


def write(source: str, out: str, kind: str) -> None:
    """Call llama_model_quantize with its defaults, which mix types."""
    settings = llama_cpp.llama_model_quantize_default_params()
    settings.ftype = getattr(
        llama_cpp, f"LLAMA_FTYPE_{'ALL' if kind == 'F32' else 'MOSTLY'}_{kind}"
    )
    settings.allow_requantize = True  # converts a quantised file to F32
    status = llama_cpp.llama_model_quantize(source.encode(), out.encode(), settings)
    if status:
        raise SystemExit(f"llama_model_quantize: gave {status}, expected 0")


def logits(model: str, ids_path: str, out: str, threads: int, exact: bool) -> None:
    ids = np.load(ids_path)  # (windows, tokens)
    # The defaults of the library: flash attention, keys and values in f16. With --exact: neither.
    kind = llama_cpp.GGML_TYPE_F32 if exact else llama_cpp.GGML_TYPE_F16
    llama = llama_cpp.Llama(
        model,
        n_ctx=ids.shape[1],
        n_batch=ids.shape[1],
        n_threads=threads,
        n_threads_batch=threads,
        logits_all=True,
        flash_attn=not exact,
        type_k=kind,
        type_v=kind,
        verbose=False,
    )
    print(f"llama-cpp-python {llama_cpp.__version__}", file=sys.stderr)
    for line in sys.stdin:
        llama.reset()
        llama.eval(ids[int(line)].tolist())
        np.save(out, llama.scores[: ids.shape[1]])
        print("done", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    for name in ("source", "out", "type"):
        writing.add_argument(name)
    computing = commands.add_parser("logits")
    for name in ("model", "ids", "out"):
        computing.add_argument(name)
    computing.add_argument("--threads", type=int, default=2)
    computing.add_argument("--exact", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "write":
        write(arguments.source, arguments.out, arguments.type)
    else:
        logits(arguments.model, arguments.ids, arguments.out, arguments.threads, arguments.exact)


if __name__ == "__main__":
    main()
