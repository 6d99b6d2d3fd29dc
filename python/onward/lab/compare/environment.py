"""Reads the facts about a loaded model and its machine that may explain a difference."""

from __future__ import annotations

import functools
import hashlib
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from onward import _core
from onward.lab.compare.side import Description
from onward.lab.counts.costs import parameters
from onward.machine.memory import processor_name

if TYPE_CHECKING:
    from onward.lab.compare.setting import Setting
    from onward.llm import LLM


@functools.cache
def _core_digest() -> str:
    """A digest of the extension module and of the libraries installed beside it."""
    module = Path(_core.__file__)
    libraries = {path.resolve() for path in (module.parent / "lib").glob("*onward*")}
    digest = hashlib.sha256()
    for path in (module, *sorted(path for path in libraries if path.is_file())):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def describe(llm: LLM, setting: Setting) -> Description:
    """The description of one side."""
    return Description(
        setting=setting.text,
        onward=_core.__version__,
        build=_core.build,
        core=_core_digest(),
        python=platform.python_version(),
        system=platform.platform(),
        processor=processor_name() or platform.machine(),
        device=llm.device,
        isa=_core.kernels.selected(),
        threads=llm.threads,
        model=llm.name,
        fingerprint=llm.fingerprint[:12],
        dtype=llm.dtype,
        weight_dtypes=tuple(sorted(set(llm.weight_dtypes.matrices.values()))),
        kv_dtype=llm.kv_dtype,
        cache=setting.cache,
        vocab_size=llm.spec.vocab_size,
        context=llm.context,
        parameters=parameters(llm.spec),
    )
