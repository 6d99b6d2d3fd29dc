// The float kernels for AVX-512, and bf16 products without an instruction for them: sixteen floats
// are one register.
#include "cpu/isa/avx512/parts.h"

#if defined(ONWARD_AVX512)

#include <immintrin.h>

namespace onward::cpu::avx512 {
namespace {

// clang-format off
#include "cpu/isa/avx512/lanes.inl"
#include "cpu/isa/templates/float_table.inl"
#include "cpu/isa/avx512/widened_bf16.inl"
#include "cpu/isa/templates/bf16_table.inl"
// clang-format on

}  // namespace

const ExactTiles kExactF32 = kExactTiles<F32Cache>;
const ExactTiles kExactF16 = kExactTiles<F16Cache>;
const ExactTiles kExactBf16 = kExactTiles<Bf16Cache>;

const FloatKernels* float_kernels() { return &kFloatKernels; }
const Bf16Kernels* widened_bf16_kernels() { return &kBf16Kernels; }

}  // namespace onward::cpu::avx512

#else

const onward::cpu::FloatKernels* onward::cpu::avx512::float_kernels() { return nullptr; }
const onward::cpu::Bf16Kernels* onward::cpu::avx512::widened_bf16_kernels() { return nullptr; }

#endif
