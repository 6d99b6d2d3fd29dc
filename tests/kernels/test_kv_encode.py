"""Coding of keys and values: every instruction set with encoders of its own, and the CUDA kernels,
must give the bits of numpy.

The expected codes are computed once for all of them. Codecs, head dimensions and dtypes are a
pairwise covering array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders import kv_codes
from builders.covering import pairwise
from builders.instruction_sets import distinct
from builders.kernel_arrays import F32, assert_bits, kernels, normal, to_bf16, widen
from builders.kernel_places import CUDA_HOST, PLACES, encode_block, need
from onward.errors import InvalidArgument

HEAD_DIMS = [32, 36, 64, 80, 96, 112, 128, 160, 192, 256]
DTYPES = ["f32", "f16", "bf16"]
ROTATED = [32, 64, 96, 128, 160, 192, 224, 256, 480, 512]
FLOAT_ISAS = ["generic", *distinct("floats")]

each_isa = pytest.mark.parametrize("isa", FLOAT_ISAS)


@pytest.fixture(params=PLACES)
def places(request: pytest.FixtureRequest) -> list[str]:
    """All of them are held against numpy."""
    return [need(CUDA_HOST)] if request.param == CUDA_HOST else FLOAT_ISAS


def stored(x: F32, dtype: str) -> NDArray[Any]:
    """As a cache of that dtype has it."""
    with np.errstate(over="ignore"):
        return {"f32": x, "f16": x.astype(np.float16)}.get(dtype, to_bf16(x))


def value(array: NDArray[Any]) -> F32:
    return widen(array) if array.dtype == np.uint16 else array.astype(np.float32)


def encoded(
    place: str,
    keys: NDArray[Any],
    values: NDArray[Any],
    codec: str,
    first_keys: NDArray[Any] | None = None,
) -> list[tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.float16]]]:
    """Of keys and of values: bytes, codes (16, D), scales (groups, 16)."""
    dims = kv_codes.coded_dim(keys.shape[1])
    found = encode_block(place, keys, values, codec, codec, first_keys)
    return [
        (
            found[i],
            kv_codes.unpack(found[i], codec, i == 0, dims),
            found[i + 1].view(np.float16).reshape(-1, 16),
        )
        for i in (0, 2)
    ]


def expect_twin(
    places: list[str],
    keys: NDArray[Any],
    values: NDArray[Any],
    codec: str,
    first: NDArray[Any] | None,
) -> None:
    """Codes, scales and bytes of both sides equal numpy."""
    first_keys = None if first is None else value(first)
    with np.errstate(all="ignore"):
        coded = [
            kv_codes.prepare(value(keys), codec, first_keys),
            kv_codes.prepare(value(values), codec),
        ]
    expected = [kv_codes.encode(coded[i], codec, keys=i == 0) for i in (0, 1)]
    for place in places:
        for i, (raw, codes, scales) in enumerate(encoded(place, keys, values, codec, first)):
            expected_codes, expected_scales = expected[i]
            assert_bits(codes, expected_codes, place)
            assert (scales.view(np.uint16) == expected_scales.view(np.uint16)).all(), place
            assert_bits(raw, kv_codes.pack(codes, codec, i == 0), place)


@pairwise(codec=kv_codes.CODECS, head_dim=HEAD_DIMS, dtype=DTYPES, centred=[True, False])
def test_codes_equal_numpy(
    places: list[str], codec: str, head_dim: int, dtype: str, centred: bool
) -> None:
    keys = stored(normal(1, 16, head_dim) + 3 * normal(2, head_dim), dtype)
    values = stored(normal(3, 16, head_dim, scale=0.1), dtype)
    first = stored(normal(4, 16, head_dim) + 3 * normal(2, head_dim), dtype)
    expect_twin(places, keys, values, codec, first if centred else None)


@pytest.mark.parametrize(
    "scale", [0.0, 1e-45, 1e-38, 1e-25, 1e-19, 1e-8, 1e-4, 1e4, 1e6, 1e18, 1e38]
)
@pytest.mark.parametrize("codec", kv_codes.CODECS)
def test_any_magnitude(places: list[str], codec: str, scale: float) -> None:
    with np.errstate(over="ignore"):
        keys, values = normal(1, 16, 96, scale=scale), normal(2, 16, 96, scale=scale)
    keys[1::2] = 0
    values[::2] = 0
    expect_twin(places, keys, values, codec, None)
    for side, (_, codes, scales) in enumerate(encoded(places[-1], keys, values, codec)):
        silent = slice(1, None, 2) if side == 0 else slice(0, None, 2)
        assert (scales[:, silent] == 0).all()
        assert (kv_codes.decode(codes, scales, codec)[silent] == 0).all()


@pytest.mark.parametrize("codec", kv_codes.CODECS)
def test_equal_magnitudes(places: list[str], codec: str) -> None:
    """Few values, exact in every step of the rotation: ties wherever something can tie."""
    rng = np.random.default_rng(1)
    for head_dim in (32, 64, 256):
        for limit in (1, 2, 7):
            keys = rng.integers(-limit, limit + 1, (16, head_dim)).astype(np.float32)
            values = (rng.random((16, head_dim)) < 0.1).astype(np.float32) * np.float32(limit)
            expect_twin(places, keys, values, codec, None)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("codec", kv_codes.CODECS)
def test_values_that_are_not_finite_stay_not_finite(
    places: list[str], codec: str, wrong: float
) -> None:
    """In its token, and for the codecs without rotation in its group alone."""
    keys, values = normal(1, 16, 64), normal(2, 16, 64)
    keys[3, 7] = values[5, 40] = wrong
    expect_twin(places, keys, values, codec, None)
    for token, group, (_, _, scales) in zip(
        (3, 5), (0, 1), encoded(places[-1], keys, values, codec), strict=True
    ):
        expected = np.zeros(scales.shape, bool)
        expected[group if codec == "q4_0" else slice(None), token] = True
        assert (np.isnan(scales) == expected).all()


@pytest.mark.parametrize("codec", kv_codes.CODECS)
def test_the_codes_of_a_token_do_not_depend_on_other_tokens(places: list[str], codec: str) -> None:
    place, keys, values = places[-1], normal(1, 16, 80), normal(2, 16, 80)
    whole = encoded(place, keys, values, codec)
    others = np.arange(16) != 6
    keys[others], values[others] = normal(3, 15, 80, scale=50.0), np.nan
    for (_, codes, scales), (_, expected_codes, expected_scales) in zip(
        encoded(place, keys, values, codec), whole, strict=True
    ):
        assert_bits(codes[6], expected_codes[6])
        assert_bits(scales[:, 6], expected_scales[:, 6])


@pytest.mark.parametrize("first_centred_pair", [0, 1, 13, 20])
@pytest.mark.parametrize("codec", kv_codes.CODECS)
def test_fast_coordinates_are_not_centred(
    places: list[str], codec: str, first_centred_pair: int
) -> None:
    keys, first = normal(1, 16, 40) + 2 * normal(2, 40), normal(3, 16, 40) + 2 * normal(2, 40)
    wanted = kv_codes.prepare(keys, codec, first, first_centred_pair)
    codes, expected_scales = kv_codes.encode(wanted, codec, keys=True)
    for place in places:
        found, scales, *_ = encode_block(place, keys, keys, codec, codec, first, first_centred_pair)
        assert_bits(found, kv_codes.pack(codes, codec, True), place)
        assert_bits(scales.view(np.float16).reshape(-1, 16), expected_scales, place)
        if first_centred_pair == 20:
            assert_bits(found, encode_block(place, keys, keys, codec, codec)[0], place)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [36, 64])
def test_an_exact_side_is_copied(places: list[str], head_dim: int, dtype: str) -> None:
    keys, values = stored(normal(1, 16, head_dim), dtype), stored(normal(2, 16, head_dim), dtype)
    for place in places:
        key_bytes, key_scales, *_ = encode_block(place, keys, values, "exact", "turbo4")
        assert_bits(key_bytes.view(keys.dtype).reshape(head_dim, 16).T.copy(), keys)
        assert key_scales.size == 0
        *_, value_bytes, value_scales = encode_block(place, keys, values, "turbo4", "exact")
        rows = value_bytes.view(values.dtype).reshape(16, -1)
        assert_bits(rows[:, :head_dim].copy(), values)
        assert value_scales.size == 0


def coded_parts(group: NDArray[np.uint8], heads: int, dims: int, key_codec: str, value_codec: str):
    """The parts of a group's blocks: for each layer and head, bytes as `encode_block` has them."""
    sizes = [16 * dims * kv_codes.BITS[codec] // 8 for codec in (key_codec, value_codec)]
    scale_sizes = [
        32 * (dims // 32 if kv_codes.grouped(codec) else 1) for codec in (key_codec, value_codec)
    ]
    layers = group.shape[1] // (heads * (sum(sizes) + sum(scale_sizes)))
    for block in group:
        for head in range(layers * heads):
            code, scale = head * sum(sizes), layers * heads * sum(sizes) + head * sum(scale_sizes)
            yield [
                block[code : code + sizes[0]],
                block[scale : scale + scale_sizes[0]],
                block[code + sizes[0] : code + sum(sizes)],
                block[scale + scale_sizes[0] : scale + sum(scale_sizes)],
            ]


@pytest.mark.parametrize("isa", distinct("floats"))
@pytest.mark.parametrize("codecs", [("int8", "turbo4"), ("turbo3", "q4_0"), ("turbo2", "turbo2")])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_backend_encodes_each_layer_in_its_group(
    isa: str, threads: int, codecs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And on any number of threads alike."""
    monkeypatch.setenv("ONWARD_CPU_ISA", isa)
    keys, values = normal(1, 3, 3, 2, 16, 40), normal(2, 3, 3, 2, 16, 40)
    first, groups = normal(3, 3, 2, 16, 40), [0, 1, 0]
    found = kernels.encode_blocks(keys, values, *codecs, groups, first, threads)
    for group, blocks in enumerate(found):
        own = [layer for layer in range(3) if groups[layer] == group]
        parts = coded_parts(blocks, 2, 64, *codecs)
        for b in range(3):
            for layer in own:
                for head in range(2):
                    place = (b, layer, head)
                    expected = kernels.encode_block(
                        isa, keys[place], values[place], *codecs, first[layer, head]
                    )
                    for one, other in zip(next(parts), expected, strict=True):
                        assert_bits(one, other)
        assert next(parts, None) is None


@pytest.mark.parametrize("codecs", [("int8", "turbo4"), ("turbo3", "q4_0"), ("exact", "turbo2")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_device_encodes_whole_blocks_like_the_processor(
    dtype: str, codecs: tuple[str, str]
) -> None:
    """Each layer in its group, and nothing beside."""
    device = need(CUDA_HOST)
    keys, values = (stored(normal(seed, 3, 3, 2, 16, 40), dtype) for seed in (1, 2))
    first, groups = stored(normal(3, 3, 2, 16, 40), dtype), [0, 1, 0]
    expected = kernels.encode_blocks(keys, values, *codecs, groups, first, 1)
    found = kernels.encode_blocks(keys, values, *codecs, groups, first, 2, device=device)
    for one, other in zip(found, expected, strict=True):
        assert_bits(one, other)


def test_q4_0_by_hand(places: list[str]) -> None:
    """As llama.cpp rounds: the extreme is exact, with its sign; 8 codes below zero, 7 above."""
    x = np.zeros((16, 32), np.float32)
    x[0, :6] = [-4, 3.9, 0.24, 0.26, -0.25, 2]
    x[1, :3] = [8, -7.4, -8]  # the first of equals: negative scale
    expect_twin(places, x, x, "q4_0", None)
    (_, codes, scales), _ = encoded(places[-1], x, x, "q4_0")
    assert scales[0, 0] == 0.5 and scales[0, 1] == -1
    assert codes[0, :7].tolist() == [0, 15, 8, 9, 8, 12, 8]
    assert codes[1, :4].tolist() == [0, 15, 15, 8]
    assert (codes[2:] == 8).all() and (scales[0, 2:] == 0).all()


def test_the_projection_of_a_coded_turbo_key_on_itself_is_exact() -> None:
    keys, values = normal(1, 16, 128), normal(2, 16, 128)
    for codec in ("turbo4", "turbo3", "turbo2"):
        (_, key_codes, key_scales), (_, codes, scales) = encoded("generic", keys, values, codec)
        wanted = kv_codes.prepare(keys, codec)
        found = kv_codes.decode(key_codes, key_scales, codec)
        along = (found * wanted).sum(axis=1) / (wanted**2).sum(axis=1)
        assert np.abs(along - 1).max() < 1e-3
        # The error of a coded value is orthogonal to the value that the codes stand for.
        found = kv_codes.decode(codes, scales, codec)
        error = found - kv_codes.prepare(values, codec)
        along = (error * found).sum(axis=1) / (found**2).sum(axis=1)
        assert np.abs(along).max() < 1e-3


@pytest.mark.parametrize(
    ("codec", "error"), [("turbo4", 0.0095), ("turbo3", 0.0345), ("turbo2", 0.1175)]
)
def test_errors_equal_the_optimal_quantiser_of_a_normal_distribution(
    codec: str, error: float
) -> None:
    """Max's figures (1960), and a little below: each vector has a step of its own."""
    relative = []
    for seed in range(20):
        x = normal(seed, 16, 512)
        _, (_, codes, scales) = encoded("generic", x, x, codec)
        wanted = kv_codes.prepare(x, codec)
        difference = (kv_codes.decode(codes, scales, codec) - wanted).astype(np.float64)
        relative.append((difference**2).sum() / (wanted.astype(np.float64) ** 2).sum())
    assert 0.92 * error < np.mean(relative) < error


@each_isa
@pytest.mark.parametrize("n", ROTATED)
def test_rotation(isa: str, n: int) -> None:
    """Its bits equal numpy; lengths do not change; the inverse restores the input."""
    x = normal(n, n, 16)
    rows = [kernels.hadamard(isa, x[:, t].copy()) for t in range(16)]
    assert_bits(np.array(rows), kv_codes.hadamard(x.T))
    assert_bits(kernels.hadamard_lanes(isa, x).T.copy(), np.array(rows))
    for t, row in enumerate(rows):
        back = kernels.hadamard(isa, row, True)
        assert_bits(back, kv_codes.inverse_hadamard(row))
        assert np.abs(back - x[:, t]).max() < 4e-6
        assert np.linalg.norm(row) == pytest.approx(np.linalg.norm(x[:, t]), rel=1e-6)


@each_isa
@pytest.mark.parametrize("n", [32, 96, 256])
def test_rotation_is_orthogonal(isa: str, n: int) -> None:
    """No two rows of its matrix overlap, and every entry of a block has the same magnitude."""
    matrix = np.array([kernels.hadamard(isa, row) for row in np.eye(n, dtype=np.float32)])
    wide = matrix.astype(np.float64)
    assert np.abs(wide @ wide.T - np.eye(n)).max() < 1e-6
    for block in kv_codes.blocks_of(n):
        size = block.stop - block.start
        assert np.abs(np.abs(matrix[block, block]) - size**-0.5).max() < 1e-7
    if n == 96:
        assert (matrix[:64, 64:] == 0).all() and (matrix[64:, :64] == 0).all()


def test_mistakes_are_value_errors() -> None:
    isa, x = "generic", normal(1, 16, 64)
    with pytest.raises(InvalidArgument, match="codec of keys: found 'turbo5', expected exact"):
        kernels.encode_block(isa, x, x, "turbo5", "int8")
    with pytest.raises(ValueError, match="values has shape"):
        kernels.encode_block(isa, x, x[:3].copy(), "int8", "int8")
    with pytest.raises(ValueError, match="first_keys are strided or of another dtype"):
        kernels.encode_block(isa, x, x, "int8", "int8", x.astype(np.float16))
    with pytest.raises(ValueError, match="multiple of 32 up to 512"):
        kernels.hadamard(isa, normal(1, 48))
