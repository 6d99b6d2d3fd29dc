"""Measures the KV cache: reuse of prefixes, many sequences in little memory, codecs at depth.

    python benchmarks/kv_cache.py prefix    # time to the first token, without and with a kept
    prefix python benchmarks/kv_cache.py chats     # a thousand chats with one system prompt in 200
    MiB python benchmarks/kv_cache.py depth     # a step of decode by depth and kv dtype python
    benchmarks/kv_cache.py crowd     # sequences that fit exactly into their predicted bytes python
    benchmarks/kv_cache.py reading   # a chunk of a prompt, by depth and kv dtype

Each subcommand is a file in kv_runs/, which explains the measurement. Tables go to stdout (-o text,
md, json), progress goes to stderr.
"""

from __future__ import annotations

import argparse
import sys

from kv_runs import chats, crowd, depth, prefix, reading

RUNS = {"prefix": prefix, "chats": chats, "crowd": crowd, "depth": depth, "reading": reading}


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = top.add_subparsers(dest="command", required=True)
    for name, module in RUNS.items():
        command = commands.add_parser(name, help=(module.__doc__ or "").splitlines()[0])
        module.add_arguments(command)
        command.add_argument("-o", "--output", default="text", choices=["text", "md", "json"])
        command.add_argument("--json", action="store_const", dest="output", const="json")
    return top


def main() -> int:
    arguments = parser().parse_args()
    code: int = RUNS[arguments.command].run(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
