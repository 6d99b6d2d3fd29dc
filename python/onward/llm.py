"""LLM: a loaded model that turns prompts into text.

It connects the parts: the files of the model, its tokenizer and chat template, the options and the
engine.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onward import _core
from onward.calls.prefix_cache import PrefixCache
from onward.calls.prompts import PromptReader, TokenIds
from onward.calls.requests import RequestWriter
from onward.calls.scoring import Score, windows
from onward.calls.submission import Submitter
from onward.errors import InvalidArgument
from onward.load import pack_contents as contents
from onward.load.hub import ModelFiles, find_model
from onward.load.loading import LoadedModel, check_device, check_dtypes
from onward.load.model_texts import read_template, read_tokenizer
from onward.load.origin import fingerprint_in, origin_of
from onward.load.packed_cache import load_with_cache
from onward.load.weights.dtypes import WeightDtypes
from onward.machine.memory import trim_heap
from onward.machine.progress import ProgressBar
from onward.machine.workers import Workers
from onward.options.cache import CacheOptions
from onward.options.model_defaults import read_model_defaults, without_counterpart
from onward.options.values import check_integer
from onward.spec import DecoderSpec
from onward.text.template.template import ChatTemplate
from onward.text.tokenizer.tokenizer import Tokenizer
from onward.text_calls import TextCalls

if TYPE_CHECKING:
    from onward.options.resolution import ModelDefaults

MAX_THREADS = 1024


class LLM(TextCalls):
    """A model in memory.

    Args:
        model: a folder, a .gguf file, a pack (onward doctor --docs pack) or a model of the hub:
            "user/repo", "user/repo:Q4_K_M" for one GGUF file of it, "user/repo@revision" (onward
            doctor --docs models). None is the default model.
        revision: branch, tag or commit of a hub model; the same as "@revision".
        device: where to compute: "cpu", "cuda" or "cuda:1". ``onward.devices()`` lists the devices
            and says why one cannot be used.
        dtype: dtype of the weights: "f32", "f16", "bf16", "int8" or "int4" (groups of 32 with one
            scale each; the inputs of the products are rounded to int8 as well), or "auto" for the
            dtype of the file. GGUF's Q8_0, Q4_0 and Q4_1 run without conversion.
        head_dtype: dtype of the embedding and the output head. None is ``dtype``, or "int8" beside
            "int4" unless the file has four bits there.
        threads: number of computing threads; None is the number of processors that this process
            may use.
        prefill_chunk_tokens: largest number of tokens in one step. A smaller number lets other
            requests in sooner.
        max_sequences: largest number of sequences in the cache at one time; further requests wait.
        draft_model: a smaller model with the same vocabulary. It guesses tokens, and this model
            checks several at a time: the output is the same, and sooner if the guesses are good.
        kv_dtype: dtype of the cached keys and values: "auto" for the float type that fits the
            weights, "f32", "f16", "bf16", or codes: "int8", "turbo8v4", "turbo4", "turbo3",
            "turbo2", "q4_0", or "keys/values" for one of each. The first block and the newest
            tokens are never coded (onward doctor --docs kv).
        kv_window_tokens: number of newest tokens that are not coded, in whole blocks of 16.
        kv_sinks: whether the first block is not coded.
        kv_cache_bytes: limit for the keys and values; None is most of the free memory. Requests
            wait for room, and a request that can never fit is refused.
        max_context: largest number of tokens of prompt and output together; None is the limit of
            the model.
        attention_window: an approximation (StreamingLLM) for texts without end: each token sees
            only the first 4 and this many newest tokens. None: each token sees all tokens, as the
            model was trained.
        prefix_cache: whether the beginnings of finished requests are kept for later requests.
        packed_cache: a folder that keeps a pack of the weights. The first load of a model in
            given dtypes writes it, with a second progress bar. Later loads read the pack instead of
            the files of the model, until these change.

    Several threads may use it at the same time; their requests share each step. ``close()``, or a
    ``with`` block, frees the memory.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        revision: str | None = None,
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
        files = find_model(model, revision)
        draft_files = (
            None if draft_model is None else find_model(draft_model, argument="draft_model")
        )

        def load(files: ModelFiles, kept: Any, kv_dtype: object = "auto") -> LoadedModel:
            with ProgressBar(f"loading {files.name}") as progress:
                return load_with_cache(
                    kept, files, dtype, self._threads, progress, head_dtype, kv_dtype, self._device
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
        if draft_files is not None:
            draft = load(draft_files, None if draft_files.kind == "pack" else packed_cache)
        mapped = loaded.mapped_bytes + (0 if draft is None else draft.mapped_bytes)
        self._engine = _core.Engine(
            loaded.core,
            threads=self._threads,
            prefill_chunk_tokens=chunk,
            max_sequences=most_sequences,
            draft=None if draft is None else draft.core,
            **cache_options.engine_arguments(
                loaded.kv, mapped, _core.device_free_bytes(self._device)
            ),
        )
        self._kv = loaded.kv
        self._cache = PrefixCache(self._engine)
        self._origin = origin_of(loaded, cache_options, _core.__version__)
        self._submitter = Submitter(
            self._engine,
            self._reader,
            requests,
            defaults,
            self._text_tokenizer,
            lambda: bool(self._chat_template().names),
            most_sequences,
            draft is not None,
        )

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text, with the BOS that ``generate`` would add."""
        return self._text_tokenizer().encode(text, add_special_tokens=add_special_tokens)

    def detokenize(self, token_ids: TokenIds, *, skip_special_tokens: bool = True) -> str:
        """The text of token ids.

        Raises:
            InvalidArgument: an id is outside the vocabulary.
        """
        tokenizer = self._text_tokenizer()
        ids = self._reader.ids("token_ids", token_ids, allow_empty=True).tolist()
        return tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def logits(self, token_ids: TokenIds) -> NDArray[np.float32]:
        """Logits after each token: (len(token_ids), vocab_size). Row i predicts token i + 1."""
        self._engine.check_open()
        ids = self._reader.read("token_ids", token_ids, None)
        return self._engine.logits(ids)

    def score(
        self, text: str | TokenIds, *, window: int | None = None, stride: int | None = None
    ) -> Score:
        """The log-probability of each token of a text, or of token ids, and the perplexity.

        A text longer than ``window`` (default: the context of the model) is read in windows. Each
        begins ``stride`` tokens (default: half a window) after the one before. Every token is
        scored once, in the first window that contains it.

        Raises:
            InvalidArgument: there are fewer than two tokens.
            NumericsError: the logits of the model are not finite.
        """
        self._engine.check_open()
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
            found = self._engine.score(part)
            scores.extend(found[first - begin - 1 :].tolist())
        return Score(tuple(ids.tolist()), tuple(scores))

    @property
    def name(self) -> str:
        """The name of the model: the name of a folder or file, or the hub id."""
        return self._name

    @property
    def spec(self) -> DecoderSpec:
        """The shape of the decoder and its variants."""
        return self._spec

    @property
    def device(self) -> str:
        """The device: "cpu", "cuda:0"."""
        return self._device

    @property
    def dtype(self) -> str:
        """The dtype of most weights of the layers: "f32", "f16", "bf16", "int8" or "int4"."""
        return self._weight_dtypes.name

    @property
    def weight_dtypes(self) -> WeightDtypes:
        """The dtype of each matrix."""
        return self._weight_dtypes

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def context(self) -> int:
        """Largest number of tokens of prompt and output: ``max_context``, or the limit of the
        model."""
        return self._context

    @property
    def kv_dtype(self) -> str:
        """The dtype of keys and values, by its shortest name."""
        return self._kv.name

    @property
    def generation_defaults(self) -> ModelDefaults:
        """The generation settings in the model's own files."""
        return self._submitter.defaults

    @property
    def cache(self) -> PrefixCache:
        """The cached prefixes of finished requests."""
        return self._cache

    @property
    def fingerprint(self) -> str:
        """A digest of the spec and of samples of the packed weights."""
        return fingerprint_in(self._origin)

    @property
    def weight_bytes(self) -> int:
        return self._weight_bytes

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            TokenizerError: the model has no tokenizer.
        """
        return self._text_tokenizer()

    def stats(self) -> dict[str, int]:
        """The counters of the engine: steps, tokens, computed keys and values, cache blocks."""
        return self._engine.stats()

    def engine_handle(self) -> int:
        """A new ``onward_engine`` of the C interface for this engine, for native code (onward
        doctor --docs c-interface). Close it with ``onward_engine_close``. The engine lives at
        least as long as the handle."""
        return self._engine.new_handle(self._submitter.defaults.eos_token_ids)

    def close(self) -> None:
        """Free the engine and the weights. Every later call raises ClosedError."""
        engine: _core.Engine | None = getattr(self, "_engine", None)
        if engine is not None:
            engine.close()
            self._workers.close()
            trim_heap()

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
