// The AVX-512 kernels with the vdpbf16ps instruction in linear_bf16. Everything else is taken from
// the avx512 table: a processor with avx512_bf16 runs those as they are.
#include "cpu/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__) && defined(__FMA__) && defined(__AVX512BF16__)

#include <immintrin.h>

namespace onward::cpu {
namespace {

#include "cpu/isa/avx512_lanes.inl"

// One instruction fuses both elements of a word, the high half first.
struct Bf16Format {
  static constexpr int kDepth = 2;
  static constexpr int kParts = 1;
  static constexpr int64_t kElementBytes = 2;
  template <int kPart>
  static Lanes weight(const char* p) {
    return load(reinterpret_cast<const float*>(p));
  }
  static Lanes fuse(Lanes weight, Lanes input, Lanes sum) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)weight.v, (__m512bh)input.v)};
  }
};

#include "cpu/isa/linear_tiles.inl"

Kernels with_bf16(const Kernels& avx512) {
  Kernels kernels = avx512;
  kernels.name = "avx512bf16";
  kernels.linear_bf16 = linear_bf16;
  kernels.probe_bf16 = probe_bf16;
  return kernels;
}

}  // namespace

const Kernels* avx512bf16_kernels() {
  static const Kernels kernels = with_bf16(*avx512_kernels());
  return &kernels;
}

}  // namespace onward::cpu

#else

const onward::cpu::Kernels* onward::cpu::avx512bf16_kernels() { return nullptr; }

#endif
