// The kernels for AVX-512 (F, BW, DQ, VL) without bf16 arithmetic: bf16 words are widened to f32
// and fused one after the other, to the bits of vdpbf16ps.
#include "cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__FMA__)

#include <immintrin.h>

namespace onward::cpu {
namespace {

#include "cpu/isa/avx512_lanes.inl"

// A word holds elements k (low half) and k + 1 (high half); part 0 is the high one.
struct Bf16Format {
  static constexpr int kDepth = 2;
  static constexpr int kParts = 2;
  static constexpr int64_t kElementBytes = 2;
  template <int kPart>
  static Lanes half(__m512i words) {
    if constexpr (kPart == 0) {
      return {_mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(0xffff0000)))};
    } else {
      return {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16))};
    }
  }
  template <int kPart>
  static Lanes weight(const char* p) {
    return half<kPart>(_mm512_loadu_si512(p));
  }
  static Lanes fuse(Lanes weight, Lanes input, Lanes sum) { return fma(weight, input, sum); }
};

// Each builds on the ones before.
// clang-format off
#include "cpu/isa/linear_tiles.inl"
#include "cpu/isa/row_kernels.inl"
#include "cpu/isa/attend_tiles.inl"
#include "cpu/isa/scan_kernels.inl"
// clang-format on

constexpr Kernels kKernels = {"avx512",    linear_f32, linear_bf16, attend_f32,
                              attend_bf16, rms_norm,   silu_mul,    round_bf16,
                              kScans,      probe_read, probe_f32,   probe_bf16};

}  // namespace

const Kernels* avx512_kernels() { return &kKernels; }

}  // namespace onward::cpu

#else

const onward::cpu::Kernels* onward::cpu::avx512_kernels() { return nullptr; }

#endif
