// The kernels for AVX-512 (F, BW, DQ, VL), in parts that the tables of select.cpp combine.
#pragma once

#include "cpu/isa/templates/exact_tiles.h"
#include "cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__FMA__)
#define ONWARD_AVX512
#endif

namespace onward::cpu::avx512 {

// Null where the compiler cannot target it.
const FloatKernels* float_kernels();
const Bf16Kernels* widened_bf16_kernels();  // AVX-512 alone
const Bf16Kernels* native_bf16_kernels();   // with the vdpbf16ps instruction
const ByteKernels* pair_byte_kernels();     // AVX-512 alone
const ByteKernels* vnni_byte_kernels();     // with the dot products of AVX-512 VNNI

// Where float_kernels() is not null: the tiles of attention for each dtype of the cache.
extern const ExactTiles kExactF32;
extern const ExactTiles kExactF16;
extern const ExactTiles kExactBf16;

}  // namespace onward::cpu::avx512
