// The byte kernels for every 64-bit Arm processor, with products that widen bytes to 16 bits.
#include "cpu/isa/neon/parts.h"

#if defined(ONWARD_NEON)

#include <arm_neon.h>

namespace onward::cpu::neon {
namespace {

// clang-format off
#include "cpu/isa/neon/lanes.inl"
#include "cpu/isa/neon/codes.inl"
// clang-format on

// Two products of -128 and -127 are 32,512, which 16 bits hold: nothing saturates or wraps.
inline int32x4_t dot(int32x4_t sum, int32x4_t weights, int32x4_t inputs) {
  const int8x16_t a = vreinterpretq_s8_s32(weights), b = vreinterpretq_s8_s32(inputs);
  const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
  return vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8(a, b)));
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

const ByteKernels* widening_byte_kernels() { return &kByteKernels; }

}  // namespace onward::cpu::neon

#else

const onward::cpu::ByteKernels* onward::cpu::neon::widening_byte_kernels() { return nullptr; }

#endif
