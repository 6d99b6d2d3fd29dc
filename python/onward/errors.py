"""All errors that onward raises deliberately.

Messages have the form ``where: what is wrong, found, expected``. A mistake of the caller is also a
``ValueError`` or ``TypeError``, so that ordinary handlers catch it. The C++ core raises these same
classes: its bindings look them up here by name.
"""

from __future__ import annotations


class Error(Exception):
    """Base class of all errors of this package."""


class InvalidArgument(Error, ValueError):
    """A value passed by the caller cannot be used: out of range, empty, contradictory."""


class NotCached(InvalidArgument):
    """The cache cannot hold these tokens: its budget is too small, it keeps no prefixes, or some
    of their blocks are absent."""


class ArgumentTypeError(Error, TypeError):
    """An argument is unknown or has the wrong type."""


class ModelNotFound(Error, FileNotFoundError):
    """No model has this name: no folder, no file, and no model of the hub that can be reached."""


class LoadError(Error, ValueError):
    """A model's files are incomplete, malformed, hostile or of an unsupported kind."""


class ConfigError(LoadError):
    """config.json, generation_config.json or GGUF metadata cannot be used."""


class WeightError(LoadError):
    """A tensor or the file that should hold it is missing, has a wrong shape or an unknown
    dtype."""


class PackError(LoadError):
    """A file is not a pack, is damaged, or has another layout."""


class IoError(Error, OSError):
    """A file cannot be opened, read or written."""


class TokenizerError(LoadError):
    """The tokenizer's files are missing or cannot be used."""


class TemplateError(Error, ValueError):
    """The chat template is absent, failed, or exceeded its limits of time and memory."""


class SessionError(Error, ValueError):
    """The file of a session cannot be written or read, or belongs to another model or other
    settings."""


class NumericsError(Error, ArithmeticError):
    """The arithmetic of the model gave NaN or infinity in the logits."""


class DeviceError(Error, RuntimeError):
    """A device does not exist, cannot be used, or failed in a call."""


class MissingExtra(Error, ImportError):
    """An optional dependency is needed; the message gives the command that installs it."""


class NativeFilesNotFound(Error, FileNotFoundError):
    """The headers, the library or the CMake package of this installation are missing."""


class ClosedError(Error, RuntimeError):
    """The LLM is closed; its engine no longer exists."""


def not_copied(name: str, instead: str) -> ArgumentTypeError:
    """The error for pickling an object that belongs to the engine of its process."""
    return ArgumentTypeError(
        f"{name}: belongs to the engine of this process and cannot be copied, pickled or sent to "
        f"another process; for worker processes, {instead}"
    )
