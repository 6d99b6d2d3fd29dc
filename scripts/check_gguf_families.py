"""Compares GGUF files with folders: a tiny random model of each family in both, in float32.

    pip install "transformers==5.24.*" torch gguf [llama-cpp-python]
    python scripts/check_gguf_families.py [TYPE ...] [--seed N] [--set NAME=VALUE] [--keep FOLDER]

For each type: transformers builds a model, every parameter is perturbed, and the model is written
as a folder and as a GGUF file (families/gguf_file.py). onward's logits must be the same bits for
both. Where llama-cpp-python is installed, llama.cpp computes the logits of the file, too; how far
they are from onward's is printed, as a share of their range. Returns 1 if logits of the file differ
from the folder's, or llama.cpp's by more than the bound.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import transformers
from numpy.typing import NDArray

import onward

sys.path.insert(0, str(Path(__file__).parent))

from check_families import kept_or_temporary, parse_changes
from families.configs import VOCABULARY
from families.gguf_file import write_gguf
from families.gguf_keys import ARCHITECTURES, CHANGES
from families.reference import make_model

PROMPT_TOKENS = 70
BOUND = 1e-3
"""Of llama.cpp's logits. Its GELU reads a table of float16."""
BOUNDS = {"gpt_oss": 3e-3}
"""Instead of it: llama.cpp rounds the ends of YaRN's ramp, which this family does not."""

Logits = NDArray[np.float32]


def onwards_logits(model: Path, prompt: list[int]) -> Logits:
    with onward.LLM(model, dtype="f32", threads=1) as llm:
        return llm.logits(prompt)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Without what llama.cpp prints from C."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def llama_cpps_logits(path: Path, prompt: list[int]) -> Logits:
    import llama_cpp

    with silent():
        llama = llama_cpp.Llama(
            str(path), n_ctx=256, logits_all=True, n_threads=1, type_k=0, type_v=0, verbose=False
        )  # fmt: skip
        llama.eval(prompt)
        logits = np.array(llama.scores[: len(prompt)], np.float32)
        llama.close()
    return logits


def second_opinion(path: Path, prompt: list[int], logits: Logits, bound: float) -> tuple[str, bool]:
    """llama.cpp's difference in words, and whether it is within the bound."""
    if importlib.util.find_spec("llama_cpp") is None:
        return "llama.cpp not installed", True
    try:
        other = llama_cpps_logits(path, prompt)
    except Exception as failure:
        return f"llama.cpp does not open it: {failure}", False
    difference = float(np.max(np.abs(other - logits))) / float(np.ptp(logits))
    return f"llama.cpp {difference:.1e}", difference <= bound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*", help="default: every type of families/gguf_keys.py")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="a field of the config")  # fmt: skip
    parser.add_argument("--keep", type=Path, help="folder for the models; default: none is kept")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    transformers.utils.logging.disable_progress_bar()
    random = np.random.default_rng(arguments.seed + 1)
    prompt = random.integers(3, VOCABULARY, PROMPT_TOKENS).tolist()
    failed = 0
    with kept_or_temporary(arguments.keep) as root:
        for model_type in arguments.types or ARCHITECTURES:
            folder, path = root / model_type, root / f"{model_type}.gguf"
            changes = {**CHANGES.get(model_type, {}), **parse_changes(arguments.set)}
            make_model(model_type, folder, arguments.seed, changes)
            write_gguf(model_type, folder, path)
            try:
                expected, found = (onwards_logits(model, prompt) for model in (folder, path))
            except onward.Error as refusal:
                print(f"{model_type:16} refused: {refusal}", flush=True)
                failed += 1
                continue
            same = np.array_equal(expected, found)
            far = float(np.max(np.abs(expected - found))) / float(np.ptp(expected))
            opinion, near = second_opinion(path, prompt, found, BOUNDS.get(model_type, BOUND))
            print(f"{model_type:16} {'equal' if same else f'DIFFERS {far:.1e}'}; {opinion}",
                  flush=True)  # fmt: skip
            failed += not (same and near)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
