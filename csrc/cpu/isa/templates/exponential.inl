// exp and tanh, for the softmax and activations. Included inside the anonymous namespace of a file, after
// tiles.inl.

// exp(x) for x <= 88 with a relative error below 1e-7 (7.8e-8 over every float in range); 0 below
// -87.3, NaN for NaN. x = n ln 2 + r. Adding 1.5 * 2^23 rounds n to an integer in the low bits.
// The polynomial is minimax on |r| <= ln 2 / 2.
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

// tanh(x) with a relative error below 2e-7; NaN for NaN. Below 0.625 an odd polynomial that is
// minimax there; above, 1 - 2 / (exp(2 |x|) + 1).
inline Lanes hyperbolic_tangent(Lanes x) {
  const Lanes size = magnitude(x), square = mul(x, x);
  Lanes p = set(-0x1.75e1cep-8f);
  p = fma(p, square, set(0x1.52269cp-6f));
  p = fma(p, square, set(-0x1.b83c5ap-5f));
  p = fma(p, square, set(0x1.110726p-3f));
  p = fma(p, square, set(-0x1.555532p-2f));
  const Lanes low = fma(mul(p, square), x, x);
  const Lanes power = exponential(add(size, size));
  const Lanes high = sub(set(1.0f), div(set(2.0f), add(power, set(1.0f))));
  const Lanes outer = select_less(x, zero(), sub(zero(), high), high);
  return select_less(size, set(0.625f), low, outer);
}

// x = cap * tanh(scale * x / cap), or scale * x if cap is 0; -infinity stays.
inline void soft_cap(float* x, int64_t n, float scale, float cap) {
  const Lanes factor = set(scale);
  if (cap == 0) {
    for (int64_t i = 0; i < n; i += kLane) store(x + i, mul(load(x + i), factor));
    return;
  }
  const Lanes limit = set(cap), lowest = set(-0x1.fffffep127f);
  for (int64_t i = 0; i < n; i += kLane) {
    const Lanes value = mul(load(x + i), factor);
    const Lanes capped = mul(limit, hyperbolic_tangent(div(value, limit)));
    store(x + i, select_less(value, lowest, value, capped));
  }
}
