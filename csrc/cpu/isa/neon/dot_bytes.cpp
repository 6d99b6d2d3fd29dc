// The byte kernels for 64-bit Arm with dot products of bytes (Armv8.2 and later).
#include "cpu/isa/neon/parts.h"

#if defined(ONWARD_NEON) && defined(__ARM_FEATURE_DOTPROD)

#include <arm_neon.h>

namespace onward::cpu::neon {
namespace {

// clang-format off
#include "cpu/isa/neon/lanes.inl"
#include "cpu/isa/neon/codes.inl"
// clang-format on

inline int32x4_t dot(int32x4_t sum, int32x4_t weights, int32x4_t inputs) {
  return vdotq_s32(sum, vreinterpretq_s8_s32(weights), vreinterpretq_s8_s32(inputs));
}
inline Words dot(Words sum, Words weights, Words inputs) {
  return {dot(sum.v0, weights.v0, inputs.v0), dot(sum.v1, weights.v1, inputs.v1),
          dot(sum.v2, weights.v2, inputs.v2), dot(sum.v3, weights.v3, inputs.v3)};
}

// clang-format off
#include "cpu/isa/templates/dots_signed.inl"
#include "cpu/isa/templates/byte_table.inl"
// clang-format on

}  // namespace

const ByteKernels* dot_byte_kernels() { return &kByteKernels; }

}  // namespace onward::cpu::neon

#else

const onward::cpu::ByteKernels* onward::cpu::neon::dot_byte_kernels() { return nullptr; }

#endif
