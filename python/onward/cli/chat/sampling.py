"""How ``onward chat`` chooses tokens where neither the flags nor the model's files say so.

Greedy choice makes small models repeat themselves without end, so a chat samples by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onward.options import ModelDefaults

# Sampling alone still falls into loops now and then. A mild penalty of repeated tokens prevents
# that, and a model can still quote what was said, which the stronger DRY would not let it do.
CHAT_SAMPLING: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1}


def chat_options(given: Mapping[str, Any], model: ModelDefaults) -> dict[str, Any]:
    """The options of a chat's answers: the given ones, and ``CHAT_SAMPLING`` where it applies.

    It does not apply to a model whose generation_config.json says whether to sample, to a chat with
    ``temperature`` 0, and to beam search.
    """
    beams = given.get("num_beams", model.values.get("num_beams", 1))
    greedy = given.get("temperature") == 0
    if model.says_whether_to_sample or greedy or beams != 1:
        return dict(given)
    return {**CHAT_SAMPLING, **given}
