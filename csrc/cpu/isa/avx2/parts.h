// The kernels for AVX2 with FMA, in parts that the tables of select.cpp combine.
#pragma once

#include "cpu/isa/templates/exact_tiles.h"
#include "cpu/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define ONWARD_AVX2
#endif

namespace onward::cpu::avx2 {

// Null where the compiler cannot target it.
const FloatKernels* float_kernels();
const Bf16Kernels* bf16_kernels();
const ByteKernels* pair_byte_kernels();  // AVX2 alone
const ByteKernels* vnni_byte_kernels();  // with the dot products of AVX-VNNI

// Where float_kernels() is not null: the tiles of attention for each dtype of the cache.
extern const ExactTiles kExactF32;
extern const ExactTiles kExactF16;
extern const ExactTiles kExactBf16;

}  // namespace onward::cpu::avx2
