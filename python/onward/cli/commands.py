"""Lists the subcommands of ``onward``, builds their parser, and runs one of them.

A command is a module of this package. Its docstring begins with "onward NAME: what it does". It has
``add_arguments(parser)``, and ``run(arguments)``, which returns the exit code. Its ``EXAMPLES`` and
``EXIT_CODES``, if present, are shown at the end of its help.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from onward.cli import (
    bench,
    chat,
    compare,
    detokenize,
    doctor,
    generate,
    kv,
    list_,
    pack,
    pull,
    quantize,
    rm,
    streams,
    tokenize,
)
from onward.cli.parsing import Parser, no_such_command, usage
from onward.errors import InvalidArgument
from onward.machine import native_files

COMMANDS = (
    *(generate, chat, tokenize, detokenize, pull, list_, rm, doctor, bench),
    *(quantize, pack, kv, compare),
)

_EXIT_CODES = (
    "exit codes: 0 done, 1 model or engine failed, 2 wrong usage, 130 interrupted by Ctrl-C, "
    "143 and 129 ended by SIGTERM and SIGHUP"
)
_PLACES = {
    "include": ("C and C++ headers", "get_include"),
    "lib": ("library", "get_lib_dir"),
    "cmake": ("CMake package", "get_cmake_dir"),
}


def name(command: ModuleType) -> str:
    """The name of a command."""
    return command.__name__.rpartition(".")[2].removesuffix("_")


def summary(command: ModuleType) -> str:
    """The one-line description of a command."""
    return (command.__doc__ or "").partition("\n")[0].partition(": ")[2]


def parser() -> Parser:
    """The parser of the whole command line."""
    top = Parser(
        prog="onward",
        description="Text generation with nothing hidden.",
        epilog=f"onward help COMMAND shows the flags of a command, with examples\n{_EXIT_CODES}",
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    for flag, (what, _) in _PLACES.items():
        top.add_argument(
            f"--{flag}-dir", action="store_true", help=f"print the folder of the {what} and exit"
        )
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        examples = getattr(command, "EXAMPLES", "")
        codes = getattr(command, "EXIT_CODES", _EXIT_CODES)
        sub = commands.add_parser(
            name(command),
            help=summary(command),
            description=summary(command),
            epilog=f"examples:\n{examples}\n{codes}" if examples else codes,
        )
        command.add_arguments(sub)
        sub.usage = usage(sub)
        sub.set_defaults(run=command.run)
    return top


def run(words: Sequence[str]) -> int:
    """Run a command line; returns the exit code. SystemExit ends it for --help and wrong usage."""
    words = list(words)
    names = [name(command) for command in COMMANDS]
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words and not words[0].startswith("-") and words[0] not in names:
        raise InvalidArgument(no_such_command(words[0], [*names, "help"]))
    top = parser()
    if "--help" in words or "-h" in words:
        streams.check_stdout()
    arguments = top.parse_command(words)
    places = [place for flag, (_, place) in _PLACES.items() if getattr(arguments, f"{flag}_dir")]
    if arguments.version:
        import onward

        streams.show(f"onward {onward.__version__}\n")
    for place in places:
        streams.show(f"{getattr(native_files, place)()}\n")
    if arguments.version or places:
        return 0
    if arguments.command is None:
        raise InvalidArgument(
            f"no command, expected {', '.join(names[:-1])} or {names[-1]}; onward --help "
            "describes them"
        )
    if getattr(arguments, "output", None) is None:
        streams.check_stdout()
    if getattr(arguments, "revision", None) is not None:
        from onward.load.hub import named

        arguments.model = named(arguments.model, arguments.revision)
    return int(arguments.run(arguments))
