"""Makes models of a published shape with random weights, one for each kv dtype, and defines their
flags.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from kv_runs.printing import say
from onward import _core
from onward.lab.bench.subject import Subject
from onward.lab.bench.synthetic import random_model, synthetic_dtypes, synthetic_spec
from onward.lab.counts.policy import Policy
from onward.options.kv_dtypes import parse_kv_dtype


def add_subject_arguments(
    parser: argparse.ArgumentParser, kv_dtypes: Sequence[str], synthetic: str = "llama-3.2-1b"
) -> None:
    parser.add_argument("--synthetic", default=synthetic)
    parser.add_argument("--dtype", default="int4")
    parser.add_argument("--threads", type=int, default=_core.default_threads())
    parser.add_argument(
        "--kv-dtype",
        nargs="+",
        default=list(kv_dtypes),
        help="the others are compared with the first one; default: %(default)s",
    )
    parser.add_argument("--kv-window-tokens", type=int, default=Policy.window_tokens)


def make_subjects(arguments: argparse.Namespace) -> list[Subject]:
    """Make one subject for each kv dtype. Subjects that differ only in codes share one model."""
    spec = synthetic_spec(arguments.synthetic)
    dtypes = synthetic_dtypes(spec, arguments.dtype)
    policy = Policy(arguments.kv_window_tokens)
    models: dict[str, _core.Model] = {}
    subjects = []
    for name in arguments.kv_dtype:
        kv = parse_kv_dtype(name, dtypes.cache)
        own = replace(dtypes, cache=kv.exact)
        if kv.exact not in models:
            say(f"making {arguments.synthetic} with a cache of {kv.exact}")
            models[kv.exact] = random_model(spec, own, arguments.threads)
        core = models[kv.exact]
        subjects.append(Subject(kv.name, core, spec, own, arguments.threads, kv, policy))
    return subjects
