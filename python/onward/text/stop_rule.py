"""Decides whether a stop string ends an output of a beam search, whose hypotheses fork."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onward.text.streaming import TextStream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class StopRule:
    """Follows the texts of the outputs in question. Each text continues the text of an earlier
    output."""

    def __init__(self, start: TextStream, prompt_tokens: int) -> None:
        """``start``: the text stream of an empty output, with its stop strings."""
        self._start = start
        self._prompt_tokens = prompt_tokens
        # Only the two newest lengths are kept: all outputs of a beam search grow together.
        self._streams: dict[bytes, TextStream] = {}
        self._parents: dict[bytes, TextStream] = {}
        self._length = 0

    def ends(self, token_ids: NDArray[np.int32]) -> bool:
        """Whether the last token completes a stop string, or one was complete before."""
        output = token_ids[self._prompt_tokens :]
        if len(output) != self._length:
            self._parents, self._streams = self._streams, {}
            self._length = len(output)
        key = output.tobytes()
        stream = self._streams.get(key)
        if stream is None:
            parent = self._parents.get(output[:-1].tobytes())
            if parent is None:
                stream = self._start.fork()
                for token in output[:-1].tolist():
                    stream.push(token)
            else:
                stream = parent.fork()
            stream.push(int(output[-1]))
            self._streams[key] = stream
        return stream.stopped is not None
