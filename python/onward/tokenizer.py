"""Text to token ids and back, over the `tokenizers` library.

A Tokenizer is made from a model folder (tokenizer.json and its companions) or from the metadata
of a GGUF file. It knows the special tokens and whether a BOS belongs in front of a prompt. It does
not know chat templates (chat_template.py), text that is still growing (streaming.py), or the end
tokens that config.json and generation_config.json name.

Decisions, where libraries differ:

* The text of a special token inside an ordinary prompt is read as that token, as transformers does.
* A prompt that already begins with BOS does not get a second one; transformers adds it.
* `clean_up_tokenization_spaces` is ignored: it deletes spaces that the model wrote (`" ."` becomes
  `"."`), so text would no longer be what the tokens say and could not be streamed.
* Truncation and padding sections of tokenizer.json are switched off: a prompt is never cut.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onward.errors import ArgumentTypeError, InvalidArgument, TokenizerError
from onward.message_text import literal

if TYPE_CHECKING:
    import tokenizers

    from onward.streaming import Decoding

MAX_TOKENIZER_BYTES = 256 << 20  # the largest published tokenizer.json has about 35 MB
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


class Tokenizer:
    """One model's tokenizer.

    Attributes:
        backend: the `tokenizers.Tokenizer` underneath.
        special_tokens: text of the named special tokens, such as `{"bos_token": "<s>"}`; these
            are the variables that a chat template sees.
        special_ids: ids that `decode` leaves out when special tokens are skipped.
        bos_token_id: id of the BOS token, or None.
        eos_token_ids: ids of the end tokens that the tokenizer itself names.
        config: tokenizer_config.json as read; empty for GGUF.
        add_bos, add_eos: what overrides the backend's post-processor; None where nothing does.
        decoding: how ids become text, as streaming.py found it.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special_tokens: Mapping[str, str] | None = None,
        add_bos: bool | None = None,
        add_eos: bool | None = None,
        more_eos_ids: Iterable[int] = (),
        config: Mapping[str, Any] | None = None,
        where: str = "tokenizer",
    ) -> None:
        """Wrap `backend`. `add_bos` and `add_eos` override what its post-processor does.

        Raises:
            TokenizerError: a special token that has to be added has no id.
        """
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.special_tokens = dict(special_tokens or {})
        self.config: dict[str, Any] = dict(config or {})
        self.special_ids = frozenset(
            i for i, token in backend.get_added_tokens_decoder().items() if token.special
        )
        self.bos_token_id = self._named_id("bos_token")
        eos = self._named_id("eos_token")
        found = ([] if eos is None else [eos]) + list(more_eos_ids)
        self.eos_token_ids: list[int] = list(dict.fromkeys(found))
        self.decoding: Decoding | None = None  # made by the first TextStream
        self.add_bos, self.add_eos = add_bos, add_eos
        self._where = where
        self._prefix, self._suffix = self._frame(add_bos, add_eos, eos)

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """Read tokenizer.json, tokenizer_config.json and special_tokens_map.json of a folder.

        Raises:
            TokenizerError: a file is missing, malformed, too deeply nested or too large.
        """
        folder = Path(path)
        backend = _read_backend(folder / "tokenizer.json")
        config = _read_object(folder / "tokenizer_config.json")
        names = {**_read_object(folder / "special_tokens_map.json"), **config}
        where = str(folder / "tokenizer_config.json")
        special_tokens = _named_tokens(names)
        _add_tokens(backend, names, special_tokens)
        return cls(
            backend,
            special_tokens=special_tokens,
            add_bos=_flag(config, "add_bos_token", where),
            add_eos=_flag(config, "add_eos_token", where),
            config=config,
            where=where,
        )

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Build a tokenizer from the `tokenizer.ggml.*` metadata of a GGUF file.

        Raises:
            TokenizerError: a key is missing or malformed, or the kind is not supported.
        """
        from onward.gguf_tokenizer import build

        built = build(metadata)
        return cls(
            built.backend,
            special_tokens=built.special_tokens,
            add_bos=built.add_bos,
            add_eos=built.add_eos,
            more_eos_ids=built.more_eos_ids,
            where="GGUF metadata tokenizer.ggml",
        )

    @classmethod
    def from_text(cls, text: str, *, where: str, **told: Any) -> Tokenizer:
        """Of a tokenizer.json, and what the constructor takes besides.

        Raises:
            TokenizerError: it is malformed.
        """
        return cls(_parse_backend(text.encode(), where), where=where, **told)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included. The model's embedding may have more rows."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` puts BOS in front of a text."""
        return self.bos_token_id is not None and self._prefix[:1] == [self.bos_token_id]

    def token_to_id(self, text: str) -> int | None:
        """Id of the token spelled `text` in the vocabulary, or None."""
        return self.backend.token_to_id(text)

    def id_to_token(self, token_id: int) -> str | None:
        """Spelling of a token in the vocabulary, or None when the id is not in it."""
        return self.backend.id_to_token(token_id)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`; with the BOS and EOS this tokenizer adds, unless told not to.

        Raises:
            ArgumentTypeError: `text` is not a str.
            InvalidArgument: `text` holds a lone surrogate, which has no UTF-8 form.
            TokenizerError: the tokenizer's own files make it fail.
        """
        ids = self._encode(text, add_special_tokens=False)
        if not add_special_tokens:
            return ids
        prefix = self._prefix
        if self.adds_bos and ids[:1] == [self.bos_token_id]:
            prefix = prefix[1:]
        return [*prefix, *ids, *self._suffix]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Text of `ids`. Ids beyond the vocabulary (padding rows of the model) have no text.

        Raises:
            ArgumentTypeError: an id is not an integer.
            InvalidArgument: an id is negative or does not fit into 32 bits.
        """
        checked = []
        for i in ids:
            try:
                value = operator.index(i)
            except TypeError:
                raise ArgumentTypeError(
                    f"decode: token id {literal(i)} is a {type(i).__name__}, expected an integer"
                ) from None
            if not 0 <= value < 2**32:
                raise InvalidArgument(f"decode: token id {value}, expected 0 to 4294967295")
            checked.append(value)
        return self.backend.decode(checked, skip_special_tokens=skip_special_tokens)

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if not isinstance(text, str):
            raise ArgumentTypeError(f"text is a {type(text).__name__}, expected a str")
        try:
            encoding = self.backend.encode(text, add_special_tokens=add_special_tokens)
        except BaseException as error:  # a panic of the Rust library is no Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
                raise
            at = _lone_surrogate(text)
            if at is not None:
                raise InvalidArgument(
                    f"text: character {at} is a lone surrogate (U+{ord(text[at]):04X}), "
                    "expected valid Unicode"
                ) from None
            raise TokenizerError(f"tokenizer: it failed on a text: {error}") from error
        return list(encoding.ids)

    def _named_id(self, name: str) -> int | None:
        text = self.special_tokens.get(name)
        return None if text is None else self.backend.token_to_id(text)

    def _frame(
        self, add_bos: bool | None, add_eos: bool | None, eos: int | None
    ) -> tuple[list[int], list[int]]:
        """The ids that go before and after a text."""
        plain = self._encode("a", add_special_tokens=False)
        framed = self._encode("a", add_special_tokens=True)
        prefix: list[int] = []
        suffix: list[int] = []
        for start in range(len(framed) - len(plain) + 1):
            if framed[start : start + len(plain)] == plain:
                prefix, suffix = framed[:start], framed[start + len(plain) :]
                break
        bos = self.bos_token_id
        if add_bos is not None:
            if add_bos and bos is None:
                raise TokenizerError(
                    f"{self._where}: add_bos_token is true but bos_token is missing"
                )
            prefix = [i for i in prefix if i != bos]
            if add_bos and bos is not None:
                prefix.insert(0, bos)
        if add_eos is not None:
            if add_eos and eos is None:
                raise TokenizerError(
                    f"{self._where}: add_eos_token is true but eos_token is missing"
                )
            suffix = [i for i in suffix if i != eos]
            if add_eos and eos is not None:
                suffix.append(eos)
        return prefix, suffix


def _lone_surrogate(text: str) -> int | None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None


def _read_bytes(path: Path, limit: int) -> bytes:
    try:
        size = path.stat().st_size
        if size > limit:
            raise TokenizerError(f"{path}: it has {size} bytes, expected at most {limit}")
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{path}: it cannot be read: {error.strerror or error}") from error


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    if not path.is_file():
        advice = ""
        if (path.parent / "tokenizer.model").exists():
            advice = (
                "; the folder has only a SentencePiece tokenizer.model: save it once with "
                "transformers' fast tokenizer to get a tokenizer.json"
            )
        raise TokenizerError(f"{path}: the file is missing{advice}")
    return _parse_backend(_read_bytes(path, MAX_TOKENIZER_BYTES), str(path))


def _parse_backend(data: bytes, where: str) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer as Backend

    try:
        return Backend.from_buffer(data)
    except BaseException as error:  # a panic of the Rust library is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        raise TokenizerError(f"{where}: it is not a usable tokenizer: {error}") from error


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON object, or {} when there is no such file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(_read_bytes(path, MAX_COMPANION_BYTES).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: it is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: found a {type(value).__name__}, expected an object")
    return value


def _flag(config: Mapping[str, Any], key: str, where: str) -> bool | None:
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise TokenizerError(f"{where}: {key} is {value!r}, expected true or false")


def _token_text(value: object) -> str | None:
    """The text of a token, written as a string or as an object with `content`."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    found = {name: _token_text(config.get(name)) for name in _NAMED_TOKENS}
    extra = config.get("extra_special_tokens")
    if isinstance(extra, Mapping):
        found.update({str(name): _token_text(value) for name, value in extra.items()})
    return {name: text for name, text in found.items() if text is not None}


def _add_tokens(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], named: Mapping[str, str]
) -> None:
    """Make special what the configuration calls special, as transformers' fast tokenizers do.

    A token that is not in the vocabulary and would get a new id is added only where
    `added_tokens_decoder` gives exactly that id: the model has no row for any other.
    """
    from tokenizers import AddedToken

    listed = config.get("added_tokens_decoder")
    special = list(named.values())
    for key in ("additional_special_tokens", "extra_special_tokens"):
        values = config.get(key)
        if isinstance(values, list):
            special += [text for value in values if (text := _token_text(value))]
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    by_id: list[tuple[int, str, dict[str, Any]]] = []
    if isinstance(listed, Mapping):
        for key, value in listed.items():
            text = _token_text(value)
            if text and isinstance(value, dict) and str(key).isdecimal():
                by_id.append((int(key), text, value))
    for token_id, text, value in sorted(by_id, key=lambda item: item[0]):
        found = backend.token_to_id(text)
        at_end = found is None and token_id == backend.get_vocab_size(with_added_tokens=True)
        if text in known or not (found == token_id or at_end):
            continue
        flags = {
            name: value[name]
            for name in ("lstrip", "rstrip", "single_word", "normalized")
            if isinstance(value.get(name), bool)
        }
        token = AddedToken(text, special=bool(value.get("special")), **flags)
        known.add(text)
        if value.get("special") or text in special:
            backend.add_special_tokens([token])
        else:
            backend.add_tokens([token])
    for text in special:
        if text not in known and backend.token_to_id(text) is not None:
            known.add(text)
            backend.add_special_tokens([AddedToken(text, special=True, normalized=False)])
