// The kernels for AVX2 with FMA and the dot products of bytes that came to it later (AVX-VNNI). The
// rest is the same source as for avx2, compiled once more: see avx512bf16.cpp.
#include "cpu/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && defined(__AVXVNNI__)

#include <immintrin.h>

namespace onward::cpu {
namespace {

#include "cpu/isa/avx2_lanes.inl"
#include "cpu/isa/avx2_codes.inl"

inline Words dot(Words sum, Words unsigned_bytes, Words signed_bytes) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.lo) : "x"(unsigned_bytes.lo), "x"(signed_bytes.lo));
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.hi) : "x"(unsigned_bytes.hi), "x"(signed_bytes.hi));
  return sum;
}

#include "cpu/isa/dots_vnni.inl"
#include "cpu/isa/kernel_table.inl"

constexpr Kernels kKernels = kernel_table("avx2vnni");

}  // namespace

const Kernels* avx2vnni_kernels() { return &kKernels; }

}  // namespace onward::cpu

#else

const onward::cpu::Kernels* onward::cpu::avx2vnni_kernels() { return nullptr; }

#endif
