"""CTranslate2 on the source model's weights, in batches.

It has no continuous batching: the sequences of a batch begin together. The part of a prompt beyond
the length of the shortest prompt is read one token per step. A callback can end a sequence early.
The fastest way depends on the requests, so ``prepare`` tries several batch sizes and keeps the
best.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from engines.contest import Absent, Clock, Request, Stopwatch, Timed
from engines.source_model import SourceModel, half_rows

INSTALL = "pip install ctranslate2"
SHARES = (1, 2, 4)  # of the requests in one batch: all, half, a quarter
BLOCK_TENSORS = (
    *("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"),
    *("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"),
)
# Its OpenMP threads spin for this time after a batch, which would slow down the next engine.
SPINS_S = 0.25


class CTranslate2:
    """CTranslate2 with one compute type, in batches of the size that is fastest."""

    serial = False

    def __init__(self, source: SourceModel, compute_type: str, threads: int) -> None:
        ctranslate2 = _package()
        folder = converted(source)
        self.name = f"CT2 {compute_type.removesuffix('_float32')}"
        self.setting = f"ctranslate2 {ctranslate2.__version__}, {compute_type}"
        # Threads that share each product, or threads that take a batch each: two models in memory,
        # the second one when it is first tried.
        self._generator = cache(
            lambda workers: ctranslate2.Generator(
                str(folder),
                compute_type=compute_type,
                inter_threads=workers,
                intra_threads=threads // workers,
                max_queued_batches=-1,
            )
        )
        self._workers = sorted({1, threads})
        self._generator(1)
        self._tokens = source.metadata("tokenizer.ggml.tokens")
        self._ways: dict[tuple[Request, ...], tuple[int, int]] = {}

    def prepare(self, requests: Sequence[Request], clock: Clock) -> str:
        count = len(requests)
        sizes = sorted({max(1, count // share) for share in SHARES})
        ways = [(workers, size) for workers in self._workers for size in sizes]
        best, best_way = math.inf, (1, count)
        for workers, size in ways:
            if workers > 1 and workers * size > count:
                continue  # some workers would have no work
            started = clock()
            end = started + best
            self._run(requests, workers, size, overdue=lambda end=end: clock() > end)
            seconds = clock() - started
            if seconds < best:
                best, best_way = seconds, (workers, size)
            time.sleep(SPINS_S)
        self._ways[tuple(requests)] = best_way
        at_a_time = f", {best_way[0]} at a time" if best_way[0] > 1 else ""
        return f"batches of {best_way[1]}{at_a_time}"

    def run(self, requests: Sequence[Request]) -> list[list[int]]:
        return self._run(requests, *self._ways.get(tuple(requests), (1, len(requests))))

    def follow(self, request: Request) -> Timed:
        watch = Stopwatch()
        self._generator(1).generate_batch(
            [[self._tokens[token] for token in request.prompt]],
            include_prompt_in_result=False,
            max_length=request.new_tokens,
            end_token=[],
            callback=lambda step: watch.note(step.token_id),
        )
        return watch.timed()

    def close(self) -> None:
        self._generator.cache_clear()

    def _run(
        self,
        requests: Sequence[Request],
        workers: int,
        size: int,
        overdue: Callable[[], bool] = lambda: False,
    ) -> list[list[int]]:
        # Like its own max_batch_size: requests of similar length share a batch, the longest first.
        order = sorted(range(len(requests)), key=lambda i: len(requests[i].prompt), reverse=True)
        batches = [order[begin : begin + size] for begin in range(0, len(order), size)]
        generated: list[list[int]] = [[] for _ in requests]
        running = []
        for batch in batches:
            running += self._submit(self._generator(workers), batch, requests, generated, overdue)
        for result in running:
            result.result()
        return generated

    def _submit(
        self,
        generator: Any,
        batch: list[int],
        requests: Sequence[Request],
        generated: list[list[int]],
        overdue: Callable[[], bool],
    ) -> list[Any]:
        longest = max(requests[index].new_tokens for index in batch)

        def take(step: Any) -> bool:
            index = batch[step.batch_id]
            generated[index].append(step.token_id)
            enough = len(generated[index]) >= requests[index].new_tokens
            return enough or overdue()

        return generator.generate_batch(  # type: ignore[no-any-return]
            [[self._tokens[token] for token in requests[index].prompt] for index in batch],
            asynchronous=True,
            include_prompt_in_result=False,
            max_length=longest,
            end_token=[],
            callback=take,
        )


def _package() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise Absent(INSTALL) from None
    return ctranslate2


def compute_types() -> list[str]:
    """The compute types that this CPU supports, the most precise first."""
    supported = _package().get_supported_compute_types("cpu")
    wanted = ("float32", "bfloat16", "int8_float32")
    return [name for name in wanted if name in supported]


def converted(source: SourceModel) -> Path:
    """The folder that it loads, for every compute type."""
    return source.converted("ctranslate2", lambda path: _write(source, path))


def _write(source: SourceModel, folder: Path) -> None:
    """The weights as a CTranslate2 model of the llama family, in float32."""
    from ctranslate2.specs import TransformerDecoderModelSpec, common_spec

    if source.metadata("general.architecture") != "llama":
        raise Absent("only models of the llama family are converted")
    heads = source.metadata("llama.attention.head_count")
    kv_heads = source.metadata("llama.attention.head_count_kv", heads)
    head_dim = source.metadata("llama.embedding_length") // heads
    tensors = dict(source.tensors())
    spec = TransformerDecoderModelSpec.from_config(
        source.metadata("llama.block_count"),
        heads,
        activation=common_spec.Activation.SWISH,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=head_dim,
        rotary_interleave=False,
        rotary_base=source.metadata("llama.rope.freq_base", 10000.0),
        num_heads_kv=kv_heads,
        head_dim=head_dim,
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = tensors["token_embd.weight"]
    decoder.projection.weight = tensors.get("output.weight", tensors["token_embd.weight"])
    decoder.layer_norm.gamma = tensors["output_norm.weight"]
    for index, layer in enumerate(decoder.layer):
        block = {name: tensors[f"blk.{index}.{name}.weight"] for name in BLOCK_TENSORS}
        attention, feed_forward = layer.self_attention, layer.ffn
        attention.layer_norm.gamma = block["attn_norm"]
        attention.linear[0].weight = np.concatenate(
            [
                half_rows(block["attn_q"], heads),
                half_rows(block["attn_k"], kv_heads),
                block["attn_v"],
            ]
        )
        attention.linear[1].weight = block["attn_output"]
        feed_forward.layer_norm.gamma = block["ffn_norm"]
        feed_forward.linear_0.weight = block["ffn_gate"]
        feed_forward.linear_0_noact.weight = block["ffn_up"]
        feed_forward.linear_1.weight = block["ffn_down"]
    tokens = source.metadata("tokenizer.ggml.tokens")
    spec.register_vocabulary(tokens)
    spec.config.bos_token = tokens[source.metadata("tokenizer.ggml.bos_token_id", 1)]
    spec.config.eos_token = tokens[source.metadata("tokenizer.ggml.eos_token_id", 2)]
    spec.config.unk_token = tokens[source.metadata("tokenizer.ggml.unknown_token_id", 0)]
    spec.config.layer_norm_epsilon = source.metadata("llama.attention.layer_norm_rms_epsilon")
    spec.validate()
    spec.optimize()
    folder.mkdir()
    spec.save(str(folder))
