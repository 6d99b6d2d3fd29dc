// The kernels for AVX-512 with the dot products of bytes (VNNI). The rest is the same source as for
// avx512, compiled once more: see avx512bf16.cpp.
#include "cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__FMA__) && defined(__AVX512VNNI__)

#include <immintrin.h>

namespace onward::cpu {
namespace {

#include "cpu/isa/avx512_lanes.inl"

inline Words dot(Words sum, Words unsigned_bytes, Words signed_bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(unsigned_bytes.v), "v"(signed_bytes.v));
  return sum;
}

#include "cpu/isa/avx512_emulated_bf16.inl"
#include "cpu/isa/dots_vnni.inl"

// Each builds on the ones before.
// clang-format off
#include "cpu/isa/linear_tiles.inl"
#include "cpu/isa/group_tiles.inl"
#include "cpu/isa/row_kernels.inl"
#include "cpu/isa/attend_tiles.inl"
#include "cpu/isa/attend_spans.inl"
#include "cpu/isa/scan_kernels.inl"
// clang-format on

constexpr Kernels kKernels = {
    "avx512vnni", linear_f32, linear_f16,  linear_bf16, linear_q8_0, linear_q4_0, linear_q4_1,
    attend_f32,   attend_f16, attend_bf16, merge_spans, rms_norm,    silu_mul,    round_bf16,
    round_f16,    quantize,   kScans,      probe_read,  probe_f32,   probe_bf16,  probe_int8};

}  // namespace

const Kernels* avx512vnni_kernels() { return &kKernels; }

}  // namespace onward::cpu

#else

const onward::cpu::Kernels* onward::cpu::avx512vnni_kernels() { return nullptr; }

#endif
