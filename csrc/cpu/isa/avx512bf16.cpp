// The kernels for AVX-512 with the vdpbf16ps instruction, which linear_bf16 uses, and dot products
// of bytes. The rest is the same source as for avx512, compiled once more: a table put together at
// run time, out of both files, would run AVX-512 code on processors that only ask for the table.
#include "cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__FMA__) && defined(__AVX512VNNI__) &&   \
    defined(__AVX512BF16__)

#include <immintrin.h>

namespace onward::cpu {
namespace {

#include "cpu/isa/avx512_lanes.inl"
#include "cpu/isa/avx512_codes.inl"

inline Words dot(Words sum, Words unsigned_bytes, Words signed_bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(unsigned_bytes.v), "v"(signed_bytes.v));
  return sum;
}

#include "cpu/isa/dots_vnni.inl"

// One instruction fuses both elements of a word, the high half first.
struct Bf16Format {
  static constexpr int kDepth = 2;
  static constexpr int kParts = 1;
  static constexpr int64_t kElementBytes = 2;
  static constexpr int64_t kVectorBytes = 64;
  template <int kPart>
  static Lanes weight(const char* p) {
    return load(reinterpret_cast<const float*>(p));
  }
  static Lanes fuse(Lanes weight, Lanes input, Lanes sum) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)weight.v, (__m512bh)input.v)};
  }
};

#include "cpu/isa/kernel_table.inl"

constexpr Kernels kKernels = kernel_table("avx512bf16");

}  // namespace

const Kernels* avx512bf16_kernels() { return &kKernels; }

}  // namespace onward::cpu

#else

const onward::cpu::Kernels* onward::cpu::avx512bf16_kernels() { return nullptr; }

#endif
