"""Flags that several commands share: which model, how it is loaded, and the generation options.

The generation flags are made from the table in ``onward.option_table``, so that the command line
and the Python calls cannot drift apart. Knows nothing of what the commands do with them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from onward.cli.cache_flags import add_cache_arguments, cache_options
from onward.errors import InvalidArgument
from onward.option_table import OPTIONS
from onward.option_values import Option
from onward.progress import ProgressBar

if TYPE_CHECKING:
    from onward.llm import LLM
    from onward.result import Result


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of ``add_loading_arguments`` and ``add_cache_arguments``, --draft-model, --verbose."""
    group = add_loading_arguments(parser)
    add_device_argument(group)
    add_cache_arguments(parser)
    group.add_argument(
        "--draft-model", metavar="MODEL", help="a smaller model of the same vocabulary that guesses"
    )
    group.add_argument(
        "-v", "--verbose", action="store_true", help="show the timings on stderr at the end"
    )


def add_loading_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """--model, --dtype, --head-dtype, --threads, --packed-cache, in a group that is returned."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", metavar="MODEL", help="folder, .gguf file, pack or hub id; default: SmolLM2-135M"
    )
    group.add_argument(
        "--dtype", default="auto", help="auto, f32, f16, bf16, int8 or int4; default: auto"
    )
    group.add_argument(
        "--head-dtype",
        metavar="DTYPE",
        help="of the embedding and the output head; default: as --dtype, int8 beside int4",
    )
    group.add_argument(
        "--threads", type=int, metavar="N", help="default: the processors this process may use"
    )
    group.add_argument(
        "--packed-cache",
        metavar="DIR",
        help="keep the packed weights in this folder and load them from there the next time",
    )
    return group


def add_device_argument(group: argparse._ActionsContainer) -> None:
    """--device, of commands that compute."""
    group.add_argument(
        "--device",
        default="cpu",
        metavar="NAME",
        help="cpu, cuda or cuda:1, as onward doctor lists them; default: cpu",
    )


def add_generation_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag for each row of the options table but those that take functions."""
    group = parser.add_argument_group(
        "generation", "Where a flag is absent, the model's generation_config.json decides."
    )
    for option in OPTIONS:
        if option.kind in ("callable", "callables"):
            continue  # for Python alone
        flag = "--" + option.name.replace("_", "-")
        text = option.help.replace("%", "%%")
        if option.kind == "flag":
            group.add_argument(
                flag,
                dest=option.name,
                default=None,
                action=argparse.BooleanOptionalAction,
                help=f"{text}; default: {'yes' if option.default else 'no'}",
            )
        else:
            group.add_argument(flag, dest=option.name, default=None, help=text, **_typed(option))


def _typed(option: Option) -> dict[str, Any]:
    match option.kind:
        case "texts":
            return {"action": "append", "metavar": "TEXT"}
        case "constraint":
            several = {"action": "append"} if option.name == "choices" else {}
            return {**several, "metavar": "JSON" if option.name == "json_schema" else "TEXT"}
        case "name":
            return {"choices": option.choices}
        case "early_stopping":
            return {"type": _early_stopping, "metavar": "yes|no|never"}
        case "ids" | "allowed_ids":
            return {"action": "append", "type": int, "metavar": "ID"}
        case "id_lists":
            return {"action": "append", "type": _id_list, "metavar": "ID,ID"}
        case "biases":
            return {"action": "append", "type": _bias, "metavar": "ID=X"}
        case "number":
            return {"type": float, "metavar": "X"}
        case _:
            return {"type": int, "metavar": "N"}


def _id_list(text: str) -> list[int]:
    return [int(token) for token in text.split(",")]


def _early_stopping(text: str) -> bool | str:
    return {"yes": True, "no": False}.get(text, text)


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    return int(token), float(bias)


def generation_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that were given."""
    given = {option.name: getattr(arguments, option.name, None) for option in OPTIONS}
    if given["logit_bias"] is not None:
        given["logit_bias"] = dict(given["logit_bias"])
    return {name: value for name, value in given.items() if value is not None}


def load(arguments: argparse.Namespace) -> LLM:
    """The model that the flags ask for, and the cache."""
    return load_plain(
        arguments,
        device=arguments.device,
        draft_model=arguments.draft_model,
        **cache_options(arguments),
    )


def load_plain(arguments: argparse.Namespace, **options: Any) -> LLM:
    """The model that the flags of ``add_loading_arguments`` ask for."""
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
    """The options, and a bar on stderr while a long prompt is read."""
    return {**options, "prefill_progress": ProgressBar("reading the prompt")}


def read_stdin() -> str:
    """All of stdin as text, without the newline that ends it."""
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"stdin: byte {error.start} is not UTF-8, expected text") from None


def stdin_lines() -> Iterator[str]:
    """Lines of stdin as they come, without their ends."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise InvalidArgument(
                f"stdin: line {number}, byte {error.start} is not UTF-8, expected text"
            ) from None


def show(text: str) -> None:
    """Write generated text to stdout at once; characters it cannot encode become escapes."""
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def timings_line(result: Result) -> str:
    """The timings of one result, for a person."""
    timings, usage = result.timings, result.usage
    parts = [f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"]
    if usage.cached_tokens:
        parts.append(f"{usage.cached_tokens} reused")
    if timings.time_to_first_token_s is not None:
        parts.append(f"first token after {timings.time_to_first_token_s:.3f} s")
    if timings.prefill_tokens_per_s is not None:
        parts.append(f"prefill {timings.prefill_tokens_per_s:.0f} tokens/s")
    if timings.decode_tokens_per_s is not None:
        parts.append(f"decode {timings.decode_tokens_per_s:.1f} tokens/s")
    parts.append(f"finish: {result.finish_reason}")
    return "onward: " + ", ".join(parts)
