"""The tokens for calibration: the package's text and topics of Python's help, or the caller's
text, cut into sequences."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onward.errors import InvalidArgument
from onward.text.tokenizer.tokenizer import Tokenizer

SEQUENCE_TOKENS = 512
LEAST_TOKENS = 128
TOPIC_STEP, TOPIC_CHARACTERS = 2, 2500
"""Every second topic of Python's help is used; of each, this many characters from its beginning."""
TEXT_LIMIT_BYTES = 64 << 20


def default_text() -> str:
    """The default text, about 20,000 tokens: prose, letters, answers, code and tables in
    calibration.txt, written for this purpose, and a part of what Python's ``help("topics")``
    explains."""
    from pydoc_data.topics import topics

    texts = [Path(__file__).with_name("calibration.txt").read_text("utf-8")]
    texts += [topics[name][:TOPIC_CHARACTERS] for name in sorted(topics)[::TOPIC_STEP]]
    return "\n\n".join(texts)


def text_of(path: str | os.PathLike[str] | None) -> str:
    """The whole of a UTF-8 text file; None gives the default text."""
    if path is None:
        return default_text()
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > TEXT_LIMIT_BYTES:
            raise InvalidArgument(
                f"calibration: {path} has {size} bytes, expected at most {TEXT_LIMIT_BYTES}"
            )
        return path.read_text("utf-8")
    except UnicodeDecodeError as failure:
        raise InvalidArgument(
            f"calibration: {path}: byte {failure.start} is not UTF-8, expected text"
        ) from None
    except OSError as failure:
        raise InvalidArgument(f"calibration: cannot read {path}: {failure.strerror}") from failure


def sequences(tokenizer: Tokenizer, text: str, tokens: int, max_context: int) -> NDArray[np.int32]:
    """Token ids (sequences, length), about ``tokens`` in all, taken at equal distances from the
    text. A short text gives fewer.

    Raises:
        InvalidArgument: the text has too few tokens for one sequence.
    """
    ids = np.array(tokenizer.encode(text), np.int32)
    if len(ids) < LEAST_TOKENS:
        raise InvalidArgument(
            f"calibration: the text has {len(ids)} tokens, expected at least {LEAST_TOKENS}"
        )
    length = min(SEQUENCE_TOKENS, len(ids), max_context, tokens)
    count = max(1, min(tokens, len(ids)) // length)
    starts = np.linspace(0, len(ids) - length, count).astype(np.int64)
    chosen: NDArray[np.int32] = ids[starts[:, None] + np.arange(length)]
    return chosen
