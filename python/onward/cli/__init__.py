"""The ``onward`` command: runs a subcommand and turns its errors into exit codes.

Data goes to stdout; progress, timings and errors to stderr. Exit codes: 0 done, 1 the model or the
engine failed, 2 the command line or an option is wrong, 130 interrupted by Ctrl-C, 143 and 129
ended by SIGTERM and SIGHUP, others as the help of a command lists them. If the reader of the output
ends early (``| head``), the command ends quietly with 0.
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
"""If this variable is 1, an unexpected error prints its traceback."""


def parser() -> Parser:
    """Run the whole command line."""
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
    except SystemExit as ended:  # a signal outside the command's own work
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
    except SystemExit as ended:  # from --help, wrong usage and a signal
        return ended.code if isinstance(ended.code, int) else DONE
    except BrokenPipeError:
        # Python flushes the streams at exit. The null device takes that text without an error.
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
            f"unexpected error: {said}; please report it, with the traceback that {TRACEBACK}=1 "
            "prints",
            FAILED,
        )


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one line, without the source line that only users of a library need."""
    _complain(f"note: {message}", DONE)


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split())
    print(f"onward: {line}", file=sys.stderr)
    return code
