// The kernels for AVX2 with FMA: sixteen floats are two 256-bit registers.
#include "cpu/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

namespace onward::cpu {
namespace {

#include "cpu/isa/avx2_lanes.inl"
#include "cpu/isa/avx2_codes.inl"

// The instruction that moves a sign makes bytes of weight 0 zero, as their product is.
inline Words multiply_pairs(Words unsigned_bytes, Words signed_bytes) {
  return {_mm256_maddubs_epi16(unsigned_bytes.lo, signed_bytes.lo),
          _mm256_maddubs_epi16(unsigned_bytes.hi, signed_bytes.hi)};
}
inline Words add_pairs(Words a, Words b) {
  return {_mm256_add_epi16(a.lo, b.lo), _mm256_add_epi16(a.hi, b.hi)};
}
inline Words add_neighbours(Words pairs) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(pairs.lo, ones), _mm256_madd_epi16(pairs.hi, ones)};
}
inline Words flip_sign_bits(Words bytes) {
  const __m256i sign = _mm256_set1_epi8(-128);
  return {_mm256_xor_si256(bytes.lo, sign), _mm256_xor_si256(bytes.hi, sign)};
}
inline Words magnitude_bytes(Words a) { return {_mm256_abs_epi8(a.lo), _mm256_abs_epi8(a.hi)}; }
inline Words copy_sign(Words x, Words sign) {
  return {_mm256_sign_epi8(x.lo, sign.lo), _mm256_sign_epi8(x.hi, sign.hi)};
}

#include "cpu/isa/dots_pairs.inl"
#include "cpu/isa/kernel_table.inl"

constexpr Kernels kKernels = kernel_table("avx2");

}  // namespace

const Kernels* avx2_kernels() { return &kKernels; }

}  // namespace onward::cpu

#else

const onward::cpu::Kernels* onward::cpu::avx2_kernels() { return nullptr; }

#endif
