// Kernels over single rows in plain loops: the reference for templates/rows.inl. Included inside
// the anonymous namespace of a file, after numbers.inl.

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  float squares[kLane] = {};
  for (int64_t i = 0; i < n; ++i) squares[i % kLane] = fused(x[i], x[i], squares[i % kLane]);
  const float mean = fold_add(squares) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * inverse * weight[i];
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                float* y) {
  float total[kLane] = {}, squares[kLane] = {};
  for (int64_t i = 0; i < n; ++i) total[i % kLane] += x[i];
  const float mean = fold_add(total) / static_cast<float>(n);
  for (int64_t i = 0; i < n; ++i) {
    squares[i % kLane] = fused(x[i] - mean, x[i] - mean, squares[i % kLane]);
  }
  const float variance = fold_add(squares) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(variance + eps);
  for (int64_t i = 0; i < n; ++i) {
    const float scaled = (x[i] - mean) * inverse * weight[i];
    y[i] = bias == nullptr ? scaled : scaled + bias[i];
  }
}

void add_scaled(const float* x, float scale, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = fused(x[i], scale, y[i]);
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
