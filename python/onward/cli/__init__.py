"""The ``onward`` command: generate, chat, tokenize, detokenize, doctor, bench, quantize, pack, kv,
compare.

Data goes to stdout; progress, timings and errors to stderr. Exit codes: 0 done, 1 the model or the
engine failed, 2 the command line or an option is wrong, 130 interrupted by Ctrl-C, others where a
command says so. A reader of our output that goes away (``| head``) ends the command quietly, with
0. This file knows which commands there are and how errors become exit codes, and nothing of what
the commands do.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import TextIO

from onward import native_files
from onward.cli import (
    bench,
    chat,
    compare,
    detokenize,
    doctor,
    generate,
    kv,
    pack,
    quantize,
    tokenize,
)
from onward.errors import ArgumentTypeError, Error, InvalidArgument

COMMANDS = (generate, chat, tokenize, detokenize, doctor, bench, quantize, pack, kv, compare)
DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

EPILOG = "exit codes: 0 done, 1 model or engine failed, 2 wrong usage, 130 interrupted"

_PLACES = {
    "include": ("C and C++ headers", "get_include"),
    "lib": ("library", "get_lib_dir"),
    "cmake": ("CMake package", "get_cmake_dir"),
}


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="onward", description="Text generation with nothing hidden.", epilog=EPILOG
    )
    top.add_argument("--version", action="store_true", help="print the version and leave")
    for flag, (what, _) in _PLACES.items():
        top.add_argument(
            f"--{flag}-dir", action="store_true", help=f"print the folder of the {what} and leave"
        )
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        name = _name(command)
        summary = (command.__doc__ or "").partition("\n")[0].partition(": ")[2]
        sub = commands.add_parser(name, help=summary, description=summary, epilog=EPILOG)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = parser().parse_args(argv)
    places = [place for flag, (_, place) in _PLACES.items() if getattr(arguments, f"{flag}_dir")]
    if not arguments.version and not places and arguments.command is None:
        parser().print_usage(sys.stderr)
        names = [_name(command) for command in COMMANDS]
        return _complain(f"no command, expected {', '.join(names[:-1])} or {names[-1]}", USAGE)
    try:
        if arguments.version:
            import onward

            print(f"onward {onward.__version__}")
        for place in places:
            print(getattr(native_files, place)())
        if arguments.version or places:
            return DONE
        with warnings.catch_warnings():
            warnings.showwarning = _note
            code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # What Python still flushes at exit must go somewhere that does not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except (InvalidArgument, ArgumentTypeError) as error:
        return _complain(str(error), USAGE)
    except Error as error:
        return _complain(str(error), FAILED)
    except MemoryError:
        return _complain("out of memory", FAILED)


def _name(command: ModuleType) -> str:
    return command.__name__.rpartition(".")[2]


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning as a line of ours, without the source that a library's user would look for."""
    _complain(f"note: {message}", DONE)


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split())
    print(f"onward: {line}", file=sys.stderr)
    return code
