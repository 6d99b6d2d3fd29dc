// The kernels for AVX-512 with the dot products of bytes (VNNI). The rest is the same source as for
// avx512, compiled once more: see avx512bf16.cpp.
#include "cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__FMA__) && defined(__AVX512VNNI__)

#include <immintrin.h>

namespace onward::cpu {
namespace {

#include "cpu/isa/avx512_lanes.inl"
#include "cpu/isa/avx512_codes.inl"

inline Words dot(Words sum, Words unsigned_bytes, Words signed_bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(unsigned_bytes.v), "v"(signed_bytes.v));
  return sum;
}

#include "cpu/isa/avx512_emulated_bf16.inl"
#include "cpu/isa/dots_vnni.inl"
#include "cpu/isa/kernel_table.inl"

constexpr Kernels kKernels = kernel_table("avx512vnni");

}  // namespace

const Kernels* avx512vnni_kernels() { return &kKernels; }

}  // namespace onward::cpu

#else

const onward::cpu::Kernels* onward::cpu::avx512vnni_kernels() { return nullptr; }

#endif
