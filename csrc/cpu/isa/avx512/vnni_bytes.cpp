// The byte kernels for AVX-512 with the dot products of bytes (VNNI).
#include "cpu/isa/avx512/parts.h"

#if defined(ONWARD_AVX512) && defined(__AVX512VNNI__)

#include <immintrin.h>

namespace onward::cpu::avx512 {
namespace {

// clang-format off
#include "cpu/isa/avx512/lanes.inl"
#include "cpu/isa/avx512/codes.inl"
// clang-format on

inline Words dot(Words sum, Words unsigned_bytes, Words signed_bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(unsigned_bytes.v), "v"(signed_bytes.v));
  return sum;
}

// clang-format off
#include "cpu/isa/templates/dots_vnni.inl"
#include "cpu/isa/templates/byte_table.inl"
// clang-format on

}  // namespace

const ByteKernels* vnni_byte_kernels() { return &kByteKernels; }

}  // namespace onward::cpu::avx512

#else

const onward::cpu::ByteKernels* onward::cpu::avx512::vnni_byte_kernels() { return nullptr; }

#endif
