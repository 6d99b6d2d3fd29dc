// The byte kernels in plain loops: quantised weights, and attention over codes.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "base/half.h"
#include "cpu/isa/generic/parts.h"

namespace onward::cpu::generic {
namespace {

// clang-format off
#include "cpu/isa/generic/numbers.inl"
#include "cpu/isa/generic/attend.inl"
#include "cpu/isa/generic/rotation.inl"
#include "cpu/isa/generic/attend_codes.inl"
// clang-format on

// The weight k of a group, as an integer. quads: (8 or 4, width, 4).
int byte_weight(const uint8_t* quads, int64_t width, int64_t c, int64_t k) {
  return quads[(k / 4 * width + c) * 4 + k % 4] - 128;
}
int nibble_weight(const uint8_t* quads, int64_t width, int64_t c, int64_t k) {
  const uint8_t byte = quads[(k % 16 / 4 * width + c) * 4 + k % 4];
  return k < 16 ? byte & 15 : byte >> 4;
}

// kBits: of a weight. kZero: the stored value that means 0. kMinimum: each group of a column has a
// minimum.
template <int kBits, int kZero, bool kMinimum>
void linear_groups(const LinearArgs& a) {
  constexpr int64_t kQuadBytes = kGroupValues * kBits / 8;  // of a column
  constexpr int64_t kColumnBytes = kQuadBytes + 2 + (kMinimum ? 2 : 0);
  const int64_t groups = (a.k + kGroupValues - 1) / kGroupValues;
  for (int64_t row = 0; row < a.rows; ++row) {
    const int8_t* x = static_cast<const int8_t*>(a.x) + row * a.x_stride;  // (groups, 32)
    for (int64_t c = a.first; c < a.first + a.columns; ++c) {
      float sum = 0.0f;
      for (int64_t group = 0; group < groups; ++group) {
        const uint8_t* quads =
            static_cast<const uint8_t*>(a.panel) + group * a.width * kColumnBytes;
        const F16* scales = reinterpret_cast<const F16*>(quads + a.width * kQuadBytes);  // (width)
        const float x_scale = a.x_scales[row * groups + group];
        int dot = 0;
        for (int64_t k = 0; k < kGroupValues; ++k) {
          const int weight = kBits == 8 ? byte_weight(quads, a.width, c, k)
                                        : nibble_weight(quads, a.width, c, k) - kZero;
          dot += weight * x[group * kGroupValues + k];
        }
        sum = fused(static_cast<float>(dot), as_float(scales[c]) * x_scale, sum);
        if (kMinimum) {
          const float x_sum = static_cast<float>(a.x_sums[row * groups + group]);
          sum = fused(as_float(scales[a.width + c]), x_scale * x_sum, sum);
        }
      }
      store_output(a, row, c, sum);
    }
  }
}

int64_t probe_int8(int64_t iterations, float* sink) {
  int32_t sum[kLane] = {};
  for (int64_t i = 0; i < iterations; ++i) {
    for (int32_t& lane : sum) lane += 3;
    asm volatile("" : : "r"(sum) : "memory");
  }
  *sink = static_cast<float>(sum[0]);
  return iterations * kLane * 2;
}

constexpr ByteKernels kByteKernels = {.linear_q8_0 = linear_groups<8, 128, false>,
                                      .linear_q4_0 = linear_groups<4, 8, false>,
                                      .linear_q4_1 = linear_groups<4, 0, true>,
                                      .attend_coded_f32 = attend_coded<float>,
                                      .attend_coded_f16 = attend_coded<F16>,
                                      .attend_coded_bf16 = attend_coded<Bf16>,
                                      .merge_units = merge_units,
                                      .probe_int8 = probe_int8};

}  // namespace

const ByteKernels* byte_kernels() { return &kByteKernels; }

}  // namespace onward::cpu::generic
