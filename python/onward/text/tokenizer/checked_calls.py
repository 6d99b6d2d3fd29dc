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

    from onward.text.tokenizer.trial import TextTrial

DECODER_FAILED = "tokenizer: its decoder failed on token ids"


def failure(error: BaseException, what: str) -> TokenizerError:
    """The error to raise for `error`, which the library raised. `what` says what failed.

    An interrupt, an exit and exhausted memory are raised again as they are.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)):
        raise error
    return TokenizerError(f"{what}: {sentence(error)}")


def encode(backend: tokenizers.Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    """Ids of `text`. TokenizerError where the tokenizer fails."""
    try:
        return list(backend.encode(text, add_special_tokens=add_special_tokens).ids)
    except BaseException as error:
        raise failure(error, "tokenizer: it failed on a text") from None


def decode(
    backend: tokenizers.Tokenizer,
    ids: Sequence[int],
    skip_special_tokens: bool,
    trial: TextTrial | None,
) -> str:
    """Text of `ids`, which `trial` tries first. TokenizerError where the decoder fails."""
    return decode_batch(backend, [ids], skip_special_tokens, trial)[0]


def decode_batch(
    backend: tokenizers.Tokenizer,
    batch: Sequence[Sequence[int]],
    skip_special_tokens: bool,
    trial: TextTrial | None,
) -> list[str]:
    """Text of each list of ids, as `decode` gives it."""
    if trial is not None:
        trial.decode(backend, batch, skip_special_tokens)
    try:
        if len(batch) == 1:
            return [backend.decode(batch[0], skip_special_tokens=skip_special_tokens)]
        return backend.decode_batch(list(map(list, batch)), skip_special_tokens=skip_special_tokens)
    except BaseException as error:
        raise failure(error, DECODER_FAILED) from None
