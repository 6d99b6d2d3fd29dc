// The float and bf16 kernels for AVX2 with FMA: sixteen floats are two 256-bit registers.
#include "cpu/isa/avx2/parts.h"

#if defined(ONWARD_AVX2)

#include <immintrin.h>

namespace onward::cpu::avx2 {
namespace {

// clang-format off
#include "cpu/isa/avx2/lanes.inl"
#include "cpu/isa/templates/float_table.inl"
#include "cpu/isa/avx2/widened_bf16.inl"
#include "cpu/isa/templates/bf16_table.inl"
// clang-format on

}  // namespace

const ExactTiles kExactF32 = kExactTiles<F32Cache>;
const ExactTiles kExactF16 = kExactTiles<F16Cache>;
const ExactTiles kExactBf16 = kExactTiles<Bf16Cache>;

const FloatKernels* float_kernels() { return &kFloatKernels; }
const Bf16Kernels* bf16_kernels() { return &kBf16Kernels; }

}  // namespace onward::cpu::avx2

#else

const onward::cpu::FloatKernels* onward::cpu::avx2::float_kernels() { return nullptr; }
const onward::cpu::Bf16Kernels* onward::cpu::avx2::bf16_kernels() { return nullptr; }

#endif
