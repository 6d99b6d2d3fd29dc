"""Flags that several commands share: the model, how to load it, and the generation options.

The generation flags are built from the table in ``onward.options.table``, so that the command line
and the Python calls have the same options.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from onward.cli import values
from onward.cli.cache_flags import add_cache_arguments, cache_options
from onward.cli.streams import read_stdin as read_stdin
from onward.cli.streams import show as show
from onward.cli.streams import stdin_lines as stdin_lines
from onward.machine.progress import ProgressBar
from onward.options.table import OPTIONS
from onward.options.values import Option

if TYPE_CHECKING:
    from onward.calls.result import Result
    from onward.llm import LLM


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``add_loading_arguments`` and ``add_cache_arguments``, --draft-model and
    --verbose."""
    group = add_loading_arguments(parser)
    add_device_argument(group)
    add_cache_arguments(parser)
    group.add_argument(
        "--draft-model",
        metavar="MODEL",
        help="a smaller model with the same vocabulary, for speculative decoding; default: none",
    )
    group.add_argument(
        "-v", "--verbose", action="store_true", help="show the timings on stderr at the end"
    )


def add_loading_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add --model, --dtype, --head-dtype, --threads and --packed-cache. Returns their group."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "-m",
        "--model",
        metavar="MODEL",
        help="folder, .gguf file, pack, or a model of the hub: user/repo, user/repo:Q4_K_M; "
        "default: SmolLM2-135M",
    )
    add_revision_argument(group)
    add_dtype_arguments(group)
    add_threads_argument(group)
    group.add_argument(
        "--packed-cache",
        metavar="DIR",
        help="save the packed weights in this folder, and load them from there next time; "
        "default: none",
    )
    return group


def add_revision_argument(group: argparse._ActionsContainer) -> None:
    """Add --revision, for models of the hub."""
    group.add_argument(
        "--revision",
        metavar="NAME",
        help="branch, tag or commit of a model of the hub, as user/repo@NAME; default: main",
    )


def add_dtype_arguments(group: argparse._ActionsContainer) -> None:
    """Add --dtype and --head-dtype, for the weights."""
    group.add_argument(
        "--dtype",
        default="auto",
        metavar="NAME",
        help="dtype of the weights: auto, f32, f16, bf16, int8 or int4; default: auto",
    )
    group.add_argument(
        "--head-dtype",
        metavar="NAME",
        help="dtype of the embedding and the output head; default: as --dtype, int8 for int4",
    )


def add_threads_argument(group: argparse._ActionsContainer) -> None:
    """Add --threads."""
    group.add_argument(
        "-t",
        "--threads",
        type=values.integer,
        metavar="N",
        help="threads that compute; default: the processors this process may use",
    )


def add_device_argument(group: argparse._ActionsContainer) -> None:
    """Add --device, for commands that compute."""
    group.add_argument(
        "--device",
        default="cpu",
        metavar="NAME",
        help="cpu, cuda or cuda:1, as onward doctor lists them; default: cpu",
    )


def add_generation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one flag for each row of the options table, except options that take functions."""
    group = parser.add_argument_group(
        "generation", "Where a flag is absent, the model's generation_config.json decides."
    )
    for option in OPTIONS:
        if option.kind in ("callable", "callables"):
            continue  # for Python only
        spellings = [*_SHORT.get(option.name, ()), "--" + option.name.replace("_", "-")]
        text = f"{option.help}; default: {default_in_words(option)}".replace("%", "%%")
        group.add_argument(*spellings, dest=option.name, default=None, help=text, **_typed(option))


_SHORT = {"max_new_tokens": ("-n",)}


def default_in_words(option: Option) -> str:
    """The default of an option, as text for the command line."""
    if option.kind == "flag" or isinstance(option.default, bool):
        return "on" if option.default else "off"
    if option.default is None or option.default in ((), {}):
        return option.absent
    if isinstance(option.default, float):
        return f"{option.default:g}"
    return str(option.default)


def _typed(option: Option) -> dict[str, Any]:
    """The arguments of argparse that read the value of an option."""
    match option.kind:
        case "flag":
            return {"action": argparse.BooleanOptionalAction}
        case "texts":
            return {"action": "append", "type": values.text, "metavar": "TEXT"}
        case "constraint":
            if option.name == "json_schema":
                return {"type": values.json_schema, "metavar": "JSON"}
            several = {"action": "append"} if option.name == "choices" else {}
            return {**several, "type": values.text, "metavar": "TEXT"}
        case "name":
            names = tuple(map(str, option.choices))
            return {"type": values.one_of(*names), "metavar": "NAME"}
        case "early_stopping":
            return {"type": _early_stopping, "metavar": "on|off|never"}
        case "ids" | "allowed_ids":
            return {
                "action": values.Extend,
                "type": values.list_of(values.integer),
                "metavar": "ID,ID",
            }
        case "id_lists":
            ids = values.list_of(values.integer)
            return {"action": "append", "type": ids, "metavar": "ID,ID"}
        case "biases":
            return {"action": values.Extend, "type": values.biases, "metavar": "ID=BIAS"}
        case "number":
            return {"type": values.number, "metavar": "X"}
        case _:
            return {"type": values.integer, "metavar": "N"}


def _early_stopping(text: str) -> bool | str:
    named = values.one_of("on", "off", "never")(text)
    return named if named == "never" else named == "on"


def generation_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options given on the command line."""
    given = {option.name: getattr(arguments, option.name, None) for option in OPTIONS}
    if given["logit_bias"] is not None:
        given["logit_bias"] = dict(given["logit_bias"])
    return {name: value for name, value in given.items() if value is not None}


def load(arguments: argparse.Namespace) -> LLM:
    """Load the model of the flags, with the settings of the cache."""
    return load_plain(
        arguments,
        device=arguments.device,
        draft_model=arguments.draft_model,
        **cache_options(arguments),
    )


def load_plain(arguments: argparse.Namespace, **options: Any) -> LLM:
    """Load the model of the flags of ``add_loading_arguments``."""
    from onward.llm import LLM

    return LLM(
        arguments.model,
        dtype=arguments.dtype,
        head_dtype=arguments.head_dtype,
        threads=arguments.threads,
        packed_cache=arguments.packed_cache,
        **options,
    )


def with_prefill_bar(options: dict[str, Any]) -> dict[str, Any]:
    """The options, and a progress bar on stderr during a long prompt."""
    return {**options, "prefill_progress": ProgressBar("reading the prompt")}


def timings_line(result: Result) -> str:
    """The figures of one result as text."""
    return f"onward: {result.figures}"
