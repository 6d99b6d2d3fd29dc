"""Layers that see chunks of positions, and layers whose heads differ in number and size.

Each model is compared with one that gives the same logits without the feature: a text cut at the
chunks, repeated kv heads, and heads or values that are padded with zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.core_engine import complete, random_prompt, submit
from builders.kernel_places import CUDA_HOST, need
from onward import _core
from onward.errors import InvalidArgument

F32 = NDArray[np.float32]
Parts = dict[str, list[F32]]
HIDDEN, INNER, VOCABULARY, HEADS, KV_HEADS, DIM = 48, 64, 96, 4, 2, 32
LAYERS = 2
CODES = {"kv_keys": "int8", "kv_values": "int8", "kv_window_tokens": 16}
CLOSE = 2e-4
"""The largest difference of logits around 1, if positions or the order of sums differ."""


def weights() -> Parts:
    """The weights of a model with two equal layers. q, k and v have a row for each number of a
    head."""
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> F32:
        return random.standard_normal((rows, columns), np.float32) * np.float32(columns**-0.5)

    one = np.ones(HIDDEN, np.float32)
    found: Parts = {"embed": [matrix(VOCABULARY, HIDDEN)], "head": [matrix(VOCABULARY, HIDDEN)]}
    found["norm"] = [one]
    for layer in range(LAYERS):
        made = {
            "attention_norm": [one],
            "qkv": [3 * matrix(HEADS * DIM, HIDDEN), *(matrix(KV_HEADS * DIM, HIDDEN),) * 2],
            "o": [matrix(HIDDEN, HEADS * DIM)],
            "mlp_norm": [one],
            "gate_up": [matrix(INNER, HIDDEN), matrix(INNER, HIDDEN)],
            "down": [matrix(HIDDEN, INNER)],
        }
        found |= {f"layers.{layer}.{name}": parts for name, parts in made.items()}
    return found


def model(changed: Parts | None = None, device: str = "cpu", **spec: Any) -> _core.Model:
    fields = {
        "architecture": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "head_dim": DIM,
        "norm_eps": 1e-5,
        "max_context": 4096,
        "rope": {"inv_freq": [1000.0 ** (-2 * i / DIM) for i in range(DIM // 2)]},
    }
    builder = _core.ModelBuilder(_core.DecoderSpec({**fields, **spec}), "f32", 2, device)
    for name, parts in {**weights(), **(changed or {})}.items():
        arrays = [np.ascontiguousarray(part, np.float32) for part in parts]
        builder.add(name, [(part, "F32", part.shape, None) for part in arrays], dtype="f32")
    return builder.finish()


def engine(of: _core.Model, **options: Any) -> _core.Engine:
    return _core.Engine(of, **{"threads": 2, "prefill_chunk_tokens": 37, **options})


def logits(of: _core.Model, prompt: NDArray[np.int32], **options: Any) -> F32:
    return engine(of, **options).logits(prompt)


class TestChunks:
    @pytest.mark.parametrize("chunk", [1, 16, 40])
    def test_each_chunk_is_a_separate_text(self, chunk: int) -> None:
        """Rotary positions are relative, so the place of a chunk has no effect."""
        prompt = random_prompt(100) % VOCABULARY
        found = logits(model(chunks=(chunk,) * LAYERS), prompt)
        whole = model()
        for begin in range(0, 100, chunk):
            part = prompt[begin : begin + chunk]
            assert np.abs(found[begin : begin + chunk] - logits(whole, part)).max() < CLOSE

    def test_a_chunk_longer_than_the_text_changes_no_bit(self) -> None:
        prompt = random_prompt(100) % VOCABULARY
        assert (logits(model(chunks=(100, 0)), prompt) == logits(model(), prompt)).all()

    @pytest.mark.parametrize("options", [{}, CODES])
    @pytest.mark.parametrize("chunk", [20, 64])
    def test_decode_and_shared_prefixes_give_the_tokens_of_prefill(
        self, options: dict[str, Any], chunk: int
    ) -> None:
        of = model(chunks=(chunk, 0))
        prompts = [random_prompt(n) % VOCABULARY for n in (50, 131)]
        together = complete(engine(of, **options), prompts, max_new_tokens=40)
        for prompt, tokens in zip(prompts, together, strict=True):
            alone = engine(of, **options)
            for _ in range(2):  # the second time with a kept prefix
                assert complete(alone, [prompt], max_new_tokens=40)[0] == tokens
            found = alone.logits(np.concatenate([prompt, np.array(tokens[:-1], np.int32)]))
            assert found[len(prompt) - 1 :].argmax(axis=1).tolist() == tokens

    @pytest.mark.parametrize("chunk", [1, 16, 24, 32])
    def test_blocks_of_earlier_chunks_are_returned_when_no_token_sees_them(
        self, chunk: int
    ) -> None:
        """With n tokens in the cache, the next one sees keys from n div chunk * chunk on."""
        of = model(chunks=(chunk,) * LAYERS)
        running = engine(of, prefill_chunk_tokens=64, prefix_cache=False)
        submit(running, random_prompt(3) % VOCABULARY, max_new_tokens=70)
        for tokens in range(3, 72):
            running.step()
            unseen = tokens // chunk * chunk // 16
            assert running.stats()["cache_blocks_in_use"] == -(-tokens // 16) - unseen, tokens


class TestHeads:
    @pytest.mark.parametrize("device", ["cpu", CUDA_HOST])
    @pytest.mark.parametrize("options", [{}, CODES])
    def test_repeated_kv_heads(self, options: dict[str, Any], device: str) -> None:
        """A layer with a kv head for each query head, two and two equal."""
        q, k, v = weights()["layers.1.qkv"]
        repeated = [
            np.repeat(part.reshape(KV_HEADS, DIM, HIDDEN), HEADS // KV_HEADS, axis=0)
            for part in (k, v)
        ]
        changed = {"layers.1.qkv": [q, *(part.reshape(-1, HIDDEN) for part in repeated)]}
        prompt = random_prompt(70) % VOCABULARY
        where = "cpu" if device == "cpu" else need(CUDA_HOST)
        found = logits(model(changed, where, layer_kv_heads=(0, HEADS)), prompt, **options)
        assert (found == logits(model(), prompt, **options)).all()

    def test_heads_with_zero_output_weights_change_nothing(self) -> None:
        q, k, v = weights()["layers.0.qkv"]
        (o,) = weights()["layers.0.o"]
        more_o = np.concatenate([o, np.zeros((HIDDEN, 2 * DIM), np.float32)], axis=1)
        changed = {
            "layers.0.qkv": [
                np.concatenate([q, q[: 2 * DIM]]),
                np.concatenate([k, k[:DIM]]),
                np.concatenate([v, v[:DIM]]),
            ],
            "layers.0.o": [more_o],
        }
        of = model(changed, layer_heads=(6, 0), layer_kv_heads=(3, 0))
        prompt = random_prompt(70) % VOCABULARY
        assert np.abs(logits(of, prompt) - logits(model(), prompt)).max() < CLOSE

    @pytest.mark.parametrize("value_dim", [36, 64])
    def test_values_padded_with_zeros(self, value_dim: int) -> None:
        changed: Parts = {}
        for layer in range(LAYERS):
            q, k, v = weights()[f"layers.{layer}.qkv"]
            (o,) = weights()[f"layers.{layer}.o"]
            wide_v = np.zeros((KV_HEADS, value_dim, HIDDEN), np.float32)
            wide_v[:, :DIM] = v.reshape(KV_HEADS, DIM, HIDDEN)
            wide_o = np.zeros((HIDDEN, HEADS, value_dim), np.float32)
            wide_o[..., :DIM] = o.reshape(HIDDEN, HEADS, DIM)
            changed[f"layers.{layer}.qkv"] = [q, k, wide_v.reshape(-1, HIDDEN)]
            changed[f"layers.{layer}.o"] = [wide_o.reshape(HIDDEN, -1)]
        of = model(changed, value_dim=value_dim)
        prompt = random_prompt(70) % VOCABULARY
        assert np.abs(logits(of, prompt) - logits(model(), prompt)).max() < CLOSE
        with pytest.raises(InvalidArgument, match="expected equal sizes for a coded cache"):
            engine(of, kv_keys="int8", kv_values="int8")


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({"chunks": (32, 0)}, "chunked attention"),
        ({"value_dim": 16}, "value heads of another size"),
        ({"attention": {"softcap": 5.0}}, "soft-capped attention"),
        ({"attention": {"sink_logits": True}}, "sink logits"),
        ({"attention": {"alibi_slopes": [1.0] * HEADS}}, "ALiBi"),
    ],
)
def test_a_model_that_cuda_cannot_compute_is_refused(changes: dict[str, Any], lacks: str) -> None:
    with pytest.raises(InvalidArgument, match=f"has {lacks}, which the device cuda-host"):
        model(device=need(CUDA_HOST), **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_heads": (5, 4)}, "spec: layer_heads of layer 0 is 5, expected a multiple"),
        ({"layer_head_dims": (32, 31)}, "spec: layer_head_dims is 31, expected an even number"),
        ({"layer_head_dims": (32, 64)}, "spec: layer_ropes of layer 1 is 0, expected a table"),
        ({"attention": {"alibi_slopes": [1.0] * 3}}, "alibi_slopes length is 3, expected 4"),
        ({"chunks": (4,)}, "spec: chunks length is 1, expected 2"),
        ({"value_dim": 513}, "spec: value_dim is 513, expected 0 to 512"),
        ({"head_dim": 578}, "spec: head_dim is 578, expected 2 to 576"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        model(**changes)
