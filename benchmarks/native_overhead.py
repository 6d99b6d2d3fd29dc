"""The overhead of a step for its caller in microseconds, through the C interface and through
Python.

Three callers use the engine of one LLM: a loop in C (native/drive.c, compiled here with cc),
``LLM.generate``, and several ``LLM.stream`` at once. A trace gives the time of the engine's own
steps. The rest is the overhead, including the submission of requests and the construction of
results. The default model is so small that its step takes microseconds, and has no text. With a
given model, compare the throughputs. The callers take turns, so that other load of the machine
affects all of them equally.

    python benchmarks/native_overhead.py [MODEL] [--rounds 100] [--tokens 100] [--json]

A MODEL may be a folder, a GGUF file or a pack.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import onward
from onward import _core
from onward.load import architectures
from onward.load.architectures.parts import stored_shapes

HERE = Path(__file__).parent
PACKAGE = Path(_core.__file__).parent
HEADERS = (PACKAGE / "include", HERE.parent / "csrc" / "include")
PROMPT = [3, 4, 5, 6]
REQUESTS = (1, 16)
TINY = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


class StepSums(ctypes.Structure):
    """``step_sums`` of drive.c."""

    _fields_ = (("steps", ctypes.c_int64), ("seconds", ctypes.c_double))


def write_tiny(folder: Path) -> Path:
    """A model folder, without a tokenizer."""
    generator = np.random.default_rng(0)
    plan = architectures.tensor_plan(architectures.read_spec(TINY))
    tensors = {
        source: generator.standard_normal(shape).astype(np.float32)
        for source, shape in stored_shapes(plan).items()
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY))
    save_file(tensors, folder / "model.safetensors")
    return folder


def compile_driver(folder: Path) -> ctypes.CDLL:
    """Compile drive.c as a library, linked with the libonward.so of this package."""
    library = PACKAGE / "lib" / "libonward.so"
    binary = folder / "drive.so"
    include = next(path for path in HEADERS if (path / "onward" / "onward_c.h").exists())
    command = [os.environ.get("CC", "cc"), "-std=gnu99", "-O2", "-shared", "-fPIC", "-Wall"]
    command += ["-I", str(include), str(HERE / "native" / "drive.c"), str(library)]
    command += [f"-Wl,-rpath,{library.parent}", "-o", str(binary)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(binary))


def through_c(driver: ctypes.CDLL, handle: int, requests: int, tokens: int) -> tuple[float, int]:
    """Seconds, and the number of generated tokens."""
    seconds, written = ctypes.c_double(), ctypes.c_int64()
    prompt = (ctypes.c_int32 * len(PROMPT))(*PROMPT)
    status = driver.generate(
        ctypes.c_size_t(handle),
        prompt,
        ctypes.c_int64(len(PROMPT)),
        ctypes.c_int64(requests),
        ctypes.c_int64(tokens),
        ctypes.byref(seconds),
        ctypes.byref(written),
    )
    if status:
        raise RuntimeError(f"drive.c: status {status}")
    return seconds.value, written.value


def through_python(llm: onward.LLM, requests: int, tokens: int) -> tuple[float, int]:
    begin = time.perf_counter()
    results = llm.generate([PROMPT] * requests, max_new_tokens=tokens, ignore_eos=True)
    return time.perf_counter() - begin, sum(len(result.token_ids) for result in results)


def through_streams(llm: onward.LLM, requests: int, tokens: int) -> tuple[float, int]:
    begin = time.perf_counter()
    streams = [llm.stream(PROMPT, max_new_tokens=tokens, ignore_eos=True) for _ in range(requests)]
    for stream in streams:
        for _piece in stream:
            pass
    seconds = time.perf_counter() - begin
    return seconds, sum(len(stream.result.token_ids) for stream in streams)


def measure(
    llm: onward.LLM, driver: ctypes.CDLL, rounds: int, tokens: int
) -> list[dict[str, float | str]]:
    """One row for each number of requests and each caller."""
    handle, sums = llm.engine_handle(), StepSums()
    driver.sum_steps(ctypes.c_size_t(handle), ctypes.byref(sums))
    ways: dict[str, Callable[[int], tuple[float, int]]] = {
        "C": lambda requests: through_c(driver, handle, requests, tokens),
        "Python": lambda requests: through_python(llm, requests, tokens),
        "streams": lambda requests: through_streams(llm, requests, tokens),
    }
    rows: list[dict[str, float | str]] = []
    try:
        for requests in REQUESTS:
            above: dict[str, list[float]] = {way: [] for way in ways}
            rates: dict[str, list[float]] = {way: [] for way in ways}
            own: dict[str, list[float]] = {way: [] for way in ways}
            for index in range(rounds + 1):
                for way, run in ways.items():
                    sums.steps, sums.seconds = 0, 0.0
                    seconds, written = run(requests)
                    if index == 0:
                        continue  # warms up
                    above[way].append((seconds - sums.seconds) / sums.steps * 1e6)
                    own[way].append(sums.seconds / sums.steps * 1e6)
                    rates[way].append(written / seconds)
            for way in ways:
                ratios = [this / c for this, c in zip(rates[way], rates["C"], strict=True)]
                low, middle, high = statistics.quantiles(ratios, n=4)
                rows.append(
                    {
                        "requests": requests,
                        "way": way,
                        "engine_us": statistics.median(own[way]),
                        "above_us": statistics.median(above[way]),
                        "above_least_us": min(above[way]),
                        "tokens_per_s": statistics.median(rates[way]),
                        "times_c": middle,
                        "times_c_quartiles": f"{low:.3f} to {high:.3f}",
                    }
                )
    finally:
        driver.sum_steps(ctypes.c_size_t(handle), None)
        ctypes.CDLL(str(PACKAGE / "lib" / "libonward.so")).onward_engine_close(
            ctypes.c_void_p(handle)
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--rounds", type=int, default=100, help="2 at least")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        driver = compile_driver(Path(folder))
        model = arguments.model or write_tiny(Path(folder) / "model")
        with onward.LLM(model, threads=arguments.threads) as llm:
            rows = measure(llm, driver, arguments.rounds, arguments.tokens)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print("requests  way     engine us  above us (least)  tokens/s  times C (quartiles)")
    for row in rows:
        print(
            f"{row['requests']:8}  {row['way']:6}  {row['engine_us']:9.1f}  {row['above_us']:8.1f} "
            f"({row['above_least_us']:.1f})  {row['tokens_per_s']:9.0f}  "
            f"{row['times_c']:.3f} ({row['times_c_quartiles']})"
        )


if __name__ == "__main__":
    main()
