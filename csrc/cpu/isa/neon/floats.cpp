// The float and bf16 kernels for 64-bit Arm: sixteen floats are four 128-bit registers.
#include "cpu/isa/neon/parts.h"

#if defined(ONWARD_NEON)

#include <arm_neon.h>

namespace onward::cpu::neon {
namespace {

// clang-format off
#include "cpu/isa/neon/lanes.inl"
#include "cpu/isa/templates/float_table.inl"
#include "cpu/isa/neon/widened_bf16.inl"
#include "cpu/isa/templates/bf16_table.inl"
// clang-format on

}  // namespace

const ExactTiles kExactF32 = kExactTiles<F32Cache>;
const ExactTiles kExactF16 = kExactTiles<F16Cache>;
const ExactTiles kExactBf16 = kExactTiles<Bf16Cache>;

const FloatKernels* float_kernels() { return &kFloatKernels; }
const Bf16Kernels* bf16_kernels() { return &kBf16Kernels; }

}  // namespace onward::cpu::neon

#else

const onward::cpu::FloatKernels* onward::cpu::neon::float_kernels() { return nullptr; }
const onward::cpu::Bf16Kernels* onward::cpu::neon::bf16_kernels() { return nullptr; }

#endif
