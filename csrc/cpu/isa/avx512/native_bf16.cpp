// The bf16 kernels for AVX-512 with the vdpbf16ps instruction.
#include "cpu/isa/avx512/parts.h"

#if defined(ONWARD_AVX512) && defined(__AVX512BF16__)

#include <immintrin.h>

namespace onward::cpu::avx512 {
namespace {

// clang-format off
#include "cpu/isa/avx512/lanes.inl"
#include "cpu/isa/templates/tiles.inl"
#include "cpu/isa/templates/chains.inl"
#include "cpu/isa/templates/float_products.inl"
// clang-format on

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

#include "cpu/isa/templates/bf16_table.inl"

}  // namespace

const Bf16Kernels* native_bf16_kernels() { return &kBf16Kernels; }

}  // namespace onward::cpu::avx512

#else

const onward::cpu::Bf16Kernels* onward::cpu::avx512::native_bf16_kernels() { return nullptr; }

#endif
