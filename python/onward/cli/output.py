"""Writes the data of a command to ``-o FILE`` or stdout, in the format of ``--format``.

A file is written completely or not at all.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from onward.cli import streams, values
from onward.errors import InvalidArgument
from onward.message_text import label


def add_output_arguments(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """Add -o, --json, and --format with these formats. The first one is the default."""
    group = parser.add_argument_group("output")
    add_output_file(group)
    group.add_argument(
        "--format",
        type=values.one_of(*formats),
        default=formats[0],
        metavar="NAME",
        help=f"{', '.join(formats)}; default: {formats[0]}",
    )
    group.add_argument(
        "--json",
        action="store_const",
        dest="format",
        const="json",
        help="the same as --format json",
    )


def add_output_file(group: argparse._ActionsContainer) -> None:
    """Add -o FILE."""
    group.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file; default: standard output"
    )


def check(path: str | None) -> None:
    """Raise InvalidArgument if the file cannot be written, before the work begins."""
    if path is None:
        return
    target = Path(path).expanduser()
    if target.is_dir():
        raise InvalidArgument(f"output: {label(path)} is a folder, expected a file")
    if not target.parent.is_dir():
        raise InvalidArgument(f"output: {label(path)}: there is no such folder")


def check_new(path: str) -> None:
    """Raise InvalidArgument if an existing file of results would be overwritten."""
    target = Path(path).expanduser()
    if target.is_file() and target.stat().st_size:
        raise InvalidArgument(
            f"output: {label(path)} exists, expected a new name, or --resume to continue it"
        )


def write(path: str | None, text: str) -> None:
    """Write the text to the file, or to stdout."""
    if path is None:
        return streams.show(text)
    from onward.files.whole_files import whole_file

    try:
        with whole_file(Path(path).expanduser()) as part:
            part.file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as failure:
        raise streams.cannot_write(label(path), failure) from failure
