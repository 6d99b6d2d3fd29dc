// The float and bf16 kernels in plain loops.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "cpu/isa/generic/parts.h"

namespace onward::cpu::generic {
namespace {

// clang-format off
#include "cpu/isa/generic/numbers.inl"
#include "cpu/isa/generic/activations.inl"
#include "cpu/isa/generic/rows.inl"
#include "cpu/isa/generic/attend.inl"
#include "cpu/isa/generic/scans.inl"
#include "cpu/isa/generic/rotation.inl"
#include "cpu/isa/generic/encode.inl"
// clang-format on

template <class Weight>
void linear_floats(const LinearArgs& a) {
  const Weight* panel = static_cast<const Weight*>(a.panel);  // (k, width)
  for (int64_t row = 0; row < a.rows; ++row) {
    const float* x = static_cast<const float*>(a.x) + row * a.x_stride;  // (k)
    for (int64_t c = a.first; c < a.first + a.columns; ++c) {
      float sum = 0.0f;
      for (int64_t k = 0; k < a.k; ++k) sum = fused(as_float(panel[k * a.width + c]), x[k], sum);
      store_output(a, row, c, sum);
    }
  }
}

void linear_bf16(const LinearArgs& a) {
  const Bf16* panel = static_cast<const Bf16*>(a.panel);  // (k / 2, width, 2)
  for (int64_t row = 0; row < a.rows; ++row) {
    const Bf16* x = static_cast<const Bf16*>(a.x) + row * a.x_stride;  // (k)
    float* y = a.y + row * a.y_stride;                                 // (columns)
    for (int64_t c = a.first; c < a.first + a.columns; ++c) {
      float sum = 0.0f;
      for (int64_t k = 0; k < a.k; k += 2) {
        const Bf16* pair = panel + k * a.width + c * 2;
        sum = fused_flushing(as_float(pair[1]), as_float(x[k + 1]), sum);
        sum = fused_flushing(as_float(pair[0]), as_float(x[k]), sum);
      }
      const int64_t column = c - a.first;
      if (a.bias != nullptr) sum = flush(sum + flush(a.bias[column]));
      y[column] = a.add ? flush(flush(y[column]) + sum) : sum;
    }
  }
}

uint64_t probe_read(const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  uint64_t sum[4] = {};
  for (int64_t i = 0; i < bytes; i += 32) {
    uint64_t words[4];
    std::memcpy(words, p + i, sizeof words);
    for (int w = 0; w < 4; ++w) sum[w] += words[w];
  }
  return sum[0] + sum[1] + sum[2] + sum[3];
}

constexpr FloatKernels kFloatKernels = {.linear_f32 = linear_floats<float>,
                                        .linear_f16 = linear_floats<F16>,
                                        .attend_f32 = attend<float>,
                                        .attend_f16 = attend<F16>,
                                        .attend_bf16 = attend<Bf16>,
                                        .merge_spans = merge_spans,
                                        .rms_norm = rms_norm,
                                        .layer_norm = layer_norm,
                                        .activate = activate,
                                        .soft_cap = soft_cap,
                                        .add_scaled = add_scaled,
                                        .round_bf16 = round_bf16,
                                        .round_f16 = round_f16,
                                        .quantize = quantize,
                                        .hadamard = hadamard,
                                        .inverse_hadamard = inverse_hadamard,
                                        .hadamard_lanes = hadamard_lanes,
                                        .widen_f16 = widen<F16>,
                                        .widen_bf16 = widen<Bf16>,
                                        .encode = encode,
                                        .scans = kScans,
                                        .probe_read = probe_read,
                                        .probe_f32 = probe_multiply_add<fused>};

constexpr Bf16Kernels kBf16Kernels = {.linear_bf16 = linear_bf16,
                                      .probe_bf16 = probe_multiply_add<fused_flushing>};

}  // namespace

const FloatKernels* float_kernels() { return &kFloatKernels; }
const Bf16Kernels* bf16_kernels() { return &kBf16Kernels; }

}  // namespace onward::cpu::generic
