"""Hashes of the results of every fixture model, to show that a change of the code changes no bit.

    python scripts/result_hashes.py > before.txt          # with the old build
    python scripts/result_hashes.py --against before.txt  # with the new one; 1 if a hash differs

One line each: instruction set or device, model, weight dtype, KV dtype, and the first 16 digits of
a SHA-256. A hash covers the float32 logits of every position of a prompt, and the tokens that
follow greedily, with sampling, and by beam search. Models with heads of 32 and 64 values are made
here, because the fixtures have heads too small for coded caches. Each instruction set runs in a
process of its own, because the core chooses its kernels once. The device "cuda-host" joins where
ONWARD_CUDA_HOST_LIBRARY names its library. Only the public interface is used, so that two
releases can be compared.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import onward

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from builders.seeded_folder import write_seeded  # noqa: E402

MODELS = ROOT / "tests" / "fixtures" / "models"
WEIGHTS = ("f32", "f16", "bf16", "int8", "int4")
CACHES = ("auto", "f32", "f16", "bf16", "int8", "q4_0", "turbo8v4", "turbo4", "turbo3", "turbo2")
PROMPT_TOKENS, NEW_TOKENS, VOCABULARY = 75, 20, 96
CODED_PROMPT_TOKENS = 240  # more than the window of 128 tokens, so that blocks are coded
SEARCHES = (
    {"temperature": 0.0},
    {"temperature": 0.9, "top_p": 0.95, "top_k": 40, "repetition_penalty": 1.1, "seed": 7},
    {"temperature": 1.1, "min_p": 0.02, "typical_p": 0.97, "seed": 8},
    {"num_beams": 3, "temperature": 0.0},  # a model's own settings may sample with a random seed
)


def results_hash(model: Path, dtype: str, kv_dtype: str, device: str) -> str:
    """Hash of the logits and tokens of one model, or the error that refuses the combination."""
    count = CODED_PROMPT_TOKENS if model.name.startswith("heads-") else PROMPT_TOKENS
    prompt = np.random.default_rng(3).integers(3, VOCABULARY, count, dtype=np.int32)
    digest = hashlib.sha256()
    try:
        with onward.LLM(model, dtype=dtype, kv_dtype=kv_dtype, device=device, threads=2) as llm:
            prompt = prompt[: llm.context - NEW_TOKENS]
            digest.update(np.ascontiguousarray(llm.logits(prompt), np.float32).tobytes())
            for options in SEARCHES:
                found = llm.generate(prompt, max_new_tokens=NEW_TOKENS, ignore_eos=True, **options)
                digest.update(np.asarray(found.token_ids, np.int32).tobytes())
    except onward.errors.InvalidArgument:
        return "refused"
    return digest.hexdigest()[:16]


def models(folder: Path) -> list[Path]:
    """The fixtures, and models with larger heads, made in ``folder``."""
    sizes = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    for head_dim in (32, 64):
        write_seeded(folder / f"heads-{head_dim}", head_dim=head_dim, **sizes)
    return [*sorted(MODELS.iterdir()), *sorted(folder.iterdir())]


def lines(device: str) -> Iterator[str]:
    """The lines of this process's instruction set or device."""
    where = os.environ.get("ONWARD_CPU_ISA", "") if device == "cpu" else device
    with tempfile.TemporaryDirectory() as folder:
        for model, dtype, kv_dtype in itertools.product(models(Path(folder)), WEIGHTS, CACHES):
            if device != "cpu" and kv_dtype != "auto" and not model.name.startswith("heads-"):
                continue  # the kernels run slowly on the processor: one cache for most models
            value = results_hash(model, dtype, kv_dtype, device)
            yield f"{where} {model.name} {dtype} {kv_dtype} {value}"


def instruction_sets() -> list[str]:
    """The instruction sets that this processor runs, by the names of ONWARD_CPU_ISA."""
    doctor = [sys.executable, "-m", "onward", "doctor", "--json"]
    report = json.loads(subprocess.run(doctor, stdout=subprocess.PIPE, check=True).stdout)
    available: list[str] = report["isa"]["available"]
    return available


def main() -> int:
    """Print the lines, or compare them with a file of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="FILE", help="compare with these lines")
    parser.add_argument("--only", metavar="DEVICE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        for line in lines(options.only):
            print(line, flush=True)
        return 0
    found: list[str] = []
    places = [("cpu", isa) for isa in instruction_sets()]
    if os.environ.get("ONWARD_CUDA_HOST_LIBRARY"):
        places.append(("cuda-host", ""))
    for device, isa in places:
        print(f"{isa or device} ...", file=sys.stderr)
        environment = {**os.environ, **({"ONWARD_CPU_ISA": isa} if isa else {})}
        command = [sys.executable, __file__, "--only", device]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                found.append(line.rstrip("\n"))
                if options.against is None:
                    print(found[-1], flush=True)
        if child.returncode:
            return child.returncode
    if options.against is None:
        return 0
    old = Path(options.against).read_text().splitlines()
    changed = sorted(set(old) ^ set(found))
    print("\n".join(changed) if changed else f"{len(found)} results, no hash differs")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
