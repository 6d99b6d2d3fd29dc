"""The types of the functions that a caller may pass as options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    LogitsProcessor: TypeAlias = Callable[
        [NDArray[np.int32], NDArray[np.float32]], NDArray[np.float32] | None
    ]
    """Gets the token ids so far (prompt, then output) and the scores (vocab_size). Changes the
    scores in place, or returns new ones."""
    StoppingCriterion: TypeAlias = Callable[[NDArray[np.int32]], bool]
    """Gets the token ids so far. Returns whether the output ends with the last of them."""
else:  # importing numpy takes long, and the command line's --help must be fast
    LogitsProcessor = StoppingCriterion = Callable[..., Any]

PrefillProgress: TypeAlias = Callable[[int, int], object]
"""Gets the number of prompt tokens that are computed or were kept, and the number of all."""
