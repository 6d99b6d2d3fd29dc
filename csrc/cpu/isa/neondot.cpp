// The kernels for 64-bit Arm with dot products of bytes (Armv8.2 and later). The rest is the same
// source as for neon, compiled once more: see avx512bf16.cpp.
#include "cpu/kernels.h"

#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__ARM_FEATURE_DOTPROD)

#include <arm_neon.h>

namespace onward::cpu {
namespace {

#include "cpu/isa/neon_lanes.inl"
#include "cpu/isa/neon_codes.inl"

inline int32x4_t dot(int32x4_t sum, int32x4_t weights, int32x4_t inputs) {
  return vdotq_s32(sum, vreinterpretq_s8_s32(weights), vreinterpretq_s8_s32(inputs));
}
inline Words dot(Words sum, Words weights, Words inputs) {
  return {dot(sum.v0, weights.v0, inputs.v0), dot(sum.v1, weights.v1, inputs.v1),
          dot(sum.v2, weights.v2, inputs.v2), dot(sum.v3, weights.v3, inputs.v3)};
}

#include "cpu/isa/dots_signed.inl"
#include "cpu/isa/kernel_table.inl"

constexpr Kernels kKernels = kernel_table("neondot");

}  // namespace

const Kernels* neondot_kernels() { return &kKernels; }

}  // namespace onward::cpu

#else

const onward::cpu::Kernels* onward::cpu::neondot_kernels() { return nullptr; }

#endif
