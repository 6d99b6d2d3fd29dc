"""Effects of tokenizer files on the calls of a model: ends of prompts, panics, ids after a gap."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.talking import TEMPLATE, write_talking
from builders.tiny_tokenizers import byte_level
from onward import LLM
from onward.errors import InvalidArgument, TokenizerError

OpenLLM = Callable[..., LLM]


def _folder(folder: Path, backend: Any, config: dict[str, Any] | None = None) -> Path:
    write_talking(folder, vocab_size=320)
    backend.save(str(folder / "tokenizer.json"))
    config = {"chat_template": TEMPLATE, **(config or {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return folder


@pytest.mark.parametrize("by_processor", [True, False])
def test_no_prompt_ends_with_the_end_token(
    tmp_path: Path, open_llm: OpenLLM, by_processor: bool
) -> None:
    from tokenizers import processors

    backend = byte_level(special=("<s>", "</s>"))
    names: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    if by_processor:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 256), ("</s>", 257)]
        )
    else:
        names.update(add_bos_token=True, add_eos_token=True)
    llm = open_llm(_folder(tmp_path / "m", backend, names))
    assert llm.generate("ab", max_new_tokens=1).prompt_token_ids == (256, 97, 98)
    assert llm.tokenize("ab") == [256, 97, 98]
    assert llm.score("ab").token_ids == (256, 97, 98)
    chat = "<user>ab\n<assistant>"
    assert llm.chat("ab", max_new_tokens=1).prompt_token_ids == (256, *chat.encode())
    result = llm.session(max_new_tokens=1).send("ab")
    assert result.prompt_token_ids == (256, *chat.encode())


def test_ids_after_a_gap(tmp_path: Path, open_llm: OpenLLM) -> None:
    """The end token is row 300 of the model, as the file says."""
    folder = _folder(tmp_path / "m", byte_level(special=("</s>",)), {"eos_token": "</s>"})
    state = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    state["added_tokens"][0]["id"] = 300
    (folder / "tokenizer.json").write_text(json.dumps(state), "utf-8")
    llm = open_llm(folder)
    assert llm.tokenize("a</s>") == [97, 300]
    assert 300 in llm.generate("a", max_new_tokens=1).options.stop_token_ids
    bias = {300: 100.0}
    result = llm.generate("a", max_new_tokens=9, logit_bias=bias)
    assert (result.token_ids, result.text, result.finish_reason) == ((300,), "", "stop")
    assert llm.detokenize([97, 300], skip_special_tokens=False) == "a</s>"


def test_ids_beyond_the_rows_of_the_model(tmp_path: Path, open_llm: OpenLLM) -> None:
    folder = _folder(tmp_path / "m", byte_level(special=("</s>",)), {"eos_token": "</s>"})
    state = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    state["added_tokens"][0]["id"] = 400
    (folder / "tokenizer.json").write_text(json.dumps(state), "utf-8")
    with pytest.warns(UserWarning, match="eos_token '</s>' has the id 400, but the model has 320"):
        llm = open_llm(folder)
    with pytest.raises(InvalidArgument, match="token id 400 at position 1"):
        llm.generate("a</s>")
    assert llm.generate("a", max_new_tokens=2).options.stop_token_ids == ()


def test_a_panic_in_the_decoder_leaves_the_model_usable(tmp_path: Path, open_llm: OpenLLM) -> None:
    from tokenizers import decoders

    backend = byte_level()
    backend.decoder = decoders.Strip("a", 0, 2)
    llm = open_llm(_folder(tmp_path / "m", backend))
    calls: list[Callable[[], Any]] = [
        lambda: llm.generate("ab", max_new_tokens=4),
        lambda: list(llm.stream("ab", max_new_tokens=4)),
        lambda: llm.chat("ab", max_new_tokens=4),
        lambda: llm.session(max_new_tokens=4).send("ab"),
        lambda: llm.generate(["ab", "a"], max_new_tokens=4, stop="x"),
        lambda: llm.generate("ab", max_new_tokens=4, num_beams=2),
        lambda: llm.detokenize([97]),
    ]
    for call in calls:
        with pytest.raises(TokenizerError, match="its decoder failed on token ids"):
            call()
    assert llm.logits([97]).shape == (1, 320)
    assert llm.stats()["running"] == 0


@pytest.mark.parametrize(
    "ids", [[320], [-1], [True], [1.0], [2**70], [[97]], ["a"], [None], np.array([97.0])]
)
def test_detokenize_refuses_ids_outside_the_model(
    tmp_path: Path, open_llm: OpenLLM, ids: Any
) -> None:
    with pytest.raises(InvalidArgument, match=r"token_ids: token id .* at position 0"):
        open_llm(_folder(tmp_path / "m", byte_level())).detokenize(ids)
