// Row kernels (exponential, normalisation, gate, rounding), for an instruction set that is
// described by sixteen-float Lanes. Included inside the anonymous namespace of each such file,
// after linear_tiles.inl; knows nothing of the registers behind Lanes.

// exp(x) for x <= 88 with a relative error below 1e-7 (7.8e-8 over every float in range); 0 below
// -87.3, NaN for NaN. x = n ln 2 + r; the sum with 1.5 * 2^23 rounds n to an integer, which
// then stands in the low bits; the polynomial is minimax on |r| <= ln 2 / 2.
inline Lanes exponential_up_to_88(Lanes x) {
  const Lanes shifter = set(12582912.0f);
  const Lanes shifted = fma(x, set(1.44269504f), shifter);
  const Lanes n = sub(shifted, shifter);
  Lanes r = fma(n, set(-0.693145752f), x);
  r = fma(n, set(-1.42860677e-6f), r);
  Lanes p = set(0x1.6a23d0p-10f);
  p = fma(p, r, set(0x1.123a20p-7f));
  p = fma(p, r, set(0x1.5558f2p-5f));
  p = fma(p, r, set(0x1.555492p-3f));
  p = fma(p, r, set(0x1.fffffcp-2f));
  p = fma(p, r, set(1.0f));
  p = fma(p, r, set(1.0f));
  const Lanes value = scale_by_low_bits(p, shifted);
  return select_less(x, set(-87.3f), zero(), value);
}

// The same for any x: +inf above 88.7.
inline Lanes exponential(Lanes x) {
  return select_less(set(88.7f), x, set(kInfinity), exponential_up_to_88(x));
}

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

void silu_mul(const float* gate, const float* up, int64_t n, float* y) {
  const Lanes one = set(1.0f);
  for (int64_t i = 0; i < n; i += kLane) {
    const Lanes x = load(gate + i);
    const Lanes silu = div(x, add(one, exponential(sub(zero(), x))));
    store(y + i, mul(silu, load(up + i)));
  }
}

void round_bf16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; i += kLane) store_bf16(y + i, load(x + i));
}

void round_f16(const float* x, int64_t n, uint16_t* y) {
  for (int64_t i = 0; i < n; i += kLane) store_f16(y + i, load(x + i));
}
