// Numbers and sums of the generic kernels. Included inside the anonymous namespace of a file.

constexpr int64_t kTileKeys = 64;
constexpr int64_t kMostStateFloats = kStateHead + 576;  // of the largest head_dim

// Stored elements.
struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};
inline float as_float(float x) { return x; }
inline float as_float(F16 x) { return f16_to_float(x.bits); }
inline float as_float(Bf16 x) { return bf16_to_float(x.bits); }

// A denormal becomes a zero of the same sign.
inline float flush(float x) { return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }

inline float fused(float a, float b, float sum) { return std::fma(a, b, sum); }
inline float fused_flushing(float a, float b, float sum) {
  return flush(std::fma(flush(a), flush(b), flush(sum)));
}

// Adds lane j + width / 2 to lane j, until one lane is left.
inline float fold_add(float (&lanes)[kLane]) {
  for (int64_t half = kLane / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

// exp(x) with a relative error below 1e-7; 0 below -87.3, +inf above 88.7, NaN for NaN.
// x = n ln 2 + r, |r| <= ln 2 / 2; the polynomial is minimax there; 2^n is added to the exponent.
inline float exponential(float x) {
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

// tanh(x) with a relative error below 2e-7; NaN for NaN. Below 0.625 an odd polynomial that is
// minimax there; above, 1 - 2 / (exp(2 |x|) + 1).
inline float hyperbolic_tangent(float x) {
  const float size = std::fabs(x);
  if (size < 0.625f) {
    const float square = x * x;
    float p = -0x1.75e1cep-8f;
    p = std::fma(p, square, 0x1.52269cp-6f);
    p = std::fma(p, square, -0x1.b83c5ap-5f);
    p = std::fma(p, square, 0x1.110726p-3f);
    p = std::fma(p, square, -0x1.555532p-2f);
    return std::fma(p * square, x, x);
  }
  const float high = 1.0f - 2.0f / (exponential(size + size) + 1.0f);
  return x < 0.0f ? 0.0f - high : high;
}

inline float soft_capped(float x, float cap) {
  return cap == 0 || x < -0x1.fffffep127f ? x : cap * hyperbolic_tangent(x / cap);
}

// y[row][c] from the finished chain of a column.
inline void store_output(const LinearArgs& a, int64_t row, int64_t c, float sum) {
  float& y = a.y[row * a.y_stride + c - a.first];
  if (a.bias != nullptr) sum += a.bias[c - a.first];
  y = a.add ? y + sum : sum;
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
