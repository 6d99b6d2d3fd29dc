"""A model with the same logits after every token, and rules for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closed_form import write_pieces_tokenizer, write_table

ROW = np.array([0.0, 3.0, -100.0, 2.0, 1.0, -1.0, -2.0, -3.0], np.float32)
"""The logits after every token: 1 is the most likely, then 3, 4, 0; 2 is the end token."""


def write_row(folder: Path) -> Path:
    """The model has hidden size 16, so that the logits equal ROW to the last bit. The pieces are a
    to h."""
    write_table(folder, np.tile(ROW, (8, 1)), hidden_size=16)
    write_pieces_tokenizer(folder, ["a", "b", "</s>", "d", "e", "f", "g", "h"])
    return folder


def at_rest(llm: Any) -> bool:
    """Assert that no request runs and the cache is empty."""
    stats = llm.stats()
    return bool(stats["running"] == stats["cache_blocks_in_use"] == 0)


def only(*tokens: int) -> Callable[..., None]:
    """Ban all tokens except these, in place."""

    def change(token_ids: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        banned = np.ones(len(scores), bool)
        banned[list(tokens)] = False
        scores[banned] = -np.inf

    return change


def nothing(token_ids: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
    """Changes nothing."""
