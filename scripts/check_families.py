"""Compares onward with transformers on a tiny random model of each decoder type, in float32.

    pip install "transformers==5.24.*" torch
    python scripts/check_families.py [TYPE ...] [--seed N] [--set NAME=VALUE] [--keep FOLDER]

For each type: transformers builds a model, every parameter is perturbed, and the folder is written.
The logits of a prompt that is longer than the model's windows and chunks must agree to 1e-5 of
their range, in one prefill and token by token; 24 greedy tokens and the best of four beams must be
equal. Prints a row for each type. Returns 1 if a type disagrees, is refused or cannot be built.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import transformers

import onward
from onward.load.architectures import families

sys.path.insert(0, str(Path(__file__).parent))

from families.configs import SIZES
from families.reference import BEAMS, NEW_TOKENS, Reference, compute, load_model, make_model
from families.stored import rename_weights, write_fixture

BOUND = 1e-5
PROMPT_TOKENS = 70


def differences(folder: Path, reference: Reference) -> list[str]:
    """What differs, in words; empty if everything agrees."""
    found = []
    spread = float(np.ptp(reference.logits))
    for chunk in (256, 1):
        with onward.LLM(folder, dtype="f32", prefill_chunk_tokens=chunk) as llm:
            logits = llm.logits(reference.prompt)
            worst = float(np.max(np.abs(logits - reference.logits))) / spread
            if not worst <= BOUND:
                found.append(f"logits {worst:.1e}" + (" token by token" if chunk == 1 else ""))
            if chunk == 1:
                continue
            for name, tokens, options in (
                ("greedy", reference.greedy, {}),
                ("beams", reference.beams, {"num_beams": BEAMS}),
            ):
                result = llm.generate(
                    reference.prompt, max_new_tokens=NEW_TOKENS, ignore_eos=True, temperature=0.0,
                    **options,
                )  # fmt: skip
                if list(result.token_ids) != tokens:
                    found.append(name)
    return found


def parse_changes(items: list[str]) -> dict[str, Any]:
    """NAME=VALUE, where VALUE is JSON or text."""
    changes = {}
    for item in items:
        name, _, value = item.partition("=")
        try:
            changes[name] = json.loads(value)
        except json.JSONDecodeError:
            changes[name] = value
    return changes


@contextlib.contextmanager
def kept_or_temporary(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*", help="default: every type that onward knows")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help=f"a field of the config, such as {next(iter(SIZES))}=200")  # fmt: skip
    parser.add_argument("--prompt-tokens", type=int, default=PROMPT_TOKENS, help="default: 70")
    parser.add_argument("--write", type=Path, metavar="FOLDER",
                        help="write the tests' fixtures: tests/fixtures/families")  # fmt: skip
    parser.add_argument("--keep", type=Path, help="folder for the models; default: none is kept")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    transformers.utils.logging.disable_progress_bar()
    failed, agreed = [], 0
    with kept_or_temporary(arguments.keep) as root:
        for model_type in arguments.types or families():
            folder = root / model_type
            try:
                model = make_model(model_type, folder, arguments.seed, parse_changes(arguments.set))
                entries = []
                if arguments.write:
                    entries = rename_weights(folder)
                    model = load_model(folder, model)
                reference = compute(model, arguments.prompt_tokens, arguments.seed + 1)
            except Exception as failure:
                print(f"{model_type:22} not built: {type(failure).__name__}: {failure}", flush=True)
                failed.append(model_type)
                continue
            try:
                found = differences(folder, reference)
            except onward.Error as refusal:
                print(f"{model_type:22} refused: {refusal}", flush=True)
                failed.append(model_type)
                continue
            print(f"{model_type:22} {'agrees' if not found else 'DIFFERS: ' + ', '.join(found)}",
                  flush=True)  # fmt: skip
            if found:
                failed.append(model_type)
            elif arguments.write:
                path = arguments.write / f"{model_type}.json"
                write_fixture(path, folder, entries, reference)
            agreed += not found
    print(f"{agreed} types agree, {len(failed)} do not", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
