"""onward list: show the models on this machine: the default model and the hub's cache."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time

from onward.cli import flags
from onward.errors import MissingExtra
from onward.lab.report.tables import aligned
from onward.load.hub import DEFAULT_WHEEL
from onward.load.hub.cache import CachedModel, cached_models
from onward.load.hub.fetching import readable_bytes
from onward.load.hub.local import wheel_gguf
from onward.load.hub.selection import tag_of

EXAMPLES = """\
  onward list
  onward list --json
"""
_HEADER = ("model", "revision", "format", "size", "last used")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON array of objects")


def run(arguments: argparse.Namespace) -> int:
    missing = None
    try:
        cached = cached_models()
    except MissingExtra as error:
        cached, missing = [], error
    models = [*_default(), *cached]
    if arguments.json:
        flags.show(json.dumps([dataclasses.asdict(model) for model in models]) + "\n")
        return 0
    flags.show(readable(models))
    if missing is not None:
        flags.show(f"\n{missing}\n")
    return 0


def readable(models: list[CachedModel]) -> str:
    """A table of the models, and the command that downloads another model."""
    lines = aligned([_HEADER, *map(_row, models)], left=_HEADER)
    if not models:
        lines = ["no models on this machine"]
    return "\n".join([*lines, "", "Get one: onward pull user/repo or user/repo:Q4_K_M", ""])


def _row(model: CachedModel) -> tuple[str, ...]:
    used = time.strftime("%Y-%m-%d", time.localtime(model.last_used))
    return (model.name, model.revision, model.format, readable_bytes(model.size_bytes), used)


def _default() -> list[CachedModel]:
    """The model of the wheel, which is the default model."""
    path = wheel_gguf()
    if path is None:
        return []
    facts = path.stat()
    return [
        CachedModel(
            name="(default)",
            revision=f"package {DEFAULT_WHEEL}",
            format=f"GGUF {tag_of(path.stem)}",
            size_bytes=facts.st_size,
            last_used=facts.st_atime,
            path=str(path),
        )
    ]
