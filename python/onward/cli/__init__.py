"""The ``onward`` command: which subcommands there are, and how their errors become exit codes.

Data goes to stdout; progress, timings and errors to stderr. Exit codes: 0 done, 1 the model or the
engine failed, 2 the command line or an option is wrong, 130 interrupted by Ctrl-C, 143 and 129
ended by SIGTERM and SIGHUP, others where a command says so. A reader of our output that goes away
(``| head``) ends the command quietly, with 0.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from onward.cli import streams
from onward.errors import ArgumentTypeError, Error, InvalidArgument
from onward.message_text import sentence

if TYPE_CHECKING:
    from onward.cli.parsing import Parser

DONE, FAILED, USAGE = 0, 1, 2
TRACEBACK = "ONWARD_TRACEBACK"
"""Set to 1: an error that should not be shows where it comes from."""


def parser() -> Parser:
    """The whole command line."""
    from onward.cli.commands import parser

    return parser()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.

    Without ``argv`` the command is the process: it reads ``sys.argv``, catches signals, and makes
    closed and full streams harmless.
    """
    if argv is not None:
        return _run(argv)
    try:
        streams.catch_signals()
        streams.open_streams()
        code = _run(sys.argv[1:])
    except SystemExit as ended:  # a signal beside the command's own work
        code = ended.code if isinstance(ended.code, int) else DONE
    except KeyboardInterrupt:
        code = streams.INTERRUPTED
    streams.ignore_signals()
    return streams.finish(code, lambda message: _complain(message, FAILED))


def _run(words: Sequence[str]) -> int:
    """The exit code of a command line."""
    try:
        from onward.cli import commands

        with warnings.catch_warnings():
            warnings.showwarning = _note
            code = commands.run(words)
        sys.stdout.flush()
        return code
    except SystemExit as ended:  # of --help, wrong usage and a signal
        return ended.code if isinstance(ended.code, int) else DONE
    except BrokenPipeError:
        # What Python still flushes at exit must go somewhere that does not complain.
        streams.discard(sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return streams.INTERRUPTED
    except streams.StreamError as error:
        return _complain(str(error), FAILED)
    except (InvalidArgument, ArgumentTypeError) as error:
        return _complain(str(error), USAGE)
    except Error as error:
        return _complain(str(error), FAILED)
    except MemoryError:
        return _complain("out of memory", FAILED)
    except OSError as error:
        if os.environ.get(TRACEBACK):
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        return _complain(f"{where}{error.strerror or error}", FAILED)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        said = f"{type(error).__name__}: {sentence(error)}"
        return _complain(
            f"unexpected error: {said}; {TRACEBACK}=1 shows where, please report it", FAILED
        )


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
