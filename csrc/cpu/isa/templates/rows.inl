// Kernels over single rows: normalisation, sums, rounding and widening. Included inside the
// anonymous namespace of a file, after exponential.inl.

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  Lanes squares = zero();
  int64_t i = 0;
  for (; i + kLane <= n; i += kLane) {
    const Lanes value = load(x + i);
    squares = fma(value, value, squares);
  }
  if (i < n) {
    const Lanes value = load_part(x + i, n - i);
    squares = fma(value, value, squares);
  }
  const float mean = fold_add(squares) / static_cast<float>(n);
  const Lanes inverse = set(1.0f / __builtin_sqrtf(mean + eps));
  for (i = 0; i + kLane <= n; i += kLane) {
    store(y + i, mul(mul(load(x + i), inverse), load(weight + i)));
  }
  if (i < n) {
    const Lanes scaled = mul(load_part(x + i, n - i), inverse);
    store_part(y + i, mul(scaled, load_part(weight + i, n - i)), n - i);
  }
}

void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                float* y) {
  const int64_t whole = n / kLane * kLane, rest = n - whole;
  Lanes total = zero();
  for (int64_t i = 0; i < whole; i += kLane) total = add(total, load(x + i));
  if (rest > 0) total = add(total, load_part(x + whole, rest));
  const Lanes mean = set(fold_add(total) / static_cast<float>(n));
  Lanes squares = zero();
  for (int64_t i = 0; i < whole; i += kLane) {
    const Lanes value = sub(load(x + i), mean);
    squares = fma(value, value, squares);
  }
  if (rest > 0) {
    float lanes[kLane];
    store(lanes, sub(load_part(x + whole, rest), mean));
    const Lanes value = load_part(lanes, rest);
    squares = fma(value, value, squares);
  }
  const float variance = fold_add(squares) / static_cast<float>(n);
  const Lanes inverse = set(1.0f / __builtin_sqrtf(variance + eps));
  for (int64_t i = 0; i < whole; i += kLane) {
    const Lanes scaled = mul(mul(sub(load(x + i), mean), inverse), load(weight + i));
    store(y + i, bias == nullptr ? scaled : add(scaled, load(bias + i)));
  }
  if (rest == 0) return;
  const Lanes centred = sub(load_part(x + whole, rest), mean);
  const Lanes scaled = mul(mul(centred, inverse), load_part(weight + whole, rest));
  const Lanes shifted = bias == nullptr ? scaled : add(scaled, load_part(bias + whole, rest));
  store_part(y + whole, shifted, rest);
}

void add_scaled(const float* x, float scale, int64_t n, float* y) {
  const Lanes factor = set(scale);
  for (int64_t i = 0; i < n; i += kLane) store(y + i, fma(load(x + i), factor, load(y + i)));
}

void round_bf16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; i += kLane) store_bf16(y + i, load(x + i));
}

void round_f16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; i += kLane) store_f16(y + i, load(x + i));
}

void quantize(const float* x, int64_t n, int8_t* y, float* scales, int32_t* sums) {
  for (int64_t i = 0; i < n; i += kGroupValues) {
    const Lanes low = load(x + i);
    const Lanes high = i + kLane < n ? load(x + i + kLane) : zero();
    const float largest = largest_magnitude(low, high);
    const float inverse = largest >= 0x1p-120f && largest < kInfinity ? 127.0f / largest : 0.0f;
    // The scale of a group with a NaN or an infinity is a NaN. Its bytes are all zero, since 0
    // times either would be a NaN, which 8 bits cannot hold.
    const float scale =
        largest < kInfinity ? (inverse == 0.0f ? 0.0f : largest / 127.0f) : __builtin_nanf("");
    const bool empty = inverse == 0.0f;
    *sums++ = store_bytes(y + i, empty ? zero() : mul(low, set(inverse)),
                          empty ? zero() : mul(high, set(inverse)));
    *scales++ = scale;
  }
}

void widen_f16(const uint16_t* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLane) store(y + i, load_f16(x + i));
}

void widen_bf16(const uint16_t* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; i += kLane) store(y + i, load_bf16(x + i));
}
