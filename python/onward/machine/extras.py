"""The packages that optional features need, and the command that installs them.

The command names the packages themselves and the pip of this Python, so it works the same for a
checkout, for a wheel that was built here, and for one from an index.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys

EXTRAS = {
    "hub": ("huggingface_hub>=0.24",),
    "grammar": ("llguidance>=1.9",),
    "quantize": ("gguf>=0.10",),
    "chat": ("prompt_toolkit>=3.0", "rich>=13"),
}
"""Requirements of each extra, as pyproject.toml states them."""


def install_command(extra: str) -> str:
    """The command for a shell that installs what an extra needs."""
    return pip_install(*EXTRAS[extra])


def pip_install(*arguments: str) -> str:
    """``pip install ...`` for this Python, quoted for a shell.

    Plain ``pip`` where that is this Python's; else the path of this Python, as after ``make demo``,
    where the virtual environment is not active.
    """
    pip = shutil.which("pip")
    ours = pip is not None and os.path.dirname(pip) == os.path.dirname(sys.executable)
    command = ["pip"] if ours else [sys.executable, "-m", "pip"]
    return shlex.join([*command, "install", *arguments])
