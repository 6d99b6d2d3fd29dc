"""onward pack: write a model into one file, which native programs can open without Python.

The summary goes to stdout, progress to stderr.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
from typing import TYPE_CHECKING, Any

from onward.cli import flags
from onward.errors import InvalidArgument

if TYPE_CHECKING:
    from onward.load.packing import Packing

MAX_THREADS = 1024
EXAMPLES = """\
  onward pack -o smollm2.onward
  onward pack MODEL -o model.onward --dtype int4
  onward pack --verify model.onward
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="folder, .gguf file or a model of the hub; default: SmolLM2-135M",
    )
    flags.add_revision_argument(parser)
    parser.add_argument(
        "-o", "--output", metavar="OUT.onward", help="the file to write; default: none"
    )
    flags.add_dtype_arguments(parser)
    flags.add_device_argument(parser)
    parser.add_argument(
        "--name", metavar="TEXT", help="name of the model; default: the name of its files"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument(
        "--verify",
        metavar="FILE",
        help="check a pack by its checksums, and write nothing; default: none",
    )
    flags.add_threads_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    from onward import _core
    from onward.options.values import check_integer

    threads = _core.default_threads() if arguments.threads is None else arguments.threads
    check_integer("threads", threads, 1, MAX_THREADS)
    if arguments.verify is not None:
        if arguments.model is not None or arguments.output is not None:
            raise InvalidArgument("verify: is given together with a model or an output")
        checked = verified(arguments.verify, threads)
        line = f"{checked['file']}: {checked['weights']} weights, {checked['bytes']:,} bytes: good"
        flags.show((json.dumps(checked) if arguments.json else line) + "\n")
        return 0
    if arguments.output is None:
        raise InvalidArgument("output: is missing, expected -o FILE.onward")
    from onward.load.packing import pack_model

    done = pack_model(
        arguments.model,
        arguments.output,
        dtype=arguments.dtype,
        head_dtype=arguments.head_dtype,
        name=arguments.name,
        force=arguments.force,
        threads=threads,
        device=arguments.device,
    )
    flags.show(json.dumps(dataclasses.asdict(done)) + "\n" if arguments.json else summary(done))
    return 0


def verified(path: str, threads: int) -> dict[str, Any]:
    """The contents of a good pack. Raises PackError for a damaged one."""
    from onward import _core

    core, texts = _core.open_pack(os.path.expanduser(path), threads, verify=True)
    return {
        "file": path,
        "name": texts["name"],
        "weights": len(core.packed()),
        "bytes": os.stat(os.path.expanduser(path)).st_size,
        "good": True,
    }


def summary(done: Packing) -> str:
    """The summary as text."""
    texts = done.file_bytes - done.weight_bytes
    return (
        f"{done.output}: {done.name} in {done.dtype}, head {done.head_dtype}\n"
        f"{done.file_bytes:,} bytes: weights {done.weight_bytes:,}, header and texts {texts:,}\n"
        f"took {done.seconds:.1f} s\n"
        f'run it with: onward generate "Once upon a time" --model {shlex.quote(done.output)}\n'
    )
