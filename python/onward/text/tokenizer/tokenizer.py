"""Text to token ids and back, over the `tokenizers` library.

A Tokenizer is made from a model folder (tokenizer.json and its companions) or, by onward.text.gguf,
from the metadata of a GGUF file. It has the special tokens and the rule for a BOS in front of a
prompt. Chat templates are in onward.text.template, growing text in onward.text.streaming, and the
end tokens of config.json and generation_config.json in onward.options.model_defaults.

Decisions, where libraries differ:

* The text of a special token inside an ordinary prompt is read as that token, as transformers does.
* A prompt that already begins with BOS does not get a second one; transformers adds it.
* Nothing is put after a text, whatever `add_eos_token` and the post-processor say: these are
  settings of training, and a prompt that ends with the end token asks for another text.
* `clean_up_tokenization_spaces` is ignored: it deletes spaces that the model wrote (`" ."` becomes
  `"."`), so text would no longer be what the tokens say and could not be streamed.
* Truncation and padding sections of tokenizer.json are switched off: a prompt is never cut.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onward.errors import ArgumentTypeError, InvalidArgument, TokenizerError
from onward.message_text import literal
from onward.options.values import check_flag
from onward.text.decoding import Decoding
from onward.text.tokenizer import checked_calls
from onward.text.tokenizer.file import TokenizerFile
from onward.text.tokenizer.folder import read_folder

if TYPE_CHECKING:
    import tokenizers

    from onward.text.tokenizer.growth import TextGrowth
    from onward.text.tokenizer.trial import TextTrial


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
        add_bos: what overrides the backend's post-processor; None where nothing does.
        trial: what tries texts first, where the tokenizer's files may make it slow; else None.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special_tokens: Mapping[str, str] | None = None,
        add_bos: bool | None = None,
        more_eos_ids: Iterable[int] = (),
        config: Mapping[str, Any] | None = None,
        growth: TextGrowth | None = None,
        trial: TextTrial | None = None,
        where: str = "tokenizer",
    ) -> None:
        """Wrap `backend`. `add_bos` overrides what its post-processor does. `trial`, or `growth`
        where there is none, checks each text before it is encoded.

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
        self.add_bos = add_bos
        self.trial = trial
        self._growth = growth
        self._where = where
        self._prefix = self._read_prefix(add_bos)

    @cached_property
    def decoding(self) -> Decoding:
        """How token ids become text."""
        return Decoding(self.backend, self.special_ids, self.trial)

    @classmethod
    def from_folder(cls, path: str | Path, rows: int | None = None) -> Tokenizer:
        """Read tokenizer.json and its companions from a folder.

        `rows` is the size of the model's embedding, where it is known: a special token that no
        vocabulary has gets an id only below it.

        Raises:
            TokenizerError: a file is missing, malformed, too deeply nested, too large, or makes
                texts too long; two tokens have one id.
        """
        read = read_folder(Path(path), rows)
        return cls(
            read.backend,
            special_tokens=read.special_tokens,
            add_bos=read.add_bos,
            config=read.config,
            growth=read.file.growth,
            trial=read.file.trial,
            where=read.where,
        )

    @classmethod
    def from_text(cls, text: str, *, where: str, **settings: Any) -> Tokenizer:
        """Of a tokenizer.json, and what the constructor takes besides.

        Raises:
            TokenizerError: it is malformed.
        """
        file = TokenizerFile.parse(text.encode("utf-8", "surrogatepass"), where)
        backend = file.build([])
        return cls(backend, growth=file.growth, trial=file.trial, where=where, **settings)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included. The model's embedding may have more rows."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    @property
    def adds_bos(self) -> bool:
        """Whether `encode` puts BOS in front of a text."""
        return self.bos_token_id is not None and self._prefix[:1] == [self.bos_token_id]

    def token_to_id(self, text: str) -> int | None:
        """Id of the token spelled `text` in the vocabulary, or None. ArgumentTypeError for what is
        not a str."""
        if not isinstance(text, str):
            raise ArgumentTypeError(f"text is a {type(text).__name__}, expected a str")
        return None if _lone_surrogate(text) is not None else self.backend.token_to_id(text)

    def id_to_token(self, token_id: int) -> str | None:
        """Spelling of a token in the vocabulary, or None when the id is not in it.
        ArgumentTypeError for what is not an integer."""
        value = _integer("token id", token_id)
        return self.backend.id_to_token(value) if 0 <= value < 2**32 else None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`, by default with what the tokenizer puts in front, such as BOS.

        Nothing is put after the text (see above), so this is how a prompt begins.

        Raises:
            ArgumentTypeError: `text` is not a str, or `add_special_tokens` no bool.
            InvalidArgument: `text` holds a lone surrogate, which has no UTF-8 form.
            TokenizerError: the tokenizer's own files make it fail.
        """
        framed = check_flag("add_special_tokens", add_special_tokens)
        ids = self._encode(text, add_special_tokens=False)
        if not framed:
            return ids
        prefix = self._prefix
        if self.adds_bos and ids[:1] == [self.bos_token_id]:
            prefix = prefix[1:]
        return [*prefix, *ids]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Text of `ids`. Ids beyond the vocabulary (padding rows of the model) have no text.

        Raises:
            ArgumentTypeError: an id is not an integer, or `skip_special_tokens` no bool.
            InvalidArgument: an id is negative or does not fit into 32 bits.
            TokenizerError: the tokenizer's own files make it fail.
        """
        skip = check_flag("skip_special_tokens", skip_special_tokens)
        checked = [_integer("decode: token id", i) for i in ids]
        for value in checked:
            if not 0 <= value < 2**32:
                raise InvalidArgument(f"decode: token id {value}, expected 0 to 4294967295")
        return checked_calls.decode(self.backend, checked, skip, self.trial)

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if not isinstance(text, str):
            raise ArgumentTypeError(f"text is a {type(text).__name__}, expected a str")
        at = _lone_surrogate(text)
        if at is not None:
            raise InvalidArgument(
                f"text: character {at} is a lone surrogate (U+{ord(text[at]):04X}), "
                "expected valid Unicode"
            )
        if self.trial is not None:
            self.trial.encode(text)
        elif self._growth is not None:
            self._growth.check(text)
        return checked_calls.encode(self.backend, text, add_special_tokens)

    def _named_id(self, name: str) -> int | None:
        text = self.special_tokens.get(name)
        return None if text is None else self.token_to_id(text)

    def _read_prefix(self, add_bos: bool | None) -> list[int]:
        """The ids that go before a text."""
        plain = self._encode("a", add_special_tokens=False)
        framed = self._encode("a", add_special_tokens=True)
        starts = range(len(framed) - len(plain) + 1)
        start = next((i for i in starts if framed[i : i + len(plain)] == plain), 0)
        prefix = framed[:start]
        bos = self.bos_token_id
        if add_bos is None:
            return prefix
        if add_bos and bos is None:
            raise TokenizerError(f"{self._where}: add_bos_token is true but bos_token is missing")
        prefix = [i for i in prefix if i != bos]
        return [bos, *prefix] if add_bos and bos is not None else prefix


def _integer(where: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentTypeError(
            f"{where} {literal(value)} is a {type(value).__name__}, expected an integer"
        ) from None


def _lone_surrogate(text: str) -> int | None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return None
