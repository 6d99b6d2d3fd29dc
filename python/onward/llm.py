"""LLM: a loaded model that turns prompts into text.

Brings the pieces together: the model's files, its tokenizer and chat template, the options and the
driver. Holds no rule of its own about any of them.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from onward import _core
from onward.cache_options import CacheOptions
from onward.chat_template import ChatTemplate, chat_prompt_ids
from onward.driver import Driver
from onward.errors import ArgumentTypeError, InvalidArgument, TokenizerError
from onward.generation import Stream
from onward.hub import ModelFiles, find_model
from onward.loading import LoadedModel, check_device, check_dtypes, load_model
from onward.model_defaults import read_model_defaults, without_counterpart
from onward.model_texts import read_template, read_tokenizer
from onward.option_values import check_integer, shown
from onward.options import with_options
from onward.pack import contents
from onward.prefix_cache import PrefixCache
from onward.progress import ProgressBar
from onward.prompts import Prompt, PromptReader, TokenIds, is_batch
from onward.requests import RequestWriter
from onward.result import Result
from onward.scoring import Score, windows
from onward.sessions.origin import fingerprint_in, origin_of
from onward.sessions.session import Session, SessionModel
from onward.spec import DecoderSpec
from onward.submission import Submitter
from onward.tokenizer import Tokenizer
from onward.weights.dtypes import WeightDtypes
from onward.workers import Workers

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import Unpack

    from onward.option_table import GenerationKwargs

Messages: TypeAlias = "str | Sequence[Mapping[str, Any]]"
MAX_THREADS = 1024


class LLM:
    """A model in memory.

    Args:
        model: a folder, a .gguf file, a pack (docs/pack.md) or a hub id; None is the default model.
        device: what computes: "cpu", "cuda" or "cuda:1" (``onward.devices()`` tells which there
            are, and why not).
        dtype: what the weights are held in: "f32", "f16", "bf16", "int8" or "int4" (groups of 32
            with a scale each; the products' inputs are rounded to int8 as well), or "auto" for what
            the file has, where GGUF's Q8_0, Q4_0 and Q4_1 run as they are.
        head_dtype: that of the embedding and the output head; None is ``dtype``, or "int8" beside
            "int4" unless the file has four bits there.
        threads: threads that compute; None is the number of processors this process may use.
        prefill_chunk_tokens: tokens computed in one step at most. Less lets others in sooner.
        max_sequences: sequences that have a place in the cache at a time; further requests wait.
        draft_model: a smaller model of the same vocabulary, which guesses tokens that this one
            checks several at a time: the same output, sooner where it guesses well.
        kv_dtype: what keys and values of the cache are held in: "auto" for the floats that go with
            the weights, "f32", "f16", "bf16", or codes: "int8", "turbo8v4", "turbo4", "turbo3",
            "turbo2", "q4_0", "keys/values" for one of each. Codes are for all but the first block
            and the newest tokens, which stay exact (docs/kv.md).
        kv_window_tokens: newest tokens that stay exact beside codes, in whole blocks of 16.
        kv_sinks: whether the first block stays exact beside codes.
        kv_cache_bytes: what keys and values may take; None is most of the memory that is free.
            Requests wait for room, and one that can never fit is refused.
        max_context: tokens of prompt and output together at most; None is what the model allows.
        attention_window: an approximation (StreamingLLM), for endless texts: each token sees the
            first 4 and the newest so many tokens only. None: all, as the model was made.
        prefix_cache: whether the beginnings of finished requests are kept for later ones.
        packed_cache: a folder that keeps the weights as they are in memory. The first load of a
            model in some dtypes writes them there (the progress bar runs a second time), later ones
            read them instead of the model's tensors, until its files change.

    May be called from several threads: requests that are in flight together share each step.
    ``close()``, or a ``with`` block, gives the memory back.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        device: str = "cpu",
        dtype: str = "auto",
        head_dtype: str | None = None,
        threads: int | None = None,
        prefill_chunk_tokens: int = 256,
        max_sequences: int = 256,
        draft_model: str | os.PathLike[str] | None = None,
        packed_cache: str | os.PathLike[str] | None = None,
        kv_dtype: str | tuple[str, str] = "auto",
        kv_window_tokens: int = 128,
        kv_sinks: bool = True,
        kv_cache_bytes: int | None = None,
        max_context: int | None = None,
        attention_window: int | None = None,
        prefix_cache: bool = True,
    ) -> None:
        self._device = check_device(device)
        check_dtypes(dtype, head_dtype)
        if threads is None:
            threads = _core.default_threads()
        self._threads = check_integer("threads", threads, 1, MAX_THREADS)
        chunk = check_integer("prefill_chunk_tokens", prefill_chunk_tokens, 1, 2**31 - 1)
        most_sequences = check_integer("max_sequences", max_sequences, 1, 2**31 - 1)
        cache_options = CacheOptions.read(
            kv_dtype,
            kv_window_tokens,
            kv_sinks,
            kv_cache_bytes,
            max_context,
            attention_window,
            prefix_cache,
        )
        files = find_model(model)

        def load(files: ModelFiles, kept: Any, kv_dtype: object = "auto") -> LoadedModel:
            with ProgressBar(f"loading {files.name}") as progress:
                return load_model(
                    files, dtype, self._threads, progress, head_dtype, kept, kv_dtype, self._device
                )

        loaded = load(files, packed_cache, kv_dtype)
        self._spec = loaded.spec
        self._weight_dtypes = loaded.dtypes
        self._weight_bytes = loaded.core.weight_bytes
        self._name = loaded.files.name
        self._tokenizer, self._no_tokenizer = read_tokenizer(loaded)
        self._read_template = partial(
            read_template, loaded.files, loaded.metadata, contents.of_template(loaded.texts)
        )
        self._template: ChatTemplate | None = None
        self._context = cache_options.context(loaded.spec.max_context)
        self._reader = PromptReader(loaded.spec.vocab_size, self._context)
        requests = RequestWriter(self._tokenizer, loaded.spec.vocab_size, self._context)
        defaults = read_model_defaults(
            loaded.generation_config,
            loaded.config,
            self._tokenizer.eos_token_ids if self._tokenizer else (),
            loaded.spec.vocab_size,
        )
        if ignored := without_counterpart(loaded.generation_config):
            warnings.warn(
                f"generation_config.json: {', '.join(ignored)}: not supported yet, has no effect",
                stacklevel=2,
            )
        self._workers = Workers()
        draft = None
        if draft_model is not None:
            other = find_model(draft_model)
            draft = load(other, None if other.kind == "pack" else packed_cache)
        mapped = loaded.mapped_bytes + (0 if draft is None else draft.mapped_bytes)
        self._driver = Driver(
            _core.Engine(
                loaded.core,
                threads=self._threads,
                prefill_chunk_tokens=chunk,
                max_sequences=most_sequences,
                draft=None if draft is None else draft.core,
                **cache_options.engine_arguments(
                    loaded.kv, mapped, _core.device_free_bytes(self._device)
                ),
            )
        )
        self._kv = loaded.kv
        self._cache = PrefixCache(self._driver)
        self._origin = origin_of(loaded, cache_options, _core.__version__)
        self._submitter = Submitter(
            self._driver,
            self._reader,
            requests,
            defaults,
            self._text_tokenizer,
            lambda: bool(self._chat_template().names),
            most_sequences,
            draft is not None,
        )

    @overload
    def generate(self, prompt: str | TokenIds, **options: Unpack[GenerationKwargs]) -> Result: ...

    @overload
    def generate(
        self,
        prompt: list[str] | list[list[int]] | list[NDArray[np.integer[Any]]] | tuple[str, ...],
        **options: Unpack[GenerationKwargs],
    ) -> list[Result]: ...

    @overload
    def generate(
        self, prompt: list[Prompt], **options: Unpack[GenerationKwargs]
    ) -> Result | list[Result]: ...

    @with_options
    def generate(self, prompt: Any, **options: Any) -> Result | list[Result]:
        """Continue a prompt, or each prompt of a list, in one batch; order is kept.

        A prompt is text or a sequence of token ids: ``[1, 2, 3]`` is one prompt, ``["a", "b"]`` and
        ``[[1, 2], [3]]`` are two, ``[]`` is none. Prompts are continued as they are; ``chat`` puts
        a conversation into the form the model was trained on.
        """
        call, generations, batch = self._submitter.begin(prompt, options)
        results = self._submitter.finish(call, generations)
        return results if batch else results[0]

    @overload
    async def agenerate(
        self, prompt: str | TokenIds, **options: Unpack[GenerationKwargs]
    ) -> Result: ...

    @overload
    async def agenerate(
        self,
        prompt: list[str] | list[list[int]] | list[NDArray[np.integer[Any]]] | tuple[str, ...],
        **options: Unpack[GenerationKwargs],
    ) -> list[Result]: ...

    @with_options
    async def agenerate(self, prompt: Any, **options: Any) -> Result | list[Result]:
        """``generate`` for asyncio: the event loop goes on, and calls that are awaited together
        share the engine's steps. Cancelling the task frees the engine after the present step."""
        call, generations, batch = await self._workers.run(self._submitter.begin, prompt, options)
        try:
            results = await self._workers.run(self._submitter.finish, call, generations)
        finally:
            call.close()
        return results if batch else results[0]

    @with_options
    async def astream(
        self, prompt: str | TokenIds, **options: Unpack[GenerationKwargs]
    ) -> AsyncGenerator[str, None]:
        """``stream`` for asyncio. Leaving the iteration, or cancelling its task, frees the engine
        after the present step."""
        stream = await self._workers.run(lambda: self.stream(prompt, **options))
        try:
            while (piece := await self._workers.run(lambda: next(stream, None))) is not None:
                yield piece
        finally:
            stream.close()

    @with_options
    def stream(self, prompt: str | TokenIds, **options: Unpack[GenerationKwargs]) -> Stream:
        """Continue one prompt and hand out the text as it comes.

        The pieces joined are the ``text`` that ``generate`` returns for the same seed.
        """
        self._driver.check_open()
        if is_batch(prompt):
            raise InvalidArgument("prompt: is a list of prompts, expected one prompt to stream")
        call, generations = self._submitter.submit([prompt], False, options, streamed=True)
        return Stream(call, generations[0])

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        stream: Literal[False] = False,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationKwargs],
    ) -> Result: ...

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        stream: Literal[True],
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationKwargs],
    ) -> Stream: ...

    @overload
    def chat(
        self,
        messages: Messages,
        *,
        stream: bool,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationKwargs],
    ) -> Result | Stream: ...

    @with_options
    def chat(
        self,
        messages: Messages,
        *,
        stream: bool = False,
        template_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Result | Stream:
        """Answer a conversation through the model's own chat template.

        Args:
            messages: ``[{"role": "user", "content": "..."}, ...]``, or a string for one message.
            stream: return a ``Stream`` instead of waiting for the whole answer.
            template_options: further variables for the template, such as ``enable_thinking``
                and ``tools``, and the keywords of ``ChatTemplate.render``.
        """
        if not isinstance(stream, bool):
            raise ArgumentTypeError(f"stream: is {shown(stream)}, expected True or False")
        ids = self.chat_token_ids(messages, template_options)
        return self.stream(ids, **options) if stream else self.generate(ids, **options)

    def chat_token_ids(
        self, messages: Messages, template_options: Mapping[str, Any] | None = None
    ) -> list[int]:
        """The token ids that ``chat`` hands to the engine."""
        tokenizer = self._text_tokenizer()
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return chat_prompt_ids(
            self._chat_template(), tokenizer, messages, **(template_options or {})
        )

    @with_options
    def session(
        self,
        system: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        *,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerationKwargs],
    ) -> Session:
        """A conversation that remembers (docs/sessions.md), begun with these messages. The options
        are those of its answers, where they are not told others."""
        tokenizer, template = self._text_tokenizer(), self._chat_template()
        model = SessionModel(
            tokenizer, template, self._submitter, self._driver, self._origin, self._context
        )
        return Session(model, system, messages, template_options, options)

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text, with the BOS that ``generate`` would put in front."""
        return self._text_tokenizer().encode(text, add_special_tokens=add_special_tokens)

    def detokenize(self, token_ids: TokenIds, *, skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        tokenizer = self._text_tokenizer()
        return tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def logits(self, token_ids: TokenIds) -> NDArray[np.float32]:
        """Logits after each token: (len(token_ids), vocab_size); row i predicts token i + 1."""
        self._driver.check_open()
        ids = self._reader.read("token_ids", token_ids, None)
        return self._driver.run(lambda engine: engine.logits(ids))

    def score(
        self, text: str | TokenIds, *, window: int | None = None, stride: int | None = None
    ) -> Score:
        """The log-probability of each token of a text, or of token ids, and its perplexity.

        A text longer than ``window`` (the model's context) is read in windows, each beginning
        ``stride`` tokens (half a window) after the one before: every token is scored once, in the
        first window that has it.

        Raises InvalidArgument for fewer than two tokens, and NumericsError where the model's
        logits are not finite.
        """
        self._driver.check_open()
        size = self.context if window is None else check_integer("window", window, 2, self.context)
        step = max(size // 2, 1)
        if stride is not None:
            step = check_integer("stride", stride, 1, size - 1)
        given = self._text_tokenizer().encode(text) if isinstance(text, str) else text
        ids = self._reader.ids("text", given)
        if len(ids) < 2:
            raise InvalidArgument(f"text: has {len(ids)} tokens, expected at least 2 to score one")
        scores: list[float] = []
        for begin, end, first in windows(len(ids), size, step):
            part = ids[begin:end]
            found = self._driver.run(partial(_score, part))
            scores.extend(found[first - begin - 1 :].tolist())
        return Score(tuple(ids.tolist()), tuple(scores))

    @property
    def name(self) -> str:
        """What the model is called: a folder's or file's name, or the hub id."""
        return self._name

    @property
    def spec(self) -> DecoderSpec:
        """The decoder's shape and choices."""
        return self._spec

    @property
    def device(self) -> str:
        """What computes: "cpu", "cuda:0"."""
        return self._device

    @property
    def dtype(self) -> str:
        """What most of the layers' weights are held in: "f32", "f16", "bf16", "int8" or "int4"."""
        return self._weight_dtypes.name

    @property
    def weight_dtypes(self) -> WeightDtypes:
        """What each matrix is held in."""
        return self._weight_dtypes

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def context(self) -> int:
        """Tokens of prompt and output together: what the model allows, or ``max_context``."""
        return self._context

    @property
    def kv_dtype(self) -> str:
        """What keys and values are held in, by its shortest name."""
        return self._kv.name

    @property
    def cache(self) -> PrefixCache:
        """What is kept of finished requests."""
        return self._cache

    @property
    def fingerprint(self) -> str:
        """A digest of the spec and of samples of the weights as they are held."""
        return fingerprint_in(self._origin)

    @property
    def weight_bytes(self) -> int:
        return self._weight_bytes

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer; TokenizerError if the model came without one."""
        return self._text_tokenizer()

    def stats(self) -> dict[str, int]:
        """The engine's counters: steps, tokens, computed keys and values, cache blocks."""
        return self._driver.run(lambda engine: engine.stats())

    def engine_handle(self) -> int:
        """A new ``onward_engine`` of the C interface over this very engine, for native code, which
        closes it with ``onward_engine_close`` (docs/c-interface.md). The engine lives as long."""
        eos = self._submitter.defaults.eos_token_ids
        return self._driver.run(lambda engine: engine.new_handle(eos))

    def close(self) -> None:
        """Give the engine and the weights back. Every later call raises ClosedError."""
        driver: Driver | None = getattr(self, "_driver", None)
        if driver is not None:
            driver.close()
            self._workers.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<onward.LLM {self._name}: {self._spec.architecture}, {self.dtype}, "
            f"{self._threads} threads>"
        )

    def _text_tokenizer(self) -> Tokenizer:
        self._driver.check_open()
        if self._tokenizer is None:
            raise TokenizerError(self._no_tokenizer)
        return self._tokenizer

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            tokenizer = self._text_tokenizer()
            self._template = self._read_template(tokenizer)
        return self._template


def _score(ids: NDArray[np.int32], engine: _core.Engine) -> NDArray[np.float64]:
    return engine.score(ids)
