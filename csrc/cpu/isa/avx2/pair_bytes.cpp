// The byte kernels for AVX2 alone, with its products of pairs of bytes.
#include "cpu/isa/avx2/parts.h"

#if defined(ONWARD_AVX2)

#include <immintrin.h>

namespace onward::cpu::avx2 {
namespace {

// clang-format off
#include "cpu/isa/avx2/lanes.inl"
#include "cpu/isa/avx2/codes.inl"
// clang-format on

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
// The sign instruction makes a byte 0 where the weight is 0. The product is 0 there as well.
inline Words copy_sign(Words x, Words sign) {
  return {_mm256_sign_epi8(x.lo, sign.lo), _mm256_sign_epi8(x.hi, sign.hi)};
}

// clang-format off
#include "cpu/isa/templates/dots_pairs.inl"
#include "cpu/isa/templates/byte_table.inl"
// clang-format on

}  // namespace

const ByteKernels* pair_byte_kernels() { return &kByteKernels; }

}  // namespace onward::cpu::avx2

#else

const onward::cpu::ByteKernels* onward::cpu::avx2::pair_byte_kernels() { return nullptr; }

#endif
