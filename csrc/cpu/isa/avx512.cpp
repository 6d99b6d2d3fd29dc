// The kernels for AVX-512 (F, BW, DQ, VL): sixteen floats are one register.
#include "cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__FMA__)

#include <immintrin.h>

namespace onward::cpu {
namespace {

// clang-format off
#include "cpu/isa/avx512_lanes.inl"
#include "cpu/isa/avx512_codes.inl"
#include "cpu/isa/avx512_emulated_bf16.inl"
#include "cpu/isa/avx512_pairs.inl"
#include "cpu/isa/dots_pairs.inl"
// clang-format on

#include "cpu/isa/kernel_table.inl"

constexpr Kernels kKernels = kernel_table("avx512");

}  // namespace

const Kernels* avx512_kernels() { return &kKernels; }

}  // namespace onward::cpu

#else

const onward::cpu::Kernels* onward::cpu::avx512_kernels() { return nullptr; }

#endif
