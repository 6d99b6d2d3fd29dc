"""Calls into the `tokenizers` library whose failures become errors of this package.

A panic of the library's Rust code arrives as `PanicException`, which is a BaseException but not an
Exception, so an ordinary handler misses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onward.errors import TokenizerError
from onward.message_text import sentence

if TYPE_CHECKING:
    import tokenizers


def failure(error: BaseException, what: str) -> TokenizerError:
    """The error to raise for `error`, which the library raised. `what` says what failed.

    An interrupt, an exit and exhausted memory are raised again as they are.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
        raise error
    return TokenizerError(f"{what}: {sentence(error)}")


def decode(backend: tokenizers.Tokenizer, ids: Sequence[int], skip_special_tokens: bool) -> str:
    """Text of `ids`. TokenizerError where the decoder of tokenizer.json fails."""
    try:
        return backend.decode(ids, skip_special_tokens=skip_special_tokens)
    except BaseException as error:
        raise failure(error, "tokenizer: its decoder failed on token ids") from None


def decode_batch(
    backend: tokenizers.Tokenizer, batch: Sequence[Sequence[int]], skip_special_tokens: bool
) -> list[str]:
    """Text of each list of ids. TokenizerError where the decoder of tokenizer.json fails."""
    try:
        return backend.decode_batch(list(map(list, batch)), skip_special_tokens=skip_special_tokens)
    except BaseException as error:
        raise failure(error, "tokenizer: its decoder failed on token ids") from None
