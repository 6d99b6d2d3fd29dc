"""The packages that optional features need, and the command that installs them.

The command names the packages themselves and the pip of this Python. So it is right for a checkout,
for a wheel that was built here, and for a wheel from an index.
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
    """The shell command that installs the packages of an extra."""
    return pip_install(*EXTRAS[extra])


def pip_install(*arguments: str) -> str:
    """``pip install ...`` for this Python, quoted for a shell.

    Plain ``pip`` if that belongs to this Python. Otherwise ``PATH_OF_PYTHON -m pip``, for example
    after ``make demo``, when the virtual environment is not active.
    """
    pip = shutil.which("pip")
    ours = pip is not None and os.path.dirname(pip) == os.path.dirname(sys.executable)
    command = ["pip"] if ours else [sys.executable, "-m", "pip"]
    return shlex.join([*command, "install", *arguments])
