"""Norms, rotation and append of queries, keys and values, against numpy in float64.

Every instruction set must give the bits of generic, and a token alone the bits of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from builders.covering import pairwise
from builders.instruction_sets import distinct
from builders.kernel_arrays import F32, assert_bits, kernels, normal
from builders.kernel_places import CUDA_HOST, need
from onward.errors import InvalidArgument

F64 = NDArray[np.float64]
Found = tuple[F32, F32, F32]
ROWS, EPS = 21, 1e-5


@dataclass(frozen=True)
class Case:
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 24
    value_dim: int = 24
    norm_over: str = ""
    """Empty: queries and keys have no norms."""
    after_rotation: bool = False
    v_norm: bool = False
    clip: float = 0.0
    scaled: bool = False
    layer: bool = False
    biased: bool = False

    @property
    def inputs(self) -> Found:
        return (
            normal(1, ROWS, self.heads, self.head_dim),
            normal(2, ROWS, self.kv_heads, self.head_dim),
            normal(3, ROWS, self.kv_heads, self.value_dim) * np.float32(3),
        )

    @property
    def angles(self) -> tuple[F32, F32]:
        angle = np.arange(ROWS)[:, None] * 0.3 * 0.7 ** np.arange(self.head_dim // 2)
        return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def weight(self, seed: int, heads: int) -> F32 | None:
        if not self.norm_over:
            return None
        count = 1 if self.norm_over == "head" else heads
        return 1 + normal(seed, count * self.head_dim) * np.float32(0.3)

    def bias(self, seed: int, heads: int) -> F32 | None:
        weight = self.weight(seed, heads)
        biased = self.layer and self.biased and weight is not None
        return normal(seed, len(weight)) if biased and weight is not None else None

    @property
    def scales(self) -> F32 | None:
        return np.linspace(0.5, 2, ROWS, dtype=np.float32) if self.scaled else None

    def run(self, first: int = 0, end: int = ROWS, device: str = "cpu") -> Found:
        options: dict[str, Any] = {
            "q_norm": self.weight(4, self.heads),
            "k_norm": self.weight(5, self.kv_heads),
            "q_bias": self.bias(6, self.heads),
            "k_bias": self.bias(7, self.kv_heads),
            "layer_norm": self.layer,
            "norm_over": self.norm_over or "head",
            "after_rotation": self.after_rotation,
            "v_norm": self.v_norm,
            "eps": EPS,
            "clip": self.clip,
            "q_scales": None if self.scales is None else self.scales[first:end],
        }
        q, k, v, cosines, sines = (
            np.ascontiguousarray(x[first:end]) for x in (*self.inputs, *self.angles)
        )
        return kernels.rotate_on(device, q, k, v, cosines, sines, first, **options)

    def expected(self) -> tuple[F64, F64, F64]:
        q, k, v = (x.astype(np.float64) for x in self.inputs)
        if self.clip:
            q, k, v = (np.clip(x, -self.clip, self.clip) for x in (q, k, v))
        q = self._normed_and_rotated(q, self.weight(4, self.heads), self.bias(6, self.heads))
        k = self._normed_and_rotated(k, self.weight(5, self.kv_heads), self.bias(7, self.kv_heads))
        if self.v_norm:
            v = v / np.sqrt((v**2).mean(axis=2, keepdims=True) + EPS)
        if self.scales is not None:
            q = q * self.scales[:, None, None]
        return q, k, v

    def _normed_and_rotated(self, x: F64, weight: F32 | None, bias: F32 | None) -> F64:
        half = self.head_dim // 2
        cosines, sines = (angle.astype(np.float64)[:, None] for angle in self.angles)

        def rotate(x: F64) -> F64:
            a, b = x[..., :half], x[..., half:]
            return np.concatenate([a * cosines - b * sines, b * cosines + a * sines], axis=2)

        def norm(x: F64) -> F64:
            axes = (1, 2) if self.norm_over == "all" else 2
            if self.layer:
                x = x - x.mean(axis=axes, keepdims=True)
            found: F64 = x / np.sqrt((x**2).mean(axis=axes, keepdims=True) + EPS)
            assert weight is not None
            found = found * weight.reshape(-1, self.head_dim)
            return found if bias is None else found + bias.reshape(-1, self.head_dim)

        if weight is None:
            return rotate(x)
        return norm(rotate(x)) if self.after_rotation else rotate(norm(x))


@pairwise(
    sizes=[(6, 2, 24, 24), (3, 3, 64, 64), (4, 1, 192, 128), (2, 1, 576, 512), (2, 2, 20, 36)],
    norm_over=["", "head", "heads", "all"],
    after_rotation=[False, True],
    v_norm=[False, True],
    clip=[0.0, 1.25],
    scaled=[False, True],
    layer=[False, True],
    biased=[False, True],
)
def test_values_and_bits(
    sizes: tuple[int, int, int, int],
    norm_over: str,
    after_rotation: bool,
    v_norm: bool,
    clip: float,
    scaled: bool,
    layer: bool,
    biased: bool,
) -> None:
    case = Case(*sizes, norm_over, after_rotation, v_norm, clip, scaled, layer, biased)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONWARD_CPU_ISA", "generic")
        generic = case.run()
        for found, expected in zip(generic, case.expected(), strict=True):
            assert np.abs(found - expected).max() <= 2e-6 * np.abs(expected).max()
        for isa in distinct("floats"):
            patch.setenv("ONWARD_CPU_ISA", isa)
            for found, same in zip(case.run(), generic, strict=True):
                assert_bits(found, same, isa)
            for found, same in zip(case.run(17, 18), generic, strict=True):
                assert_bits(found, same[17:18], isa)


def test_a_nan_is_not_clipped_away() -> None:
    q, k, v = Case().inputs
    k[3, 1, 5] = v[4, 0, 2] = np.nan
    _, keys, values = kernels.rotate_on("cpu", q, k, v, *Case().angles, clip=1.0)
    assert np.isnan(keys[3, 1, 5]) and np.isnan(values[4, 0, 2])
    assert np.isnan(keys).sum() == 2  # the other one of its pair
    assert np.isnan(values).sum() == 1


@pytest.mark.parametrize(
    "case",
    [
        Case(norm_over="heads"),
        Case(norm_over="all"),
        Case(norm_over="head", after_rotation=True),
        Case(norm_over="head", layer=True),
        Case(v_norm=True),
        Case(clip=1.0),
        Case(scaled=True),
    ],
)
def test_the_cuda_kernels_refuse_what_they_lack(case: Case) -> None:
    with pytest.raises(InvalidArgument, match="device: cuda does not support"):
        case.run(device=need(CUDA_HOST))


def test_the_cuda_kernels_give_the_bits_of_the_processor() -> None:
    case = Case(norm_over="head")
    for found, expected in zip(case.run(device=need(CUDA_HOST)), case.run(), strict=True):
        assert_bits(found, expected, CUDA_HOST)
