// The byte kernels for AVX2 with the dot products of bytes that came later (AVX-VNNI).
#include "cpu/isa/avx2/parts.h"

#if defined(ONWARD_AVX2) && defined(__AVXVNNI__)

#include <immintrin.h>

namespace onward::cpu::avx2 {
namespace {

// clang-format off
#include "cpu/isa/avx2/lanes.inl"
#include "cpu/isa/avx2/codes.inl"
// clang-format on

inline Words dot(Words sum, Words unsigned_bytes, Words signed_bytes) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.lo) : "x"(unsigned_bytes.lo), "x"(signed_bytes.lo));
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.hi) : "x"(unsigned_bytes.hi), "x"(signed_bytes.hi));
  return sum;
}

// clang-format off
#include "cpu/isa/templates/dots_vnni.inl"
#include "cpu/isa/templates/byte_table.inl"
// clang-format on

}  // namespace

const ByteKernels* vnni_byte_kernels() { return &kByteKernels; }

}  // namespace onward::cpu::avx2

#else

const onward::cpu::ByteKernels* onward::cpu::avx2::vnni_byte_kernels() { return nullptr; }

#endif
