// The kernels in plain loops, in exactly the order that cpu/kernels.h documents: the oracle of the
// other instruction sets, and what a processor without any of them runs. Knows no intrinsics.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "cpu/kernels.h"

namespace onward::cpu {
namespace {

constexpr int64_t kTileKeys = 64;
constexpr int64_t kMostStateFloats = kStateHead + 512;  // of the largest head_dim

// What stores an element.
struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};
float as_float(float x) { return x; }
float as_float(F16 x) { return f16_to_float(x.bits); }
float as_float(Bf16 x) { return bf16_to_float(x.bits); }

// Denormals become a zero of the same sign.
float flush(float x) { return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }

float fused(float a, float b, float sum) { return std::fma(a, b, sum); }
float fused_flushing(float a, float b, float sum) {
  return flush(std::fma(flush(a), flush(b), flush(sum)));
}

// Lane j takes lane j + width / 2, until one lane is left.
float fold_add(float (&lanes)[kLane]) {
  for (int64_t half = kLane / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

// exp(x) with a relative error below 1e-7; 0 below -87.3, +inf above 88.7, NaN for NaN.
// x = n ln 2 + r, |r| <= ln 2 / 2; the polynomial is minimax there; 2^n is added to the exponent.
float exponential(float x) {
  if (x < -87.3f) return 0.0f;
  if (88.7f < x) return INFINITY;
  if (std::isnan(x)) return x;
  const float shifter = 12582912.0f;  // 1.5 * 2^23: the sum rounds n to an integer in the low bits
  const float shifted = std::fma(x, 1.44269504f, shifter);
  const float n = shifted - shifter;
  float r = std::fma(n, -0.693145752f, x);
  r = std::fma(n, -1.42860677e-6f, r);
  float p = 0x1.6a23d0p-10f;
  p = std::fma(p, r, 0x1.123a20p-7f);
  p = std::fma(p, r, 0x1.5558f2p-5f);
  p = std::fma(p, r, 0x1.555492p-3f);
  p = std::fma(p, r, 0x1.fffffcp-2f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  return bits_to_float(float_to_bits(p) + (float_to_bits(shifted) << 23));
}

// y[row][c] from the finished chain of a column.
void store_output(const LinearArgs& a, int64_t row, int64_t c, float sum) {
  float& y = a.y[row * a.y_stride + c - a.first];
  if (a.bias != nullptr) sum += a.bias[c - a.first];
  y = a.add ? y + sum : sum;
}

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

// The weight k of a group, as an integer. quads: (8 or 4, width, 4).
int byte_weight(const uint8_t* quads, int64_t width, int64_t c, int64_t k) {
  return quads[(k / 4 * width + c) * 4 + k % 4] - 128;
}
int nibble_weight(const uint8_t* quads, int64_t width, int64_t c, int64_t k) {
  const uint8_t byte = quads[(k % 16 / 4 * width + c) * 4 + k % 4];
  return k < 16 ? byte & 15 : byte >> 4;
}

// kBits of a weight; kZero: what stands for 0; kMinimum: each group of a column has one.
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

#include "cpu/isa/generic_codes.inl"
#include "cpu/isa/generic_attend.inl"
#include "cpu/isa/generic_attend_codes.inl"

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  float squares[kLane] = {};
  for (int64_t i = 0; i < n; ++i) squares[i % kLane] = fused(x[i], x[i], squares[i % kLane]);
  const float mean = fold_add(squares) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * inverse * weight[i];
}

void silu_mul(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const float silu = gate[i] / (1.0f + exponential(0.0f - gate[i]));
    y[i] = silu * up[i];
  }
}

void round_bf16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = float_to_bits(x[i]);
    const uint32_t upper = bits >> 16;
    const uint32_t rounded = (bits + 0x7fff + (upper & 1)) >> 16;
    const uint32_t quiet = upper | 0x40;
    y[i] = static_cast<uint16_t>(std::isnan(x[i]) ? quiet : rounded);
  }
}

void round_f16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = float_to_f16(x[i]);
}

void quantize(const float* x, int64_t n, int8_t* y, float* scales, int32_t* sums) {
  for (int64_t begin = 0; begin < n; begin += kGroupValues, ++scales, ++sums) {
    const int64_t count = std::min(kGroupValues, n - begin);
    float largest = 0.0f;
    bool finite = true;
    for (int64_t i = begin; i < begin + count; ++i) {
      finite = finite && std::isfinite(x[i]);
      largest = std::max(largest, std::fabs(x[i]));
    }
    const bool empty = !finite || largest < 0x1p-120f;
    *scales = !finite ? NAN : empty ? 0.0f : largest / 127.0f;
    *sums = 0;
    for (int64_t i = 0; i < kGroupValues; ++i) {
      const float scaled = empty || i >= count ? 0.0f : x[begin + i] * (127.0f / largest);
      y[begin + i] = static_cast<int8_t>(std::nearbyint(scaled));
      *sums += y[begin + i];
    }
  }
}

// Element i of a row belongs to lane i % 16 of a sum.
double fold_add(double (&lanes)[kLane]) {
  for (int64_t half = kLane / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

bool all_finite(const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return false;
  }
  return true;
}

float largest(const float* x, int64_t n) {
  float best = -INFINITY;
  for (int64_t i = 0; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best + 0.0f;
}

float rescale(const float* x, double shift, double factor, int64_t n, float* y) {
  float smallest = INFINITY;
  for (int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<float>((static_cast<double>(x[i]) - shift) * factor);
    smallest = y[i] < smallest ? y[i] : smallest;
  }
  return smallest + 0.0f;
}

double exponentials(const float* x, int64_t n, float* y) {
  double sums[kLane] = {};
  for (int64_t i = 0; i < n; ++i) {
    y[i] = exponential(x[i]);
    sums[i % kLane] += static_cast<double>(y[i]);
  }
  return fold_add(sums);
}

double dot(const float* a, const float* b, int64_t n) {
  double sums[kLane] = {};
  for (int64_t i = 0; i < n; ++i) {
    sums[i % kLane] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return fold_add(sums);
}

double sum_at_least(const float* key, const float* value, float least, int64_t n) {
  double sums[kLane] = {};
  for (int64_t i = 0; i < n; ++i) {
    if (key[i] >= least) sums[i % kLane] += static_cast<double>(value[i]);
  }
  return fold_add(sums);
}

int64_t gather_range(const float* key, float low, float high, const float* value, const int32_t* id,
                     int64_t n, float* value_out, int32_t* id_out) {
  int64_t kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!(low <= key[i] && key[i] < high)) continue;
    const int32_t number = id != nullptr ? id[i] : static_cast<int32_t>(i);
    value_out[kept] = value[i];
    id_out[kept++] = number;
  }
  return kept;
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

template <float (*kFused)(float, float, float)>
int64_t probe_multiply_add(int64_t iterations, float* sink) {
  float sum[kLane] = {};
  for (int64_t i = 0; i < iterations; ++i) {
    for (float& lane : sum) lane = kFused(1.0f, 0x1p-30f, lane);
  }
  *sink = fold_add(sum);
  return iterations * kLane * 2;
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

constexpr Kernels kKernels = {
    "generic",
    linear_floats<float>,
    linear_floats<F16>,
    linear_bf16,
    linear_groups<8, 128, false>,
    linear_groups<4, 8, false>,
    linear_groups<4, 0, true>,
    attend<float>,
    attend<F16>,
    attend<Bf16>,
    merge_spans,
    attend_coded<float>,
    attend_coded<F16>,
    attend_coded<Bf16>,
    merge_units,
    rms_norm,
    silu_mul,
    round_bf16,
    round_f16,
    quantize,
    hadamard,
    inverse_hadamard,
    hadamard_lanes,
    widen<F16>,
    widen<Bf16>,
    encode_int8,
    encode_q4_0,
    encode_turbo<16>,
    encode_turbo<8>,
    encode_turbo<4>,
    {all_finite, largest, rescale, exponentials, dot, sum_at_least, gather_range},
    probe_read,
    probe_multiply_add<fused>,
    probe_multiply_add<fused_flushing>,
    probe_int8};

}  // namespace

const Kernels* generic_kernels() { return &kKernels; }

}  // namespace onward::cpu
