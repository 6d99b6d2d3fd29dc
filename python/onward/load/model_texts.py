"""The tokenizer and the chat template of a loaded model, from the place where its files keep
them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from onward.errors import TokenizerError
from onward.load import pack_contents as contents
from onward.load.hub import ModelFiles
from onward.text.gguf.tokenizer import has_tokenizer
from onward.text.gguf.tokenizer import read_tokenizer as read_gguf_tokenizer
from onward.text.template.template import ChatTemplate
from onward.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from onward.load.loading import LoadedModel


def read_tokenizer(loaded: LoadedModel) -> tuple[Tokenizer | None, str]:
    """The tokenizer, or the reason why there is none. A model without one still accepts token
    ids."""
    files = loaded.files
    try:
        if files.kind == "pack":
            found = contents.read_tokenizer(loaded.texts, files.path.name)
            return found, f"{files.path.name}: the model was packed without a tokenizer"
        if files.kind == "folder":
            return Tokenizer.from_folder(files.path, loaded.spec.vocab_size), ""
        if not has_tokenizer(loaded.metadata):
            return None, f"{files.path.name}: the GGUF file has no tokenizer"
        return read_gguf_tokenizer(loaded.metadata), ""
    except TokenizerError as error:
        if files.kind != "folder":
            raise
        if any(files.path.glob("*token*")) or any(files.path.glob("vocab*")):
            raise
        return None, str(error)  # the exception itself would keep the whole model alive


def read_template(
    files: ModelFiles,
    metadata: Mapping[str, object],
    texts: Mapping[str, str],
    tokenizer: Tokenizer,
) -> ChatTemplate:
    """The chat templates of a model, from the fields of its LoadedModel. A model without a
    template causes no error until something is rendered."""
    if files.kind == "pack":
        return contents.read_template(texts, tokenizer, files.path.name)
    if files.kind == "folder":
        return ChatTemplate.from_folder(files.path, tokenizer)
    return ChatTemplate.from_gguf(metadata, tokenizer)
