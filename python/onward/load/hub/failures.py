"""What a failure of the hub's client means, and what to do about it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from onward.errors import Error, IoError, ModelNotFound
from onward.load.hub.names import HubName
from onward.message_text import label, sentence

LOG_IN = "log in with: hf auth login (or set HF_TOKEN)"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_UNREACHABLE = ("ConnectError", "ConnectionError", "TimeoutException", "ProxyError", "NetworkError")


def explained(name: HubName, failure: Exception, cached: str = "it is not in the cache") -> Error:
    """The error to raise: where, what is wrong, what to do. ``cached`` says what is in the
    cache."""
    if (system := _system_failure(failure)) is not None:
        return system
    return ModelNotFound(f"{name}: {_reason(name, failure, cached)}")


def is_offline(failure: BaseException) -> bool:
    """Whether the client may not use the network."""
    return _is(failure, "OfflineModeIsEnabled")


def is_unreachable(failure: BaseException) -> bool:
    """Whether the hub did not answer."""
    return _status(failure) is None and _is(failure, *_UNREACHABLE)


def is_unknown_revision(failure: BaseException) -> bool:
    """Whether the repository exists, but not the revision."""
    return _is(failure, "RevisionNotFoundError")


def endpoint() -> str:
    """The address of the hub that the client uses."""
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def _reason(name: HubName, failure: Exception, cached: str) -> str:
    status = _status(failure)
    page = f"{endpoint()}/{name.repo}"
    if is_offline(failure):
        return f"{cached}, and HF_HUB_OFFLINE keeps it from being fetched; unset HF_HUB_OFFLINE"
    if is_unknown_revision(failure):
        return f"the repository has no revision {label(name.revision or 'main')}, see {page}"
    if _is(failure, "GatedRepoError"):
        then = "wait for access" if _has_token() else LOG_IN
        return f"is gated: ask for access at {page}, then {then}"
    if _is(failure, "DisabledRepoError"):
        return f"is disabled on the hub, see {page}"
    if status == 401 and _has_token():
        return f"there is no such model, or the hub refused your token (401); {LOG_IN} again"
    if status in (401, 404):
        return f"the hub has no such model, or it is private; check the name, or {LOG_IN}"
    if status == 403:
        return f"the hub refused access (403), see {page}, or {LOG_IN}"
    if status == 429:
        return f"the hub refuses more requests for now (429); wait some minutes, or {LOG_IN}"
    if status is not None and status >= 500:
        return f"the hub failed ({status}), and {cached}; try again later"
    if _is(failure, "HFValidationError"):
        return f"is not a name that the hub allows: {sentence(failure)}"
    if is_unreachable(failure):
        return (
            f"the hub at {endpoint()} cannot be reached ({sentence(_root(failure))}), and "
            f"{cached}; "
            "check the network, or pass the path of a model folder or a .gguf file"
        )
    return f"cannot be fetched ({type(failure).__name__}: {sentence(failure)}), and {cached}"


def _system_failure(failure: BaseException) -> IoError | None:
    """The error, if the file system failed and not the hub."""
    for error in _chain(failure):
        if type(error).__module__ != "builtins" or not isinstance(error, OSError):
            continue
        where = error.filename or cache_folder()
        if error.errno in _FULL:
            return IoError(
                f"{where}: the disk is full; free some with onward list and onward rm, or set "
                "HF_HOME to another disk"
            )
        if error.errno and error.filename is not None:
            return IoError(
                f"{where}: {os.strerror(error.errno)}; expected a cache that can be written, set "
                "HF_HOME"
            )
    return None


def cache_folder() -> str:
    """The folder of the hub's cache."""
    from huggingface_hub import constants

    return str(constants.HF_HUB_CACHE)


def _has_token() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


def _chain(failure: BaseException) -> Iterator[BaseException]:
    error: BaseException | None = failure
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _is(failure: BaseException, *names: str) -> bool:
    """Whether the failure, or its cause, has one of these types. They are compared by name,
    because they moved between versions of the client and of its HTTP library."""
    return any(base.__name__ in names for error in _chain(failure) for base in type(error).__mro__)


def _status(failure: BaseException) -> int | None:
    for error in _chain(failure):
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
    return None


def _root(failure: BaseException) -> BaseException:
    return list(_chain(failure))[-1]
