"""onward rm: remove a model from the hub's cache."""

from __future__ import annotations

import argparse
import json
import sys

from onward.cli import flags
from onward.errors import InvalidArgument
from onward.load.hub import names
from onward.message_text import label

EXAMPLES = """\
  onward rm user/repo
  onward rm user/repo:Q4_K_M
  onward rm user/repo@main -y
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a name from onward list: user/repo with all its revisions and files, user/repo:TAG "
        "for one GGUF file, or user/repo@revision",
    )
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask; required if stdin is not a terminal"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    from onward.load.hub.cache import removal
    from onward.load.hub.fetching import readable_bytes

    name = names.parse(arguments.model)
    if name is None:
        raise InvalidArgument(f"rm: {label(arguments.model)}: expected {names.SPELLING}")
    found = removal(name)
    if not arguments.yes:
        if not sys.stdin.isatty():
            raise InvalidArgument(
                "rm: stdin is not a terminal, so no question can be asked, expected -y"
            )
        print(f"remove {', '.join(found.names)}", file=sys.stderr)
        print(
            f"frees {readable_bytes(found.freed_bytes)}; remove? [y/N] ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            flags.show("nothing removed\n")
            return 0
    found.execute()
    if arguments.json:
        facts = {"removed": list(found.names), "freed_bytes": found.freed_bytes}
        flags.show(json.dumps(facts) + "\n")
    else:
        flags.show(f"removed {', '.join(found.names)}: {readable_bytes(found.freed_bytes)} freed\n")
    return 0
