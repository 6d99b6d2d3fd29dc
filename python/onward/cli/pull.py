"""onward pull: download a model from the hub into its cache."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from onward.cli import flags
from onward.errors import InvalidArgument
from onward.load.hub import names
from onward.message_text import label

EXAMPLES = """\
  onward pull HuggingFaceTB/SmolLM2-135M-Instruct
  onward pull user/repo:Q4_K_M
  onward pull user/repo:Q4_K_M@main
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="user/repo, with :TAG for a GGUF file of it (user/repo:Q4_K_M) and @revision",
    )
    flags.add_revision_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    from onward.load.hub.fetching import fetch, readable_bytes

    name = names.parse(arguments.model)
    if name is None:
        raise InvalidArgument(f"pull: {label(arguments.model)}: expected {names.SPELLING}")
    found = fetch(name)
    size = size_of(found.path)
    if arguments.json:
        facts = {"name": found.name, "path": str(found.path), "kind": found.kind}
        flags.show(json.dumps({**facts, "size_bytes": size}) + "\n")
        return 0
    flags.show(
        f"{found.name}: {readable_bytes(size)} in {found.path}\n"
        f'Next: onward chat -m {shlex.quote(found.name)} "What is gravity?"\n'
    )
    return 0


def size_of(path: Path) -> int:
    """The bytes of a model's files, with all parts of a GGUF file."""
    from onward.load.hub.selection import gguf_files

    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    beside = [file.name for file in path.parent.iterdir()]
    parts = next(parts for parts in gguf_files(beside).values() if path.name in parts)
    return sum((path.parent / part).stat().st_size for part in parts)
