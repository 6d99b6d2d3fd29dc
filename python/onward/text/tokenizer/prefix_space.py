"""`add_prefix_space` of tokenizer_config.json, set in the parts of a tokenizer.json.

In transformers the setting belongs to the tokenizer's class. The byte-level classes of GPT-2 and
Qwen2 set their pre-tokenizer by it (false where it is missing), that of Llama sets its Metaspace.
Other classes use tokenizer.json as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onward.text.tokenizer.file import TokenizerFile

_BYTE_LEVEL = ("GPT2Tokenizer", "Qwen2Tokenizer")
_PARTS = ("normalizer", "pre_tokenizer", "decoder")
_CHAINS = ("normalizers", "pretokenizers", "decoders")


def set_prefix_space(file: TokenizerFile, config: Mapping[str, Any], model_type: str) -> None:
    """Change the state of `file` where the setting asks for it."""
    name = str(config.get("tokenizer_class", "")).removesuffix("Fast")
    if model_type == "mistral":  # transformers does not use the class of these files
        return
    if model_type == "qwen2" or (model_type == "qwen3" and not name):
        name = "Qwen2Tokenizer"
    wanted = config.get("add_prefix_space")
    if not isinstance(wanted, bool) and wanted is not None:
        return
    before = json.dumps([file.state.get(part) for part in _PARTS])
    for part in _PARTS:
        if part in file.state:
            file.state[part] = _changed(file.state[part], name, wanted)
    if json.dumps([file.state.get(part) for part in _PARTS]) != before:
        file.data = None


def _changed(step: Any, name: str, wanted: bool | None) -> Any:
    """A step as the class of that name has it; None where the class does not have it."""
    if not isinstance(step, dict):
        return step
    kind = step.get("type")
    if name in _BYTE_LEVEL and kind == "ByteLevel" and "add_prefix_space" in step:
        return {**step, "add_prefix_space": bool(wanted)}
    if name == "LlamaTokenizer" and wanted is False:
        if kind in ("Prepend", "Strip"):
            return None
        if kind == "Metaspace":
            return {**step, "prepend_scheme": "never"}
    for key in _CHAINS:
        if isinstance(step.get(key), list):
            changed = (_changed(inner, name, wanted) for inner in step[key])
            return {**step, key: [inner for inner in changed if inner is not None]}
    return step
