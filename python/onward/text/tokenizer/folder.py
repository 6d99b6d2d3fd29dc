"""Reads the tokenizer of a model folder: tokenizer.json and the files beside it.

tokenizer_config.json, special_tokens_map.json and added_tokens.json name special tokens and add
tokens. The order is the same as in transformers. If tokenizer_config.json has
`added_tokens_decoder`, the other two files are not read. Otherwise their entries have priority over
the entries of tokenizer_config.json. An id in tokenizer.json has priority over all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onward.errors import ConfigError, TokenizerError
from onward.files.json_file import read_json_object
from onward.message_text import label, labels, shown
from onward.text.tokenizer.file import FLAGS, MAX_BYTES, TokenizerFile
from onward.text.tokenizer.prefix_space import set_prefix_space

if TYPE_CHECKING:
    import tokenizers

MAX_COMPANION_BYTES = 16 << 20

_NAMED_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_EXTRA, _OLD_EXTRA = "extra_special_tokens", "additional_special_tokens"


@dataclass
class FolderTokenizer:
    """What the files of a folder say about its tokenizer."""

    backend: tokenizers.Tokenizer
    file: TokenizerFile
    special_tokens: dict[str, str]
    add_bos: bool | None
    config: dict[str, Any]
    where: str


@dataclass
class _Names:
    """The special tokens that the files name, and the tokens that they add."""

    named: dict[str, str] = field(default_factory=dict)
    flags: dict[str, dict[str, bool]] = field(default_factory=dict)
    extra: list[tuple[str, dict[str, bool]]] = field(default_factory=list)
    added: list[tuple[int, str, dict[str, bool]]] = field(default_factory=list)
    decoder: bool = False  # whether `added` comes from added_tokens_decoder

    def name(self, key: str, value: object, where: str, **flags: bool) -> None:
        token = _token(value, key, where)
        if token is not None:
            self.named[key] = token[0]
            self.flags[token[0]] = {**token[1], **flags}

    def add(self, token_id: object, value: object, where: str, key: str) -> None:
        token = _token(value, key, where)
        if type(token_id) is not int or not 0 <= token_id < 2**32:
            found = shown(token_id)
            _warn(f"{where}: {label(key)} has the id {found}, expected an integer; ignored")
        elif token is not None:
            self.added.append((token_id, *token))


def read_folder(folder: Path, rows: int | None) -> FolderTokenizer:
    """Read the tokenizer's files of a folder.

    `rows` is the number of tokens that the model has a row for, where that is known: a special
    token that is in no vocabulary gets a new id only below it.

    Raises:
        TokenizerError: a file is missing, malformed, too large or contradicts itself.
    """
    path = folder / "tokenizer.json"
    file = TokenizerFile.parse(_read_tokenizer_json(path), str(path))
    config = _read_object(folder / "tokenizer_config.json")
    where = str(folder / "tokenizer_config.json")
    add_bos = read_flag(config, "add_bos_token", where)
    read_flag(config, "add_eos_token", where)  # a setting of training; see Tokenizer.encode
    names = _read_names(folder, config, where)
    set_prefix_space(file, config, _model_type(folder))
    backend = file.build(_tokens_to_add(file, names, rows, where))
    return FolderTokenizer(backend, file, names.named, add_bos, config, where)


def read_flag(config: Mapping[str, Any], key: str, where: str) -> bool | None:
    """A value of true, false or null. TokenizerError for another."""
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise TokenizerError(f"{where}: {key} is {shown(value)}, expected true or false")


def _read_tokenizer_json(path: Path) -> bytes:
    if not path.is_file():
        advice = ""
        if (path.parent / "tokenizer.model").exists():
            advice = (
                "; the folder has only a SentencePiece tokenizer.model: save it once with "
                "transformers' fast tokenizer to get a tokenizer.json"
            )
        raise TokenizerError(f"{path}: the file is missing{advice}")
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise TokenizerError(f"{path}: it has {size} bytes, expected at most {MAX_BYTES}")
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{path}: it cannot be read: {error.strerror or error}") from error


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON object, or {} where there is no such file."""
    if not path.is_file():
        return {}
    limit = MAX_COMPANION_BYTES
    return read_json_object(path, str(path), limit_bytes=limit, error=TokenizerError)


def _model_type(folder: Path) -> str:
    """The model_type of config.json; empty where it has none. Its errors are found elsewhere."""
    path = folder / "config.json"
    if not path.is_file():
        return ""
    try:
        return str(read_json_object(path, "config.json").get("model_type"))
    except ConfigError:
        return ""


def _read_names(folder: Path, config: Mapping[str, Any], where: str) -> _Names:
    names = _Names(decoder="added_tokens_decoder" in config)
    mapped = {} if names.decoder else _read_object(folder / "special_tokens_map.json")
    values = {**config, **mapped}
    extra = config.get(_EXTRA) or config.get(_OLD_EXTRA)
    listed = mapped.get(_EXTRA) or extra or mapped.get(_OLD_EXTRA)
    for key in _NAMED_TOKENS:
        names.name(key, values.get(key), where, **({"special": True} if key in mapped else {}))
    special = {text for key, text in names.named.items() if key in mapped or values[key] == text}
    for key, value in values.items():  # tokens of one family, such as image_token
        if key.endswith("_token") and key not in _NAMED_TOKENS and isinstance(value, str):
            names.name(key, value, where)
    if isinstance(listed, Mapping):
        for key, value in listed.items():
            names.name(str(key), value, where)
    elif isinstance(listed, list):
        found = (_token(value, f"{_EXTRA}[{i}]", where) for i, value in enumerate(listed))
        names.extra = [token for token in found if token is not None]
    elif listed is not None:
        _warn(f"{where}: {_EXTRA} is {shown(listed)}, expected a list or an object; ignored")
    if names.decoder:
        entries = config["added_tokens_decoder"]
        if isinstance(entries, Mapping):
            for key, value in entries.items():
                token_id = int(key) if key.isascii() and key.isdecimal() and len(key) < 20 else key
                names.add(token_id, value, where, f"added_tokens_decoder[{key}]")
        elif entries is not None:
            _warn(f"{where}: added_tokens_decoder is {shown(entries)}, expected an object; ignored")
    else:
        path = folder / "added_tokens.json"
        if isinstance(extra, list):
            special.update(text for text in extra if isinstance(text, str))
        for text, token_id in _read_object(path).items():
            entry = {"content": text, "special": text in special, "normalized": text not in special}
            names.add(token_id, entry, str(path), text)
    names.added.sort(key=lambda entry: entry[0])
    return names


def _token(value: object, key: str, where: str) -> tuple[str, dict[str, bool]] | None:
    """The text of a token and how it is matched; the file has a text alone, or an object."""
    text = value.get("content") if isinstance(value, Mapping) else value
    if isinstance(text, str) and text:
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            if not isinstance(value, Mapping):
                return text, {"special": True}
            return text, {n: value[n] for n in FLAGS if isinstance(value.get(n), bool)}
    elif value is None or text == "":
        return None
    _warn(f"{where}: {label(key)} is {shown(value)}, expected the text of a token; ignored")
    return None


def _tokens_to_add(
    file: TokenizerFile, names: _Names, rows: int | None, where: str
) -> list[tokenizers.AddedToken]:
    """The tokens to add to the tokens of tokenizer.json, with their ids claimed. A token that
    exists already takes the flags of the added token, as in transformers."""
    from tokenizers import AddedToken

    of_file = file.added_flags()
    named = {text: key for key, text in reversed(names.named.items())}
    tokens: dict[str, AddedToken] = {}

    def add(text: str, flags: Mapping[str, bool]) -> None:
        token = AddedToken(text, **{**flags, "special": flags.get("special", text in named)})
        if text in named:
            token.special = True
        tokens[text] = token

    for token_id, text, flags in names.added:
        known = file.pieces.get(text)
        owner = file.owners.get(token_id)
        if known not in (None, token_id) or owner not in (None, text):
            has = f"that token has the id {known}" if owner is None else f"it is {label(owner)!r}"
            name = label(text)
            _warn(f"{where}: gives {name!r} the id {token_id}, but in tokenizer.json {has}")
            if known is None:
                continue
        else:
            file.claim(text, token_id, "a file beside it gives")
        add(text, flags)
    if not names.decoder:
        for text, flags in of_file.items():
            if text in tokens or (text in named and not flags["special"]):
                add(text, flags)
    present = {*of_file, *tokens}
    missing = []
    for text, flags in [*((t, names.flags[t]) for t in names.named.values()), *names.extra]:
        if text not in file.pieces:
            missing.append(f"{named[text]} {label(text)!r}" if text in named else repr(label(text)))
            token_id = file.next_id()
            if rows is not None and token_id >= rows:
                continue
            file.claim(text, token_id, "a file beside it gives")
            if text not in named:
                missing.pop()
        if text not in present:
            add(text, flags)
    if missing:
        listed = labels(dict.fromkeys(missing))
        _warn(f"{where}: special tokens that are not in the vocabulary: {listed}")
    for key in ("bos_token", "eos_token"):
        token_id = file.pieces.get(names.named.get(key, ""), -1)
        if rows is not None and token_id >= rows:
            text = label(names.named[key])
            _warn(f"{where}: {key} {text!r} has the id {token_id}, but the model has {rows} rows")
    return list(tokens.values())


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)
